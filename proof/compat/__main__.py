"""`make compat`: play the storms on every version, then the broker tests; `python -m proof.compat report` only writes.

ONLY=2.5.1,4.4.0 takes these versions, PARTS=storms or PARTS=tests only one part. The page is written after each step.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from proof.compat import results
from proof.compat.page import failures, table, write_page
from proof.compat.playing import VERSIONS, play_storms, play_tests
from proof.compat.results import OfVersion
from tests.broker.base import Unavailable
from tests.broker.versions import Kafka

Play = Callable[[Kafka, OfVersion], Iterator[OfVersion]]
PARTS: Mapping[str, Play] = {"storms": play_storms, "tests": play_tests}


@dataclass(frozen=True)
class Wish:
    """What the variables ask for."""

    only: Sequence[Kafka]
    parts: Sequence[str]


def main(arguments: Sequence[str]) -> int:
    """Status 1 if anything failed, 2 for a wrong variable or argument."""
    if arguments not in ([], ["report"]):
        print("usage: python -m proof.compat [report]")
        return 2
    try:
        wish = wish_of(os.environ)
    except ValueError as error:
        print(error)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if not arguments:
        for part in wish.parts:
            for kafka in wish.only:
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
    print("\n".join([results.machine(), "", *table(found)]))
    return 1 if failures(found) else 0


def wish_of(variables: Mapping[str, str]) -> Wish:
    """Read ONLY and PARTS; ValueError with the variable, its value and what it takes."""
    names = variables.get("ONLY", "").replace(",", " ").split()
    only = [kafka for kafka in VERSIONS if not names or _is_named(kafka, names)]
    if unknown := [name for name in names if not any(_is_named(k, [name]) for k in VERSIONS)]:
        there_are = ", ".join(map(str, VERSIONS))
        raise ValueError(f"ONLY={','.join(unknown)}: there are {there_are}")
    parts = variables.get("PARTS", "").replace(",", " ").split() or list(PARTS)
    if wrong := set(parts) - PARTS.keys():
        raise ValueError(f"PARTS={','.join(sorted(wrong))}: there are {', '.join(PARTS)}")
    return Wish(only, parts)


def _is_named(kafka: Kafka, names: Sequence[str]) -> bool:
    """Whether one of the names is that of the version, with or without a feature."""
    return str(kafka) in names or kafka.version in names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
