"""Saved filters of every kind, as each format version wrote them: loaded by every later version, and never changed.

`python -m proof golden` adds a file, and its line in `manifest.json`, for each recipe that has none yet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamdedup import filters
from streamdedup.events import Fingerprint
from streamdedup.filters.base import Addable, Filter, Removable, Static
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import MURMUR3
from streamdedup.snapshot.files import content_of
from streamdedup.snapshot.format import FORMAT_VERSION
from streamdedup.snapshot.header import Identity, Log
from tests.filters.cases import HASH_KEY, STATIC_KINDS

DIRECTORY = Path(__file__).parent
MANIFEST = DIRECTORY / "manifest.json"

KEYS = [f"key {i}" for i in range(500)]
REMOVED = KEYS[:100]  # where a kind can
ABSENT = [f"absent {i}" for i in range(20_000)]
FALSE_POSITIVES_MAX = 10

LOG = Log(
    Identity(
        hash="murmur3",
        hash_check=MURMUR3.check,
        key={"from": "json", "fields": ["id"], "tombstones": "forward"},
        normalize="none",
        filter={"kind": "bloom", "capacity": 500, "error_rate": 0.01},
        topic="events-unique",
        partition=3,
        partitions=8,
        cluster_id="cluster",
        topic_id="topic",
    ),
    label=1000,
    counter=42,
)
FINGERPRINTED = replace(
    LOG,
    fingerprint=Fingerprint(
        offset=998, producer_id=4000, epoch=3, crc=0xDEADBEEF, stamped_ms=1_700_000_000_000
    ),
)
END_LABEL = 1010


@dataclass(frozen=True)
class Golden:
    """A recipe: a kind, its options, the log where a worker saved it; `variant` tells it from others of its kind."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    log: Log | None = None

    def __str__(self) -> str:
        return "-".join(part for part in (self.kind, self.variant) if part)

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self}-v{FORMAT_VERSION}.filter"

    def filled(self) -> Filter:
        """The filter, with what `KEYS` and `REMOVED` leave in it."""
        if self.kind in STATIC_KINDS:
            class_: Static = filters.kind_of(self.kind)
            return class_.from_digests(MURMUR3.digests(KEYS), 0.01, MURMUR3)
        made = filters.build(
            {"kind": self.kind, "capacity": 500, "error_rate": 0.01, **self.options}
        )
        return _fill(made)

    def content(self, saved_at: float) -> Iterator[bytes | memoryview]:
        """The file, in pieces."""
        end_label = END_LABEL if self.log else 0
        return content_of(self.filled(), saved_at, self.log, lambda: end_label)


GOLDEN = [
    *(Golden(kind, {"fingerprint_bytes": 16} if kind == "exact" else {}) for kind in filters.KINDS),
    *(
        Golden(name, {"multiset": True}, variant="multiset")
        for name, kind in filters.KINDS.items()
        if "multiset" in kind.options
    ),
    Golden("bloom", {"probe": "double"}, variant="double"),
    Golden("bloom", variant="log", log=LOG),
    Golden("bloom", variant="fingerprint", log=FINGERPRINTED),
    Golden("bloom", {"on_full": "grow", "capacity": 90}, variant="chain"),
    Golden("cuckoo", {"on_full": "grow", "capacity": 90}, variant="chain"),
    Golden("window", {"retention": 7000, "generations": 12}, variant="time"),
    Golden(
        "window", {"retention": 7000, "generations": 12, "on_full": "grow", "capacity": 40}, "grown"
    ),
]


def _fill(made: Addable) -> Addable:
    if isinstance(made, Windowed) and not made.clock.by_count:
        made.add_many(made.digests(KEYS), np.arange(len(KEYS)) * 10)
        return made
    made.add_many(made.digests(KEYS))
    if isinstance(made, Removable):
        made.add_many(made.digests(KEYS[50:150]))  # copies, in a multiset
        made.remove_many(made.digests([*REMOVED, *REMOVED[50:]] if made.multiset else REMOVED))
    return made


def present(seen: Filter) -> list[str]:
    """The keys that must be found in a recipe's filter."""
    return KEYS[len(REMOVED) :] if isinstance(seen, Removable) else KEYS


def removed_with_others(seen: Filter) -> list[str]:
    """The keys of `present` that a set does not find: they rested on the cells of keys that were removed."""
    found = seen.contains_many(seen.digests(present(seen)))
    return [key for key, is_found in zip(present(seen), found, strict=True) if not is_found]


def false_positives(seen: Filter) -> list[int]:
    """Which of `ABSENT` it reports present, the first ones."""
    found = seen.contains_many(seen.digests(ABSENT)).nonzero()[0]
    return [int(number) for number in found[:FALSE_POSITIVES_MAX]]


def hash_key(seen: Mapping[str, Any]) -> bytes:
    """What the filter with this header was built with."""
    return HASH_KEY if seen.get("hash") == "siphash" else b""
