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
            name: {**settings.get(name, {}), **self.worker.get(name, {})}
            for name in {**settings, **self.worker}
        }


BASE = Case()
LARGE = replace(BASE, name="size-1k", what="events of 1,000 bytes", size=1000, events=1_500_000)


def _but(name: str, what: str, **changes: Any) -> Case:  # noqa: ANN401 - any field
    """The base case, but for one thing."""
    return replace(BASE, name=name, what=what, **changes)


def _worker(name: str, what: str, section: str, **options: object) -> Case:
    """The base case, but for options of one section of the worker's configuration."""
    key = "json" if section == "key" else BASE.key
    return _but(name, what, key=key, worker={section: options})


CASES = (
    BASE,
    LARGE,
    replace(
        LARGE,
        name="pages-small",
        what="events of 1,000 bytes, without huge pages",
        pages=SMALL_PAGES,
    ),
    _but("key-json", "key from a JSON field", key="json"),
    _worker("key-normalized", "key from a JSON field, `lowercase`", "key", normalize="lowercase"),
    _worker("key-fields", "key from two JSON fields", "key", field=["email", "pad"]),
    _worker("hash-murmur3", "`filter.hash: murmur3`", "filter", hash="murmur3"),
    _but("partitions-1", "1 partition", partitions=1),
    _but("partitions-16", "16 partitions", partitions=16),
    _but("duplicates-0", "no duplicates", duplicates=0.0),
    _but("duplicates-95", "95 % duplicates", duplicates=0.95, events=12_000_000),
    _but("at-least-once", "at least once", guarantee="at_least_once"),
    *(
        _but(f"kind-{kind}", f"filter `{kind}`", kind=kind)
        for kind in ("bloom", "blocked", "exact")
    ),
    _but("output-lz4", "output in lz4, the default", output_compression="lz4"),
    _but("lz4", "input and output in lz4", compression="lz4"),
    _but("zstd", "input and output in zstd", compression="zstd"),
)
