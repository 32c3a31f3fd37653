"""A block list and an allow list of numbered addresses, and events of these."""

from collections.abc import Iterable
from pathlib import Path

from tests.broker.topics import Event, Header
from tests.lists.screening import build

KEYS = 30


def build_lists(directory: Path) -> dict[str, dict[str, str]]:
    """The two sections, their lists built by the command."""
    texts = {
        "allow": [f"user{n}@junk.org" for n in range(0, KEYS, 15)],
        "block": ["@junk.org", *(f"user{n}@example.com" for n in range(0, KEYS, 5) if n % 3)],
    }
    for name, entries in texts.items():
        build(directory / f"{name}.list", entries, "--name", f"{name}ed")
    return {f"{name}list": {"file": f"{directory}/{name}.list"} for name in texts}


def addressed(
    numbers: Iterable[int], partitions: int = 1, headers: Iterable[Header] = ()
) -> list[Event]:
    """Events by their record keys, a third of them of a blocked domain; equal keys share a partition."""
    return [
        (
            number % partitions,
            b"User%d@%s" % (number, b"example.com" if number % 3 else b"junk.org"),
            b"%d" % number,
            [*headers],
            None,
        )
        for number in numbers
    ]
