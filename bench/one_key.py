"""`python -m bench one-key`: one key at a time, `add` and `in`, beside `set` and rbloom, by turns in one process.

Each contender has its turn with the same thousand keys; the median of all turns counts, in ns of this thread's time a
key. rbloom hashes by Python's `hash`, which a `str` remembers and each process salts: its filters cannot be saved.
"""

import argparse
import gc
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import streamdedup
from bench.harness import RESULTS, Clock, machine_text, markdown, target, today, turns, verdict
from streamdedup import library
from streamdedup.filters import GROWABLE, KINDS, STATIC
from streamdedup.filters.base import Static
from streamdedup.filters.fuse.fuse import Fuse
from streamdedup.keys.hashing import Hash

TURN = 1000  # keys
ASKED = 100  # turns, of keys that are known, found or absent
SIZES, RATES = (10**4, 10**5, 10**6, 10**7), (1e-2, 1e-6)
OPERATIONS = ("new", "known", "hit", "miss")
OF_KINDS = 10**6  # keys, of the table of all kinds
SALT = 2654435761

PAGE = RESULTS / "one-key.md"
ABOUT = """Made by `python -m bench one-key`: `add` and `in` for one key after the other, in ns of the thread's time a
key, the median of turns of a thousand. *new*: `add` of new keys, from empty to full; *known*: `add` of keys that are
there; *hit* and *miss*: `in`. *near full* is the last tenth of the new keys, *half full* the fifth: near its capacity
`cuckoo` finds both buckets of most keys full, and moves other keys to make room. rbloom hashes by Python's `hash`,
which a `str` remembers and each process salts: it has the hash for nothing once a key was asked before, and its
filters cannot be used in another process."""

Figures = dict[str, dict[str, float]]


def text(number: int) -> str:
    """A key of 22 bytes."""
    return f"u{number * SALT % (1 << 32):010d}@example.org"


def keys(numbers: Sequence[int]) -> Iterator[list[str]]:
    """Those of the numbers, a turn at a time; each is a new object, as keys are that come from elsewhere."""
    for start in range(0, len(numbers), TURN):
        yield [text(number) for number in numbers[start : start + TURN]]


def adding(one: Any, some: list[str]) -> Callable[[], None]:  # noqa: ANN401
    """What a program writes."""

    def loop() -> None:
        add = one.add
        for key in some:
            add(key)

    return loop


def asking(one: Any, some: list[str]) -> Callable[[], None]:  # noqa: ANN401
    """The same, to look up."""

    def loop() -> None:
        for key in some:
            key in one  # noqa: B015

    return loop


def measured(contenders: dict[str, Any], size: int, clock: Clock) -> Figures:
    """Nanoseconds a key, of each contender and operation, from empty to `size` keys; and of the last tenth of these."""
    drawn, times = Random(size), defaultdict[tuple[str, str], list[float]](list)

    def play(what: str, number: int, some: list[str]) -> None:
        adds = what in ("new", "known")
        way = adding if adds else asking
        taking = [
            name for name, one in contenders.items() if not (adds and isinstance(one, Static))
        ]
        for name in turns(taking, number):
            seconds, _ = clock.once(way(contenders[name], some))
            times[name, what].append(seconds / len(some) * 1e9)

    known = [drawn.randrange(size) for _ in range(ASKED * TURN)]
    absent = range(size, size + ASKED * TURN)
    gc.disable()
    for what, numbers in ("new", range(size)), ("known", known), ("hit", known), ("miss", absent):
        for number, some in enumerate(keys(numbers)):
            play(what, number, some)
    gc.enable()
    found: Figures = {name: {} for name in contenders}
    for (name, what), took in times.items():
        found[name][what] = statistics.median(took)
    for name in [name for name, what in times if what == "new"]:
        took = times[name, "new"]
        tenth = max(1, len(took) // 10)
        found[name]["half full"] = statistics.median(took[4 * tenth : 5 * tenth])
        found[name]["near full"] = statistics.median(took[-tenth:])
    return found


def ours(kind: str, size: int, rate: float, **options: Any) -> Any:  # noqa: ANN401
    """A filter of the library, for so many keys."""
    rated = {} if kind == "exact" else {"error_rate": rate}
    return streamdedup.build({"kind": kind, "capacity": size, **rated, **options})


def built_at_once(size: int, rate: float) -> Any:  # noqa: ANN401
    """The kind that takes no further key, of all keys."""
    digests = Hash().digests([text(number) for number in range(size)])
    return library.shared(Fuse.from_digests(digests, rate))


def compared(size: int, rate: float, clock: Clock) -> Figures:
    """`bloom` and `cuckoo` beside `set` and rbloom."""
    import rbloom  # of the extra `bench`

    both = {kind: ours(kind, size, rate) for kind in ("bloom", "cuckoo")}
    return measured({"set": set(), "rbloom": rbloom.Bloom(size, rate), **both}, size, clock)


def of_kinds(clock: Clock) -> Figures:
    """All kinds; and a chain that has three stages when it is asked, beside its kind."""
    import rbloom  # of the extra `bench`

    rates = {"bitmap": 0.01}
    found = {
        kind: built_at_once(OF_KINDS, 1e-6)
        if kind in STATIC
        else ours(kind, OF_KINDS, rates.get(kind, 1e-6))
        for kind in KINDS
    }
    chains = {
        f"{kind}, three stages": ours(kind, OF_KINDS // 5, 1e-6, on_full="grow")
        for kind in GROWABLE
        if kind != "window"  # which grows by time only
    }
    return measured(
        {"set": set(), "rbloom": rbloom.Bloom(OF_KINDS, 1e-6), **found, **chains}, OF_KINDS, clock
    )


def table(found: Figures) -> str:
    """As markdown."""
    rows = [
        [name, *(f"{ns[what]:.0f}" if what in ns else "" for what in OPERATIONS)]
        for name, ns in found.items()
    ]
    return markdown(["ns a key", *OPERATIONS], rows)


def judged(found: dict[tuple[int, float], Figures], kinds: Figures) -> Iterator[dict[str, Any]]:
    """What the builtins are to reach."""
    for (size, rate), of in found.items():
        theirs, mine, cuckoo = of["rbloom"], of["bloom"], of["cuckoo"]
        at = f"{size:,} keys at {rate:g}"
        for what, most in ("new", 0.8), ("hit", 1.0), ("miss", 1.0):
            yield target(f"bloom, {what}, of rbloom, {at}", mine[what] / theirs[what], most=most)
        grown = cuckoo["near full"] / cuckoo["half full"]
        yield target(f"cuckoo, near full, of half full, {at}", grown, most=2)
    for name, ns in kinds.items():
        kind, _, stages = name.partition(", ")
        for what in OPERATIONS if stages else ():
            yield target(f"{name}, {what}, of one", ns[what] / kinds[kind][what], most=2)


def page(
    found: dict[tuple[int, float], Figures],
    kinds: Figures,
    targets: Sequence[dict[str, Any]],
    clock: Clock,
) -> str:
    """What was measured, as a page."""
    parts = [
        "# One key at a time",
        ABOUT,
        machine_text("numba", "numpy", "rbloom"),
        f"Measured on {today()}: {clock}.",
    ]
    parts += [f"## Every kind, {OF_KINDS:,} keys, error rate 1e-6", table(kinds)]
    for (size, rate), of in found.items():
        parts += [f"## {size:,} keys, error rate {rate:g}", table(of)]
    rows = [
        [told["claim"], told["wanted"], f"{told['measured']}", verdict(told["met"])]
        for told in targets
    ]
    parts += ["## Targets", markdown(["Ratio", "Wanted", "Measured", ""], rows)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> int:
    """Print it; status 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--most",
        type=int,
        default=SIZES[-1],
        help="the largest size, in keys; the whole is written",
    )
    most = parser.parse_args().most
    clock = Clock()
    found = {
        (size, rate): compared(size, rate, clock)
        for size in SIZES
        if size <= most
        for rate in RATES
    }
    kinds = of_kinds(clock)
    targets = list(judged(found, kinds))
    text = page(found, kinds, targets, clock)
    print(text, end="")
    if most >= SIZES[-1]:
        PAGE.write_text(text, "utf-8")
    return not all(told["met"] for told in targets)


if __name__ == "__main__":
    sys.exit(main())
