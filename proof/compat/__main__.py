"""`python -m proof compat [VERSION ...]`: play the storms on every version, or these, then the broker tests.

The page is written after each step; what was played with the same code is not played again.
"""

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.entry import add_names
from proof.chaos.results import machine
from proof.compat import results
from proof.compat.page import failures, table, write_page
from proof.compat.playing import VERSIONS, play_storms, play_tests
from proof.compat.results import OfVersion
from tests.broker.base import Unavailable
from tests.broker.versions import Kafka

Play = Callable[[Kafka, OfVersion], Iterator[OfVersion]]
PARTS: Mapping[str, Play] = {"storms": play_storms, "tests": play_tests}


def main(arguments: Sequence[str] | None = None) -> int:
    """Status 1 if anything failed."""
    wish = wish_of(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if not wish.report:
        for part in wish.part or PARTS:
            for kafka in wish.versions:
                try:
                    known = results.read().get(str(kafka), OfVersion())
                    for played in PARTS[part](kafka, known):
                        results.keep(str(kafka), played)
                        write_page(results.read())
                except Unavailable as unavailable:
                    print(f"{kafka}: {unavailable}")
                    return 1
    found = results.read()
    write_page(found)
    print("\n".join([machine(), "", *table(found)]))
    return 1 if failures(found) else 0


def wish_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read them; a wrong one ends the process with status 2, and the argument, its value and what there is."""
    parser = argparse.ArgumentParser(prog="python -m proof compat", description=__doc__)
    named = {name: None for kafka in VERSIONS for name in (str(kafka), kafka.version)}
    add_names(parser, "VERSION", named)
    parser.add_argument("--part", action="append", choices=PARTS, help="both if not given")
    parser.add_argument("--report", action="store_true", help="write the page, without playing")
    wish = parser.parse_args(arguments)
    asked = wish.names or named  # a version alone means it with each of its features
    wish.versions = [k for k in VERSIONS if str(k) in asked or k.version in asked]
    return wish


if __name__ == "__main__":
    sys.exit(main())
