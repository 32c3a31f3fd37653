"""What all shards of a worker share: settings, the client and the consumer; and what a shard derives from them."""

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdedup.filters import build
from streamdedup.filters.base import Filter
from streamdedup.filters.memory import touch
from streamdedup.kafka.source import Source
from streamdedup.kafka.topics import Topology
from streamdedup.keys.extract import Extractor
from streamdedup.keys.hashing import HASH_CHECK, HASH_ID
from streamdedup.settings import Settings
from streamdedup.snapshot import Identity


@dataclass(frozen=True)
class Context:
    """One for a worker. `partitions` counts those of the input; `folds` bounds how many shards fold at once."""

    settings: Settings
    client: Any
    source: Source
    partitions: int
    folds: asyncio.Semaphore

    @property
    def exactly_once(self) -> bool:
        """Whether output and offsets are committed in one transaction."""
        return self.settings.delivery.guarantee == "exactly_once"

    @property
    def stops_when_full(self) -> bool:
        """Whether a shard stops at its capacity, rather than go beyond its error rate."""
        return self.settings.filter.on_full == "stop"

    @property
    def shard_capacity(self) -> int:
        """A shard's share of `filter.capacity`, with its headroom for skew; never more than the whole."""
        options = self.settings.filter
        share = options.capacity * (1 + options.partition_headroom) / self.partitions
        return min(options.capacity, int(np.ceil(share)))

    def empty_filter(self) -> Filter:
        """A new filter for one shard, its memory in place. Blocking where it is large."""
        options = self.settings.filter
        empty = build(
            {
                "kind": options.kind,
                "capacity": self.shard_capacity,
                "error_rate": options.error_rate,
            }
        )
        for buffer in empty.buffers():
            touch(buffer)
        return empty

    def extractor(self) -> Extractor:
        """Takes the key of an event, of the input and of the output alike."""
        key = self.settings.key
        fields = (key.field,) if isinstance(key.field, str) else key.field or ()
        return Extractor(key.from_, fields, self.settings.source.tombstones)

    def identity(self, topology: Topology, partition: int) -> Identity:
        """Of the log that a filter of `partition` is the fold of, and of how keys become digests."""
        settings, output = self.settings, topology[self.settings.sink.topic]
        return Identity(
            hash=HASH_ID,
            hash_check=HASH_CHECK,
            key={
                "from": settings.key.from_,
                "fields": list(self.extractor().fields),
                "tombstones": settings.source.tombstones,
            },
            normalize=settings.key.normalize,
            filter={
                "kind": settings.filter.kind,
                "capacity": settings.filter.capacity,
                "partition_headroom": settings.filter.partition_headroom,
                "error_rate": settings.filter.error_rate,
            },
            topic=output.name,
            partition=partition,
            partitions=topology[settings.source.topic].partitions,
            cluster_id=topology.cluster_id,
            topic_id=output.topic_id,
        )
