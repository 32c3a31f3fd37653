"""`streamdedup try`: what the configuration would do to the newest events of the input.

It joins no group and writes nothing. Duplicates are found among the events that are read, partition by partition,
exactly, whatever the worker's filter is. A window forgets, and has late events, as in the worker; it begins with the
first event that is read.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamdedup.commands.fit import Fit, Seen
from streamdedup.commands.window_trial import WindowTrial
from streamdedup.delivery.cross_partition import REMEDY, Evidence, record_keys_matter, suspicion
from streamdedup.delivery.emit import refused_by
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import FRAMED_REMEDY, framed, registry_answering
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.delivery.shard import verdicts_without_rules
from streamdedup.delivery.turns import keys_of
from streamdedup.delivery.window_time import clock_of
from streamdedup.errors import ConfigError
from streamdedup.events import EventBatch, Verdict
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster, Connect
from streamdedup.kafka.broker_clock import Span
from streamdedup.kafka.cluster import UNANSWERED, kafka_cluster, soon
from streamdedup.kafka.header_limits import within_limits
from streamdedup.kafka.limits import Limits
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.retention import shortfall
from streamdedup.kafka.topics import Topology, refuse_missing
from streamdedup.keys.extract import Keys
from streamdedup.keys.field_names import FieldNames, Named
from streamdedup.keys.formats.json_kinds import without_place
from streamdedup.keys.hashing import MURMUR3, Hash
from streamdedup.metrics.counts import Meters
from streamdedup.metrics.prevalence import EVENTS_MIN, SHARE_MIN, WATCHED
from streamdedup.repartition.inputs import topics_of
from streamdedup.repartition.middle import other_partitions
from streamdedup.repartition.offsets import partitions_of
from streamdedup.rules.lists import Answer, ListsInForce, Match
from streamdedup.settings import Settings
from streamdedup.settings.stages import deduplicating
from streamdedup.threads import Threads
from streamdedup.units import escaped
from streamdedup.worker.lists import ListLoader

_OF_A_FIELD = "the field "  # in a reason
EVENTS_MAX = 1_000_000  # some 400 MB
STALL_S_MAX = 10.0
REPARTITIONED = (
    "source.repartition is set, so a key counts once, in whichever partitions its events are"
)
NO_WINDOW = (
    "source.repartition is set, so the window of a partition there is not known: keys that come again after"
    " filter.retention count as duplicates, and none as late"
)
UNTESTED = (
    "keys are compared by a hash of this run's own: with filter.hash: murmur3, a worker also drops events whose keys"
    " somebody chose to collide, which is not tested here; only an audit finds them"
)


@dataclass
class Trial:
    """The result. `reasons` are those of malformed and rejected events, without the byte that one names.

    `first` has the first event of each reason, and how its own reason goes on with that byte.

    `matched` counts the events that the blocklist blocks, by what it matched; `exempt` those that the allowlist lets
    pass; `false_positives` those that its exact store lets pass. `late` counts the events that are older than the
    window, which drops them if `late_drop`. `in_several` counts the keys that come in several partitions, and `unseen`
    the events that pass for that reason. `without_record_key` counts events, and `under_several` keys that come under
    several record keys; both are 0 if record keys do not matter. `fit` compares the keys with the filter, if that can
    be too small. `fields` names the fields that many events have; None unless an event is malformed by a field.
    """

    topic: str
    partitions: int
    topics: int = 1
    events: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[str, int, int, str]] = field(default_factory=dict)
    matched: Counter[str] = field(default_factory=Counter)
    exempt: int = 0
    false_positives: int = 0
    late: int = 0
    late_drop: bool = False
    keyed: int = 0
    distinct: int = 0
    in_several: int = 0
    unseen: int = 0
    without_record_key: int = 0
    under_several: int = 0
    fit: Fit | None = None
    fields: Named | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def evidence(self) -> Evidence | None:
        """What is known of keys in several partitions; None if there are none, or if no duplicates are dropped."""
        if not self.unseen:
            return None
        duplicates = self.unseen + self.verdicts[Verdict.DUPLICATE]
        return Evidence(self.distinct, self.in_several, self.unseen / duplicates)

    @property
    def is_odd(self) -> bool:
        """Whether an outcome, or a key, has so many of the events that the configuration is probably wrong."""
        share = max(EVENTS_MIN, SHARE_MIN * self.events)
        prevails = self.late >= share or any(self.verdicts[verdict] >= share for verdict in WATCHED)
        return prevails or (self.fit is not None and self.fit.has_odd_keys)

    @property
    def suspicion(self) -> str | None:
        """Why partitions were perhaps not chosen by the key; None if the record keys raise no doubt."""
        return suspicion(self.keyed, self.without_record_key, self.under_several)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON values."""
        reasons = [
            {
                "reason": reason,
                "events": events,
                "topic": topic,
                "partition": partition,
                "offset": offset,
            }
            for reason, events in self.reasons.most_common()
            for topic, partition, offset, _ in [self.first[reason]]
        ]
        return {
            "topic": self.topic,
            "partitions": self.partitions,
            "events": self.events,
            "verdicts": {verdict.name.lower(): self.verdicts[verdict] for verdict in Verdict},
            "reasons": reasons,
            "fields": self.fields and self.fields.names,
            "blocked_by": {
                match.name.lower(): self.matched[match.name.lower()] for match in Match if match
            },
            "exempt": self.exempt,
            "false_positives": self.false_positives,
            "late": self.late,
            "distinct_keys": self.distinct,
            "keys_in_several_partitions": self.in_several,
            "duplicates_across_partitions": self.unseen,
            "events_without_record_key": self.without_record_key,
            "keys_with_several_record_keys": self.under_several,
            "fit": self.fit and self.fit.as_json(),
            "notes": self.notes,
        }

    def as_text(self) -> str:
        """Return the same for a person."""
        if not self.events:
            return f"{self.topic} holds no events\n"
        lines = [
            f"the newest {self.events:,} events of {self.topic}, of {self.partitions} partitions:"
        ]
        lines += [
            f"  {verdict.name.lower():<10}{count:>11,}{count / self.events:>8.1%}"
            for verdict in Verdict
            if (count := self.verdicts[verdict])
        ]
        for reason, events in self.reasons.most_common():
            topic, partition, offset, byte = self.first[reason]
            of = f" of {topic}" if self.topics > 1 else ""
            lines.append(
                f"  {events:,} times: {reason}; first at partition {partition}{of}, offset {offset}{byte}"
            )
        if self.fields is not None:
            lines.append(f"fields that a tenth of the events have: {self.fields}")
        lines.append(f"distinct keys: {self.distinct:,}")
        if self.fit:
            lines += self.fit.lines()
        if self.matched:
            lines.append(
                "blocked by: "
                + ", ".join(f"{name} {count:,}" for name, count in sorted(self.matched.items()))
            )
        if self.exempt:
            lines.append(f"matched by the blocklist and exempted by the allowlist: {self.exempt:,}")
        if self.false_positives:
            lines.append(f"matched by the blocklist but not on it: {self.false_positives:,}")
        if self.late:
            what = "blocked, as filter.late: drop asks" if self.late_drop else "passed"
            lines.append(f"later than the window, and {what}: {self.late:,}")
        if self.in_several:
            lines.append(f"keys in several partitions: {self.in_several:,}")
        if evidence := self.evidence:
            lines.append(f"warning: {evidence.text}; {REMEDY}")
        if suspected := self.suspicion:
            lines.append(
                f"warning: {suspected}; if yours does not choose it by the key alone, {REMEDY}"
            )
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(map(escaped, lines)) + "\n"


async def tried(settings: Settings, events: int, connect: Connect = kafka_cluster) -> Trial:
    """Judge the newest events of the input, at most `events` in all, evenly from all partitions.

    If a partition has fewer, those that follow give more.
    ConfigError if the input is missing. DeliveryError if the broker refuses us or does not answer.
    """
    async with soon(connect, settings.kafka, UNANSWERED) as cluster:
        return await _Trying(settings, cluster).run(events)


class _Trying:
    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self._settings, self._cluster = settings, cluster
        self._lists, self._threads, self._seen = ListsInForce(), Threads(), Seen()
        self._partitions_of: dict[bytes, set[tuple[str, int]]] = {}  # by digest
        self._record_of: dict[bytes, int | None] = {}  # the same; None if it came under several
        self._windows: dict[tuple[str, int], WindowTrial] = {}

    async def run(self, events: int) -> Trial:
        sink = self._settings.sink.topic
        async with asyncio.timeout(ANSWER_S_MAX):
            options = self._settings.source.repartition
            middle = [options.topic] if options else []
            sources = await topics_of(self._settings, self._cluster)
            topology = await self._cluster.describe([*sources, sink, *middle])
            for source in sources:
                refuse_missing(topology, source, [source], self._settings.source.option)
        if options and options.topic in topology.topics:
            problems = other_partitions(topology[options.topic], options.partitions)
            if problems:
                raise ConfigError("\n".join(problems))
        partitions = partitions_of(topology, sources)
        count = len(partitions)
        recipe = Recipe(self._settings, count)
        self._hash, self._extractor = Hash.draw(), recipe.extractor()
        self._names = FieldNames(self._extractor) if self._settings.key.paths else None
        await registry_answering(recipe)
        self._repartitions = self._settings.source.repartition is not None
        self._clock = clock_of(recipe)
        matter = record_keys_matter(self._settings.key, count)
        self._record_keys_matter = matter and not self._repartitions
        lists = ListLoader(
            recipe, self._cluster, self._lists, meters=Meters(), threads=self._threads
        )
        await lists.begin()
        self._limits = self._limits_of(topology)
        found = Trial(
            self._settings.source.shown,
            count,
            len(sources),
            late_drop=self._settings.filter.late == "drop",
        )
        if self._settings.filter.remembers and self._settings.filter.hash == MURMUR3.name:
            found.notes.append(UNTESTED)
        if self._repartitions:
            found.notes.append(REPARTITIONED)
            if self._clock:
                found.notes.append(NO_WINDOW)
        if (output := topology.topics.get(sink)) and (
            short := shortfall(output, self._settings.filter.remembered_ms)
        ):
            found.notes.append(f"{short.reason}; {short.remedy}")
        for left, partition in zip(range(count, 0, -1), partitions, strict=True):
            # Rounded up, of what is left: a partition gives more if those before it had too few.
            if share := -((found.events - events) // left):
                await self._partition(found, partition, share, left)
        second = deduplicating(self._settings) if self._repartitions else self._settings
        found.fit = self._seen.fit(second.filter)
        if self._names and any(_OF_A_FIELD in reason for reason in found.reasons):
            found.fields = self._names.common()
        found.under_several = sum(record is None for record in self._record_of.values())
        found.distinct = len(self._partitions_of)
        found.in_several = sum(len(places) > 1 for places in self._partitions_of.values())
        return found

    def _limits_of(self, topology: Topology) -> Limits | None:
        """Return the limits of the output, if it exists already."""
        sink = self._settings.sink
        if sink.topic not in topology.topics:
            return None
        return Limits.of(topology[sink.topic], sink.compression)

    async def _partition(
        self, found: Trial, partition: InputPartition, events: int, left: int
    ) -> None:
        """Judge at most `events` events of one of the `left` partitions that are left."""
        topic, number = partition
        async with asyncio.timeout(ANSWER_S_MAX):
            end = await self._cluster.stable_offset(topic, number)
            start = max(await self._cluster.first_offset(topic, number), end - events)
        if self._names:
            self._names.spread(end - start, left)
        reading = self._cluster.committed_events(topic, number, start, end, stall_s=STALL_S_MAX)
        async with aclosing(reading) as batches:
            async for batch in batches:
                for part in batch.parts(self._extractor.rows_a_turn):
                    bounded, above = within_limits(part, self._settings.source)
                    self._judge(
                        found,
                        bounded,
                        await keys_of(bounded, self._extractor, self._threads.keys),
                        above,
                    )

    def _judge(self, found: Trial, batch: EventBatch, keys: Keys, above: Mapping[int, str]) -> None:
        limits, present = self._limits, Span.at(wall_clock_ms())
        if self._names:
            self._names.add(batch)
        if not found.events and (warning := framed(batch, self._extractor)):
            found.notes.append(f"{warning}; {FRAMED_REMEDY}")
        rejected = refused_by(limits, self._settings, batch, keys, present) if limits else {}
        rejected |= {**above, **keys.unknown}
        reasons = keys.malformed | rejected
        verdicts, rows = verdicts_without_rules(keys, list(rejected))
        column = keys.keys.take(rows)
        digests = self._hash.of_column(column)
        blocked = self._lists.now.screen(rows, column, digests, self._hash)
        verdicts[blocked.rows] = Verdict.BLOCKED
        found.matched.update(Match(match).name.lower() for match in blocked.matches.tolist())
        found.exempt += len(blocked.exempt)
        found.false_positives += int(
            np.count_nonzero(blocked.verified.answers == Answer.FALSE_POSITIVE)
        )
        judged = verdicts[rows] != Verdict.BLOCKED
        empty = int(np.count_nonzero(column.sizes[judged] == 0))
        self._seen.add(batch, rows[judged], digests[judged], empty)
        remembers, here = self._settings.filter.remembers, (batch.topic, batch.partition)
        window, times = self._window(here), batch.timestamps[rows].tolist()
        for row, time, digest in zip(rows.tolist(), times, digests, strict=True):
            if verdicts[row] == Verdict.BLOCKED:
                continue
            found.keyed += 1
            places = self._partitions_of.setdefault(digest.tobytes(), set())
            if window:
                passes, is_late = window.judge(digest.tobytes(), time)
                found.late += is_late
                if not passes:
                    verdicts[row] = Verdict.BLOCKED if is_late else Verdict.DUPLICATE
            elif remembers and (here in places or (places and self._repartitions)):
                verdicts[row] = Verdict.DUPLICATE
            if here not in places and places and remembers and not self._repartitions:
                found.unseen += 1
            places.add(here)
            if self._record_keys_matter and remembers:
                self._compare_record(found, digest.tobytes(), batch.keys[row])
        self._count(found, batch, verdicts.tolist(), reasons)

    def _window(self, here: tuple[str, int]) -> WindowTrial | None:
        """Return the window of a partition; None without one, or if events of other partitions come to it."""
        if self._clock is None or self._repartitions:
            return None
        if here not in self._windows:
            options = self._settings.filter
            self._windows[here] = WindowTrial(
                self._clock, late_passes=options.late == "pass", refresh=options.refresh
            )
        return self._windows[here]

    def _compare_record(self, found: Trial, digest: bytes, record_key: bytes | None) -> None:
        found.without_record_key += record_key is None
        record = -1 if record_key is None else self._hash.digest(record_key)[0]
        if self._record_of.setdefault(digest, record) != record:
            self._record_of[digest] = None

    def _count(
        self, found: Trial, batch: EventBatch, verdicts: list[int], reasons: dict[int, str]
    ) -> None:
        found.events += len(batch)
        found.verdicts.update(map(Verdict, verdicts))
        for row, reason in reasons.items():
            what = without_place(reason)
            found.reasons[what] += 1
            place = batch.topic, batch.partition, int(batch.offsets[row])
            found.first.setdefault(what, (*place, reason.removeprefix(what)))
