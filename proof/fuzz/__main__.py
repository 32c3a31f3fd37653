"""`python -m proof fuzz --minutes N [TARGET ...]`: play inputs of each target, N minutes in all, or of those named.

Status 1 if a parser did what it does not document: the output names the input by target, seed and number, and has the
error; `--play NUMBER` plays it again. A target ends at its first fault. It takes another `--seed` to play other inputs.
"""

import argparse
import sys

from bench.entry import add_names
from proof.fuzz.play import Player, play_apart
from proof.fuzz.targets import TARGETS


def main(arguments: list[str] | None = None) -> int:
    """Return the status of the process."""
    asked = _parser().parse_args(arguments)
    targets = asked.names or list(TARGETS)
    if asked.play is not None:
        for target in targets:
            Player(target, asked.seed).play(asked.play)
        return 0
    status = 0
    for target in targets:
        played, fault = play_apart(target, asked.seed, asked.minutes * 60 / len(targets))
        print(f"{target}: {played:,} inputs of seed {asked.seed}", flush=True)
        if fault:
            status = 1
            print(f"  input {fault.number}, seed {fault.seed}: {fault.error}", flush=True)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof fuzz", description=__doc__)
    add_names(parser, "TARGET", TARGETS)
    parser.add_argument("--minutes", type=float, default=1.0, help="in all; 1 if not given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--play", type=int, metavar="NUMBER", help="this input only, here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
