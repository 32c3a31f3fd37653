"""Saved filters that no worker writes: built at once, multisets, by count; `snapshots/` has all other kinds."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import streamdedup
from streamdedup import filters
from streamdedup.filters.base import Filter, Removable, Static
from streamdedup.keys.hashing import MURMUR3
from streamdedup.snapshot.files import content_of
from streamdedup.snapshot.format import FORMAT_VERSION
from tests.filters.cases import STATIC_KINDS

DIRECTORY = Path(__file__).parent
KEYS = [f"key {i}" for i in range(500)]
REMOVED = KEYS[:100]  # where a kind can
ABSENT = [f"absent {i}" for i in range(20_000)]
FALSE_POSITIVES_MAX = 10


@dataclass(frozen=True)
class Golden:
    """A kind with options; `variant` tells it from others of its kind."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""

    def __str__(self) -> str:
        return "-".join(part for part in (self.kind, self.variant) if part)

    @property
    def path(self) -> Path:
        """Of its file."""
        return DIRECTORY / f"{self}-v{FORMAT_VERSION}.filter"

    def filled(self) -> Filter:
        """The filter, with what `KEYS` and `REMOVED` leave in it."""
        if self.kind in STATIC_KINDS:
            class_: Static = filters.kind_of(self.kind)
            return class_.from_digests(MURMUR3.digests(KEYS), 0.01, MURMUR3)
        made = filters.build(
            {"kind": self.kind, "capacity": 500, "error_rate": 0.01, **self.options}
        )
        made.add_many(made.digests(KEYS))
        if isinstance(made, Removable):
            made.add_many(made.digests(KEYS[50:150]))  # copies
            made.remove_many(made.digests([*REMOVED, *REMOVED[50:]]))
        return made

    def content(self) -> bytes:
        """The file, as it is written now."""
        return b"".join(map(bytes, content_of(self.filled(), time.time())))

    def answers(self, *, mmap: bool = False) -> Any:
        """What is found in its file."""
        seen = streamdedup.load(self.path, mmap=mmap)
        present = KEYS[len(REMOVED) :] if isinstance(seen, Removable) else KEYS
        found = seen.contains_many(seen.digests(ABSENT)).nonzero()[0]
        return {
            "kind": seen.kind,
            "sha256": sha256(self.path.read_bytes()).hexdigest(),
            "keys": len(seen),
            "header": seen.header(),
            "not found": int((~seen.contains_many(seen.digests(present))).sum()),
            "false positives": found[:FALSE_POSITIVES_MAX].tolist(),
        }


GOLDEN: Sequence[Golden] = [
    Golden("fuse"),
    Golden("window"),
    Golden("exact", {"fingerprint_bytes": 16}),
    *(
        Golden(name, {"multiset": True}, variant="multiset")
        for name, kind in filters.KINDS.items()
        if "multiset" in kind.options
    ),
]


def answers() -> Any:
    """What is found in each file."""
    return {str(golden): golden.answers() for golden in GOLDEN}
