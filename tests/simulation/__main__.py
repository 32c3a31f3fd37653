"""Run many seeds, and say how to run those again that broke a promise."""

import argparse
import sys
import time

from tests.simulation.mutants import mutants
from tests.simulation.run import simulate


def main() -> int:
    """The exit status: 1 where any seed broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--start", type=int, default=0, help="the first (default: 0)")
    parser.add_argument("--trace", action="store_true", help="print the history of each")
    parser.add_argument("--most", type=int, default=10, help="end after so many failures")
    parser.add_argument("--mutants", action="store_true", help="see how soon each is seen")
    options = parser.parse_args()
    if options.mutants:
        return _mutants(options.start, options.seeds)
    began, failed = time.process_time(), 0
    for seed in range(options.start, options.start + options.seeds):
        outcome = simulate(seed, traced=options.trace)
        if options.trace:
            print(*outcome.trace or (), sep="\n")
        if outcome.breach:
            failed += 1
            print(f"seed {seed}: {outcome.breach}")
            print(
                f"  again: python -m tests.simulation --seeds 1 --start {seed} --trace", flush=True
            )
            if failed >= options.most:
                break
    seconds = time.process_time() - began
    tried = seed - options.start + 1
    print(f"{tried} seeds, {failed} failed, {1000 * seconds / tried:.1f} ms of CPU a seed")
    return 1 if failed else 0


def _mutants(start: int, seeds: int) -> int:
    """The exit status: 1 where any survives."""
    survivors = 0
    for name, broken in mutants().items():
        with broken:
            outcomes = (simulate(seed) for seed in range(start, start + seeds))
            breach = next((outcome for outcome in outcomes if outcome.breach), None)
        survivors += breach is None
        told = f"seed {breach.seed}: {breach.breach}" if breach else f"survived {seeds} seeds"
        print(f"{name}: {told}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
