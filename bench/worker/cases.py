"""What is measured: one base case, and others that differ from it in one thing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.worker.events import Form

SLOW_S = 2.5
OURS_S = 6.0
# The variable that deploy/Dockerfile sets: glibc then asks for huge pages.
PAGES, HUGE_PAGES, SMALL_PAGES = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", ""


@dataclass(frozen=True)
class Case:
    """One setting of everything; `events` are in the input, `size` is that of a key and its value, in bytes.

    `compression` is that of the input, and of the output where that has no `output_compression`; `worker` is further
    configuration of ours. `pages` is the environment variable PAGES of all contenders.
    """

    name: str = "base"
    what: str = "the base case"
    events: int = 8_000_000
    size: int = 120
    partitions: int = 4
    duplicates: float = 0.2
    key: str = "key"
    guarantee: str = "exactly_once"
    kind: str = "cuckoo"
    capacity: int = 10_000_000
    compression: str = "none"
    output_compression: str | None = None
    worker: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    pages: str = HUGE_PAGES

    @property
    def written(self) -> str:
        """How the output is compressed."""
        return self.output_compression or self.compression

    @property
    def form(self) -> Form:
        """What its events look like."""
        return Form(self.size)

    @property
    def input(self) -> tuple[int, int, int, float, str]:
        """What its input depends on: cases of the same share a topic."""
        return self.events, self.size, self.partitions, self.duplicates, self.compression

    def settings(self, bootstrap: str, group: str, source: str, sink: str) -> dict[str, Any]:
        """The worker's configuration; all that is not here has its default. The snapshots' directory is not here."""
        key_field = {"field": "email"} if self.key == "json" else {}
        settings: dict[str, dict[str, object]] = {
            "kafka": {"bootstrap_servers": bootstrap, "group_id": group},
            "source": {"topic": source},
            "key": {"from": self.key, **key_field},
            "filter": {"kind": self.kind, "capacity": self.capacity},
            "sink": {"topic": sink, "compression": self.written},
            "delivery": {"guarantee": self.guarantee},
        }
        return {
            name: {**section, **self.worker.get(name, {})} for name, section in settings.items()
        }


BASE = Case()
LARGE = replace(BASE, name="size-1k", what="events of 1,000 bytes", size=1000, events=1_500_000)
CASES = (
    BASE,
    LARGE,
    replace(
        LARGE,
        name="pages-small",
        what="events of 1,000 bytes, without huge pages",
        pages=SMALL_PAGES,
    ),
    replace(BASE, name="key-json", what="key from a JSON field", key="json"),
    replace(
        BASE,
        name="key-normalized",
        what="key from a JSON field, `lowercase`",
        key="json",
        worker={"key": {"normalize": "lowercase"}},
    ),
    replace(
        BASE,
        name="key-fields",
        what="key from two JSON fields",
        key="json",
        worker={"key": {"field": ["email", "pad"]}},
    ),
    replace(
        BASE,
        name="hash-murmur3",
        what="`filter.hash: murmur3`",
        worker={"filter": {"hash": "murmur3"}},
    ),
    replace(BASE, name="partitions-1", what="1 partition", partitions=1),
    replace(BASE, name="partitions-16", what="16 partitions", partitions=16),
    replace(BASE, name="duplicates-0", what="no duplicates", duplicates=0.0),
    replace(BASE, name="duplicates-95", what="95 % duplicates", duplicates=0.95, events=12_000_000),
    replace(BASE, name="at-least-once", what="at least once", guarantee="at_least_once"),
    replace(BASE, name="kind-bloom", what="filter `bloom`", kind="bloom"),
    replace(BASE, name="kind-blocked", what="filter `blocked`", kind="blocked"),
    replace(BASE, name="kind-exact", what="filter `exact`", kind="exact"),
    replace(
        BASE,
        name="output-lz4",
        what="output in lz4, the default",
        output_compression="lz4",
    ),
    replace(BASE, name="lz4", what="input and output in lz4", compression="lz4"),
    replace(BASE, name="zstd", what="input and output in zstd", compression="zstd"),
)
