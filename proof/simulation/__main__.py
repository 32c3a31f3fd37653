"""Run many seeds, and say how to run those again that broke a promise."""

import argparse
import sys
import time
from collections.abc import Iterable

from proof.simulation.mutants import mutants
from proof.simulation.plan import SORTS, left_by_tests
from proof.simulation.run import simulate


def main() -> int:
    """The exit status: 1 where any seed broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m proof simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--start", type=int, default=0, help="the first (default: 0)")
    parser.add_argument("--plan", choices=SORTS, default="drawn", help="the sort of plan")
    parser.add_argument(
        "--left", action="store_true", help="all promised seeds that `make test-all` does not play"
    )
    parser.add_argument("--trace", action="store_true", help="print the history of each")
    parser.add_argument("--most", type=int, default=10, help="end after so many failures")
    parser.add_argument("--mutants", action="store_true", help="see how soon each is seen")
    options = parser.parse_args()
    numbers = range(options.start, options.start + options.seeds)
    if options.mutants:
        return _mutants(numbers)
    seeds = left_by_tests() if options.left else ((options.plan, number) for number in numbers)
    return _play(seeds, options.most, traced=options.trace)


def _play(seeds: Iterable[tuple[str, int]], failed_max: int, *, traced: bool) -> int:
    """The exit status: 1 if any seed of these plans broke a promise."""
    began, tried, failed = time.process_time(), 0, 0
    for plan, seed in seeds:
        outcome = simulate(seed, traced=traced, changed=SORTS[plan].changed)
        tried += 1
        if traced:
            print(*outcome.trace or (), sep="\n")
        if outcome.breach:
            failed += 1
            print(f"seed {seed}, {plan}: {outcome.breach}")
            print(f"  again: {again(seed, plan)}", flush=True)
            if failed >= failed_max:
                break
    seconds = time.process_time() - began
    print(f"{tried} seeds, {failed} failed, {1000 * seconds / max(tried, 1):.1f} ms of CPU a seed")
    return 1 if failed else 0


def again(seed: int, plan: str) -> str:
    """Return the command that plays a seed again."""
    return f"python -m proof simulation --seeds 1 --start {seed} --plan {plan} --trace"


def _mutants(numbers: Iterable[int]) -> int:
    """The exit status: 1 where any survives."""
    survivors = 0
    for name, mutant in mutants().items():
        changed = SORTS[mutant.plan].changed
        with mutant.broken:
            outcomes = (simulate(seed, changed=changed) for seed in numbers)
            breach = next((outcome for outcome in outcomes if outcome.breach), None)
        survivors += breach is None
        told = f"seed {breach.seed}: {breach.breach}" if breach else "survived all seeds"
        print(f"{name}: {told}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
