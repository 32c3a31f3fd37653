"""What every shard derives from the settings: the hash, the key, the empty filter, the identity of its log."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

from streamdedup.filters import GROWTH, build
from streamdedup.filters.base import Addable, Filter, Growing
from streamdedup.filters.growing.stages import within
from streamdedup.filters.kinds import CELLED, KINDS, WINDOW_TABLE
from streamdedup.filters.memory import touch_pages
from streamdedup.filters.no_filter import NoFilter
from streamdedup.filters.options import PROBED, WINDOWED, can_grow
from streamdedup.filters.stash import ROWS_MANY, stash_bytes
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kafka.topics import Topology
from streamdedup.keys.extract import Extractor
from streamdedup.keys.hashing import SYSTEM, Hash, RandomSource
from streamdedup.settings import Settings
from streamdedup.settings.meaning import Meaning
from streamdedup.snapshot import Identity
from streamdedup.snapshot.header import DRAWN

OUTGROWN = 2  # times the promised error rate: chance alone takes a filter no further above it


class FilterBytes(NamedTuple):
    """The bytes of a shard's filter: of a `new` one, and at `most`, once it has grown or gone beyond its capacity."""

    new: int
    most: int


@dataclass(frozen=True)
class Recipe:
    """The settings, and what a shard derives from them; the input has `partitions` partitions. No I/O, no clock."""

    settings: Settings
    partitions: int

    @property
    def exactly_once(self) -> bool:
        """Whether output and offsets are committed in one transaction."""
        return self.settings.delivery.exactly_once

    @property
    def stops_when_full(self) -> bool:
        """Whether a shard stops at its capacity, rather than exceed its error rate.

        An `exact` set does so in any case: it would not err more, but move to a table half as large again, at once.
        """
        options = self.settings.filter
        return options.on_full != "warn" or options.kind == "exact"

    @property
    def stash_bytes(self) -> int:
        """What a shard's filter takes beyond its size if it goes on beyond its capacity: all in flight may be new."""
        delivery = self.settings.delivery
        if self.stops_when_full or self.settings.filter.kind not in CELLED:
            return 0
        return stash_bytes(ROWS_MANY + delivery.batch_events_max * (delivery.max_in_flight + 1))

    def held(self, filter_: Addable | Windowed) -> str:
        """Return how full `filter_` is, for messages."""
        held = f"its filter holds {len(filter_)} keys of {filter_.capacity}"
        return f"{held}, and has no cells for more" if filter_.overfull else held

    def remedy(self) -> str:
        """Return what to set if a filter is full; for messages."""
        options = self.settings.filter
        restarted = f"{self.larger()} and restart (which may fold the output again)"
        no_help = options.on_full == "warn" or options.kind == "exact"
        return restarted if no_help else f"{restarted}, or set filter.on_full: warn"

    def larger(self) -> str:
        """Return which option to change, and from what value, for a larger filter; for messages."""
        options = self.settings.filter
        if options.on_full == "grow":
            given = options.max_size or f"{GROWTH} times what the filters begin with"
            return f"raise filter.max_size ({given} for all partitions together) or filter.capacity"
        raised = f"raise filter.capacity ({options.capacity} for all partitions together)"
        grows = can_grow(options.kind, options.error_rate, options.retention)
        return f"set filter.on_full: grow, or {raised}" if grows else raised

    @property
    def shard_capacity(self) -> int:
        """A shard's share of `filter.capacity`, with `partition_headroom` for skew; at most the whole capacity."""
        return self.settings.filter.share(self.settings.filter.capacity, self.partitions)

    @property
    def _max_size(self) -> int | None:
        """A shard's even share of `filter.max_size`, which bounds the filters of all partitions together."""
        whole = self.settings.filter.max_size
        return None if whole is None else whole // self.partitions

    @property
    def filter_bytes(self) -> FilterBytes:
        """The bytes of a shard's filter, if there is one. Nothing is allocated.

        ConfigError if the kind cannot be built so, or `filter.max_size` has no room for a new one.
        """
        options = self.settings.filter
        kind, keys, own = options.kind, self.shard_capacity, options.footprint_options
        if options.on_full == "grow":
            plan = within(self._max_size, kind, keys, options.error_rate, own)
            return FilterBytes(plan[0].size_bytes, sum(stage.size_bytes for stage in plan))
        new = KINDS[kind].footprint(keys, options.error_rate, **own).size_bytes
        return FilterBytes(new, new + self.stash_bytes)

    @cached_property
    def common_hash(self) -> Hash:
        """The hash of all that partitions share, such as lists: siphash if a secret is configured, else murmur3."""
        return Hash.under(self.settings.filter.hash_key_bytes)

    @property
    def secret(self) -> str:
        """Where the secret of the hash comes from, in a word: `configured`, `drawn` for each filter, or `none`."""
        options = self.settings.filter
        if options.hash_key_bytes:
            return "configured"
        return "drawn" if options.draws_secret else "none"

    def empty_filter(self, random: RandomSource = SYSTEM) -> Addable | Windowed:
        """Return a new filter for one shard. All its memory is allocated and touched, so this blocks if it is large.

        The secret of its hash is drawn from `random`, unless one is configured or the hash has none.
        """
        options = self.settings.filter
        if not options.remembers:
            return NoFilter(self.common_hash)
        arguments: dict[str, Any] = {
            "kind": options.kind,
            "capacity": self.shard_capacity,
            "error_rate": options.error_rate,
        }
        if options.kind in PROBED:
            arguments |= {"probe": options.probe}
        if options.on_full == "grow":
            arguments |= {"on_full": "grow", "max_size": self._max_size}
        if options.kind == "window":
            arguments |= {name: getattr(options, name) for name in WINDOWED}
        hash_ = Hash.draw(random) if options.draws_secret else self.common_hash
        empty = build(arguments, hash_)
        for buffer in empty.buffers():
            touch_pages(buffer)
        return empty

    def adopt(self, loaded: Filter) -> Addable | Windowed:
        """Give a loaded filter those settings that may have changed since it was saved, and return it."""
        options = self.settings.filter
        if isinstance(loaded, Growing):
            loaded.permit(self._max_size)
        if isinstance(loaded, Windowed):
            loaded.set_policy(options.late, options.refresh)
        return cast("Addable | Windowed", loaded)

    @cached_property
    def meaning(self) -> Meaning:
        """What decides which key an event has and to which output it goes; all workers of the group have the same."""
        return Meaning.of(self.settings)

    def is_outgrown(self, loaded: Filter) -> bool:
        """Return whether a loaded filter had to take more keys than its `max_size` had room for, and may now grow.

        Its stages then err more than promised, for good. New ones, folded from the output, do not.
        """
        if not isinstance(loaded, Growing):
            return False
        loaded.permit(self._max_size)
        return (
            loaded.error_rate_now > OUTGROWN * loaded.error_rate and len(loaded) <= loaded.capacity
        )

    def extractor(self) -> Extractor:
        """Return what extracts the key of an event, for the input and the output alike."""
        return self.meaning.extractor

    def identity(self, topology: Topology, partition: int, floor: int | None = None) -> Identity:
        """Return the identity of the log that a filter of `partition` folds, from `floor` on.

        It includes the settings that decide how keys become digests and how the filter is built. A snapshot of another
        identity is refused. Filters whose secrets were drawn share one identity: each snapshot has its own secret.
        """
        settings, output = self.settings, topology[self.settings.sink.topic]
        drawn, windowed = settings.filter.draws_secret, settings.filter.kind == "window"
        return Identity(
            hash="siphash" if drawn else self.common_hash.name,
            hash_check=DRAWN if drawn else self.common_hash.check,
            key=self.meaning.identity_key,
            normalize=self.meaning.identity_normalize,
            filter={
                **({"table": WINDOW_TABLE} if windowed else {}),
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
