"""What the settings make of every partition: the hash, the key, the empty filter, the identity of its log."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, cast

from streamdedup.filters import GROWTH, build
from streamdedup.filters.base import Addable, Filter, Growing
from streamdedup.filters.memory import touch_pages
from streamdedup.filters.no_filter import NoFilter
from streamdedup.filters.options import PROBED, WINDOWED
from streamdedup.filters.window.clock import SPAN_MAX
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kafka.topics import Topology
from streamdedup.keys.extract import Extractor
from streamdedup.keys.hashing import Hash
from streamdedup.keys.normalizers import normalizer
from streamdedup.settings import Settings
from streamdedup.snapshot import Identity
from streamdedup.units import milliseconds

_DURATION = milliseconds(0, SPAN_MAX)


@dataclass(frozen=True)
class Recipe:
    """The settings, and what a shard of an input of so many `partitions` derives from them. Pure: no I/O, no clock."""

    settings: Settings
    partitions: int

    @property
    def exactly_once(self) -> bool:
        """Whether output and offsets are committed in one transaction."""
        return self.settings.delivery.exactly_once

    @property
    def stops_when_full(self) -> bool:
        """Whether a shard stops at its capacity, rather than go beyond its error rate."""
        return self.settings.filter.on_full != "warn"

    def held(self, filter_: Addable | Windowed) -> str:
        """Return how full `filter_` is, for messages; a window by time also reports its fullest generation."""
        held = f"its filter holds {len(filter_)} keys of {filter_.capacity}"
        if not isinstance(filter_, Windowed) or filter_.clock.by_count:
            return held
        generation, keys, alone = filter_.fullest()
        slot = filter_.clock.slot
        return (
            f"{held}, of which {keys} ({keys / max(1, len(filter_)):.0%}) are of one generation, the"
            f" {_DURATION.format(slot)} from {_moment(generation * slot)} on; one alone takes at most {alone}"
        )

    def larger(self, filter_: Addable | Windowed) -> str:
        """What to raise for a larger filter than `filter_`, for messages."""
        options = self.settings.filter
        if options.on_full == "grow":
            given = options.max_size or f"{GROWTH} times what the filters begin with"
            return f"raise filter.max_size ({given} for all partitions together) or filter.capacity"
        raised = f"raise filter.capacity ({options.capacity} for all partitions together"
        if isinstance(filter_, Windowed) and not filter_.clock.by_count:
            *_, alone = filter_.fullest()
            if alone < filter_.capacity:
                whole = math.ceil(options.capacity * filter_.capacity / max(1, alone))
                raised += f"; {whole} if all these keys may come within one generation"
        return f"{raised})"

    @property
    def shard_capacity(self) -> int:
        """A shard's share of `filter.capacity`, with its headroom for skew; never more than the whole."""
        return self.settings.filter.share(self.settings.filter.capacity, self.partitions)

    @property
    def _max_size(self) -> int | None:
        """A shard's even share of `filter.max_size`, which bounds them all together."""
        whole = self.settings.filter.max_size
        return None if whole is None else whole // self.partitions

    @cached_property
    def hash(self) -> Hash:
        """What makes digests of keys, here and in every filter that is loaded."""
        return Hash(self.settings.filter.hash, self.settings.filter.hash_key_bytes)

    def empty_filter(self) -> Addable | Windowed:
        """A new filter for one shard, its memory in place. Blocking where it is large."""
        options = self.settings.filter
        if not options.remembers:
            return NoFilter(self.hash)
        arguments: dict[str, Any] = {
            "kind": options.kind,
            "capacity": self.shard_capacity,
            "error_rate": options.error_rate,
            "hash": options.hash,
            "hash_key": options.hash_key_bytes,
        }
        if options.kind in PROBED:
            arguments |= {"probe": options.probe}
        if options.on_full == "grow":
            arguments |= {"on_full": "grow", "max_size": self._max_size}
        if options.kind == "window":
            arguments |= {name: getattr(options, name) for name in WINDOWED}
        empty = build(arguments)
        for buffer in empty.buffers():
            touch_pages(buffer)
        return empty

    def adopt(self, loaded: Filter) -> Addable | Windowed:
        """A filter that was loaded, with what may have been set otherwise since it was saved."""
        options = self.settings.filter
        if isinstance(loaded, Growing):
            loaded.permit(self._max_size)
        if isinstance(loaded, Windowed):
            loaded.set_policy(options.late, options.refresh)
        return cast("Addable | Windowed", loaded)

    def extractor(self) -> Extractor:
        """Takes the key of an event, of the input and of the output alike."""
        key = self.settings.key
        fields = (key.field,) if isinstance(key.field, str) else key.field or ()
        tombstones = self.settings.source.tombstones
        return Extractor(key.from_, fields, tombstones, normalizer(key.normalize, key.email_rules))

    def identity(self, topology: Topology, partition: int, floor: int | None = None) -> Identity:
        """Of the log that a filter of `partition` is the fold of, from `floor` on, and of how keys become digests."""
        settings, output = self.settings, topology[self.settings.sink.topic]
        extractor = self.extractor()
        return Identity(
            hash=self.hash.name,
            hash_check=self.hash.check,
            key={
                "from": settings.key.from_,
                "fields": list(extractor.fields),
                "tombstones": settings.source.tombstones,
            },
            normalize=extractor.normalizer.id if extractor.normalizer else "none",
            filter={
                "kind": settings.filter.kind,
                "capacity": settings.filter.capacity,
                "partition_headroom": settings.filter.partition_headroom,
                "error_rate": settings.filter.error_rate,
                "probe": settings.filter.probe,
                "grows": settings.filter.on_full == "grow",
                "retention": settings.filter.retention,
                "generations": settings.filter.generations,
                "max_jump": settings.filter.max_jump,
            },
            topic=output.name,
            partition=partition,
            partitions=topology[settings.source.topic].partitions,
            cluster_id=topology.cluster_id,
            topic_id=output.topic_id,
            floor=floor or 0,
        )


def _moment(time_ms: int) -> str:
    """In UTC; in ms since 1970 where no calendar goes that far."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
