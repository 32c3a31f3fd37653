"""Checks of the output: who else writes there, where a start would resume, and whether there is room in the filters."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.resume import (
    PartitionState,
    check_memory,
    differs,
    growth,
    input_offset,
    is_outlived,
)
from streamdedup.delivery.second_writer import ForeignRange, second_writer
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.doctor.facts import Extents, Facts, for_each, in_thread
from streamdedup.doctor.lines import Line, failure, of_error, ok, unknown, warning
from streamdedup.errors import DeliveryError, SnapshotError
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.offsets import Committed, UndecidedError
from streamdedup.kafka.topics import Topic, Topology
from streamdedup.metrics.findings import BEYOND_CAPACITY, FILTER_FULL, OUTPUT_SHARED, SECOND_WRITER
from streamdedup.settings import Settings
from streamdedup.snapshot.header import Identity, Log
from streamdedup.snapshot.store import Store
from streamdedup.units import counted

STALL_S = 8.0
UNDECIDED_S_MAX, UNDECIDED_EVERY_S = 4.0, 0.05  # while a worker commits its offsets
COUNTED_MAX = 200_000  # events of one partition that are counted, for a filter that may be full
GROWN_SURELY = 7  # times the keys that a filter may have, if filter.max_size is not set
SHOWN_MAX = 5  # groups that are named
_DO_NOT_WRITE = "stop it, or give it an output of its own"


class _Written(NamedTuple):
    """The output's stable ends, and the labels of our commits, which were read after them; both by partition."""

    stable: Mapping[int, int]
    labels: Mapping[int, int]


async def writers(facts: Facts) -> AsyncIterator[Line]:
    """Whether somebody else has written to the output since our last commit."""
    output = await facts.output()
    if not facts.settings.delivery.exactly_once:
        yield unknown(
            "with delivery.guarantee: at_least_once, events after the last commit may be ours, so which are foreign is"
            " not known",
            "a worker reads them as its own; keep other producers off by rights (docs/security.md)",
            output.name,
        )
        return
    try:
        written = await _written(facts, output)
    except UndecidedError:
        yield unknown(
            "a transaction is being committed, so what belongs to it is not known yet",
            "run this again; if it stays so, see the line of open-transactions",
            output.name,
        )
        return
    errors = await _second_writers(facts, output, written)
    for number, error in errors.items():
        for line in of_error(error, f"{output.name}/{number}"):
            yield replace(line, finding=SECOND_WRITER)
    nobodys = [n for n, end in sorted(written.stable.items()) if end and n not in written.labels]
    if nobodys:
        emitted = ": their keys count as emitted" if facts.settings.filter.remembers else ""
        yield unknown(
            f"{counted(len(nobodys), 'partition')} with events, and without a commit of this group on it (one is"
            f" {output.name}/{nobodys[0]}), so whose they are is not known{emitted}",
            "if they are not of former workers of this deployment, name another sink.topic",
            output.name,
        )
    elif not written.labels:
        yield ok("it is empty, and nothing is committed yet", output.name)
    elif not errors:
        seen = counted(len(written.labels), "partition")
        yield ok(f"nobody else has written since our last commit (seen for {seen})", output.name)


async def _written(facts: Facts, output: Topic) -> _Written:
    """Return what our last commits say. UndecidedError if a transaction is being committed for UNDECIDED_S_MAX."""
    source, group = await facts.source(), facts.settings.kafka.group_id
    numbers = range(min(source.partitions, output.partitions))

    async def ask(cluster: Cluster) -> _Written:
        ends_at = time.monotonic() + UNDECIDED_S_MAX
        while True:
            stable = await cluster.stable_offsets(output.name, numbers)
            with suppress(UndecidedError):
                found = await cluster.committed_all(group, source.name, numbers, stable=True)
                return _Written(stable, _labels(found, output))
            if time.monotonic() > ends_at:
                raise UndecidedError(f"an offset of the group {group} stays undecided")
            await asyncio.sleep(UNDECIDED_EVERY_S)

    return await facts.once("written", ask)


def _labels(committed: Mapping[int, Committed], output: Topic) -> dict[int, int]:
    """Return the labels of the commits that were atomic with this output."""
    notes = {n: one.note for n, one in committed.items() if one.note and one.note.atomic}
    ours = {n: note for n, note in notes.items() if not differs(note.output_id, output.topic_id)}
    return {n: note.label for n, note in ours.items()}


async def _second_writers(
    facts: Facts, output: Topic, written: _Written
) -> dict[int, DeliveryError]:
    """Return the error by which a worker would stop, of each partition with a foreign event above our label."""
    stable, labels = written
    above = sorted(n for n, label in labels.items() if label < stable.get(n, 0))

    async def ask(cluster: Cluster, number: int) -> DeliveryError | None:
        label, end = labels[number], stable[number]
        offset = await _first_event(cluster, output.name, number, label, end)
        if offset is None:
            return None
        return await _second_writer(cluster, output.name, number, offset, end, ours_at=label - 2)

    found = await facts.once(
        "foreign events", lambda cluster: for_each(above, partial(ask, cluster))
    )
    return {number: error for number, error in found.items() if error is not None}


async def _first_event(
    cluster: Cluster, output: str, partition: int, start: int, end: int
) -> int | None:
    """Return the offset of the first committed event from `start` to `end` (exclusive); None if there is none."""
    reading = cluster.committed_events(output, partition, start, end, stall_s=STALL_S)
    async with aclosing(reading) as batches:
        async for batch in batches:
            if len(batch):
                return int(batch.offsets[0])
    return None


async def _second_writer(
    cluster: Cluster, output: str, partition: int, offset: int, end: int, *, ours_at: int
) -> DeliveryError:
    """Return the error by which a worker stops there. Our last event is at the offset `ours_at`, before the marker."""
    ours = await cluster.producer_at(output, partition, ours_at) if ours_at >= 0 else None
    foreign = ForeignRange(offset, end, -1 if ours is None else ours)
    return await second_writer(cluster, output, partition, offset, foreign)


async def deployments(facts: Facts) -> AsyncIterator[Line]:
    """Whether the workers of another group write to this output."""
    output, ours = await facts.output(), set(facts.groups)
    if output.topic_id is None:
        yield unknown(
            "the brokers report no topic ids, by which other deployments are found",
            "upgrade them to 2.8 or later, or make sure that no other group has this output",
            output.name,
        )
        return
    topic_id = output.topic_id
    groups = await facts.once("writers", lambda cluster: cluster.writers(topic_id, ours))
    if not groups:
        source = facts.settings.source.topic
        listed = await facts.once("lists", lambda cluster: cluster.groups_on(source, ours))
        if listed is None:
            yield unknown(
                "we may not list all groups, so whether another one has written to it is not known",
                "grant Describe on the cluster if you want it checked (docs/security.md)",
                output.name,
            )
        else:
            yield ok("no other group has written to it", output.name)
        return
    active = dict[str, tuple[str, ...]]()
    for group in sorted(groups)[:SHOWN_MAX]:
        found = await facts.in_force(group)
        if members := (*found.members, *found.newer)[:SHOWN_MAX]:
            active[group] = members
    for group, members in active.items():
        yield failure(
            f"the group {group}, with {', '.join(members)}, writes to it, too: each deployment fences the other",
            _DO_NOT_WRITE,
            output.name,
            OUTPUT_SHARED,
        )
    if not active:
        yield warning(
            f"another group has written to it before (the group {'; the group '.join(sorted(groups)[:SHOWN_MAX])}), and"
            " has no members now",
            "make sure that its workers do not come back with this sink.topic",
            output.name,
            OUTPUT_SHARED,
        )


class _State(NamedTuple):
    """What a start would find of one partition: as the brokers report it, and the labels of the snapshots here."""

    found: PartitionState
    labels: Sequence[int]


async def resume(facts: Facts) -> AsyncIterator[Line]:
    """Whether each partition could go on after a start: offsets, ends of the logs, snapshots."""
    source, settings = await facts.source(), facts.settings
    into, out = await facts.extents(source.name), await facts.extents(settings.sink.topic)
    answering = into.first.keys() & into.end.keys() & out.first.keys() & out.end.keys()
    known = [number for number in range(source.partitions) if number in answering]
    wrong, snapshots = set[int](), 0
    for number in known:
        state = await _state(facts, number, into, out)
        snapshots += bool(state.labels)
        for line in _problems(facts, await facts.topology(), state.found, state.labels):
            wrong.add(number)
            yield line
    if silent := source.partitions - len(known):
        yield unknown(
            f"{counted(silent, 'partition')} whose leaders did not answer",
            "look at the brokers, and try again",
        )
    if not wrong and known:
        trimmed = max(out.first[number] for number in known)
        at = f"; snapshots of {snapshots} of them are in {settings.snapshot.directory} on this machine"
        at += f", and the output is trimmed up to offset {trimmed:,} at most" if trimmed else ""
        yield ok(
            f"{counted(len(known), 'partition')} can go on"
            + (at if settings.filter.remembers else "")
        )


async def _state(facts: Facts, number: int, into: Extents, out: Extents) -> _State:
    """Return what a start would find of a partition, of which the ends in input and output are known."""
    source, topology = await facts.source(), await facts.topology()
    committed = await facts.committed()
    own = committed.get(number)
    note = own.note if own else None
    notes = {n: one.note for n, one in committed.items() if one.note}
    labels, newest, exists = await in_thread(
        partial(_snapshots, facts.settings, topology, number, note.floor if note else None)
    )
    found = PartitionState(
        committed=own,
        cluster_id=topology.cluster_id,
        input_id=source.topic_id,
        output_id=(await facts.output()).topic_id,
        input_start=into.first[number],
        input_end=into.end[number],
        output_start=out.first[number],
        output_end=out.end[number],
        has_memory=exists,
        partition=number,
        partitions=source.partitions,
        others={} if note else notes,
        snapshots=[newest] if newest and not note else [],
    )
    return _State(found, labels)


def _snapshots(
    settings: Settings, topology: Topology, number: int, floor: int | None
) -> tuple[list[int], Log | None, bool]:
    """Return the labels of the snapshots that fit, newest first; what the newest says of its log; whether one exists.

    This blocks.
    """
    if not settings.filter.remembers:
        return [], None, False
    store = Store(
        settings.snapshot.directory,
        group=settings.kafka.group_id,
        topic=settings.sink.topic,
        partition=number,
        keep=settings.snapshot.keep,
    )
    identity: Identity = Recipe(settings, topology[settings.source.topic].partitions).identity(
        topology, number, floor
    )
    with suppress(SnapshotError):
        return store.labels(identity), store.newest_log(), store.exists()
    return [], None, True


def _problems(
    facts: Facts, topology: Topology, found: PartitionState, labels: Sequence[int]
) -> list[Line]:
    """Return what would stop the partition at a start, or what it would warn of."""
    settings, lines = facts.settings, list[Line]()
    place = f"{settings.source.topic}/{found.partition}"
    try:
        if moved := growth(found, settings.source):
            lines.append(warning(moved, "none: source.on_growth is accept", place))
        input_offset(found, settings.source, settings.sink, remembers=settings.filter.remembers)
        if settings.filter.remembers:
            lines += _gap(settings, topology, found, labels, place)
    except DeliveryError as error:
        lines += of_error(error, place)
    return lines


def _gap(
    settings: Settings,
    topology: Topology,
    found: PartitionState,
    labels: Sequence[int],
    place: str,
) -> list[Line]:
    """Return the warning if keys are missing, and the operator accepts it. DeliveryError if not."""
    usable = [label for label in labels if label <= found.output_end]
    label = max(usable, default=found.floor or 0)
    options, output = settings.filter, topology[settings.sink.topic]
    watermark = found.note.watermark if found.note else None
    outlived = options.by_event_time and is_outlived(
        output, wall_clock_ms(), watermark, options.window_ms
    )
    search = (
        f"the newest in {settings.snapshot.directory} on this machine reaches up to {label}"
        if usable
        else f"none that fits is in {settings.snapshot.directory} on this machine"
    )
    accepted = check_memory(label, found, settings.sink, outlived=outlived, search=search)
    return [warning(accepted, "none: sink.on_gap is accept", place)] if accepted else []


async def room(facts: Facts) -> AsyncIterator[Line]:
    """Whether the filter of each partition still has room, by what the output holds."""
    options, output = facts.settings.filter, await facts.output()
    if not options.remembers:
        yield ok("there is no filter", output.name)
        return
    if options.kind == "window":
        yield unknown(
            "a window forgets, so the output does not show how full it is",
            "see the line of sample-capacity, and the metrics streamdedup_filter_*",
            output.name,
        )
        return
    recipe, held = await facts.recipe(), await _held(facts, output)
    if not held:
        yield unknown("no leader of it answered", "look at the brokers, and try again", output.name)
        return
    most = recipe.shard_capacity
    fullest = max(held, key=lambda n: held[n].offsets)
    offsets = held[fullest].offsets
    said = f"{output.name}/{fullest} holds {offsets:,} offsets, and its filter is for {most:,} keys"
    if options.on_full == "grow":
        if offsets < most * (1 if options.max_size else GROWN_SURELY):
            yield ok(f"{said} and grows", output.name)
        else:
            yield unknown(
                f"{said} and grows: how far it can (filter.max_size) is not seen from here",
                "look at the metrics streamdedup_filter_* of the worker",
                output.name,
            )
        return
    over = [n for n in sorted(held) if held[n].offsets >= most]
    counts = await facts.once(
        "emitted events",
        lambda cluster: for_each(over, lambda n: _events(cluster, output.name, n, held[n], most)),
    )
    full = {n: events for n, events in counts.items() if events is None or events >= most}
    for number, events in full.items():
        yield _full(recipe, f"{output.name}/{number}", events)
    if not full:
        yield ok(said, output.name)


class _Held(NamedTuple):
    """What counts as emitted in a partition of the output: the offsets from `start` to `end` (exclusive)."""

    start: int
    end: int

    @property
    def offsets(self) -> int:
        """How many offsets there are; markers and aborted events have some, too."""
        return max(0, self.end - self.start)


async def _held(facts: Facts, output: Topic) -> dict[int, _Held]:
    extents, committed = await facts.extents(output.name), await facts.committed()
    floors = {
        n: one.note.floor or 0
        for n, one in committed.items()
        if one.note and not differs(one.note.output_id, output.topic_id)
    }
    numbers = range((await facts.source()).partitions)
    return {
        n: _Held(max(extents.first[n], floors.get(n, 0)), extents.stable[n])
        for n in numbers
        if n in extents.first and n in extents.stable
    }


def _full(recipe: Recipe, place: str, events: int | None) -> Line:
    options, most = recipe.settings.filter, recipe.shard_capacity
    if events is None:
        return unknown(
            f"it holds as many offsets as its filter is for keys ({most:,}), and too many to be counted here",
            "look at the metrics streamdedup_filter_* of the worker",
            place,
        )
    said = f"it holds {events:,} events or more, and its filter is for {most:,} keys"
    if options.on_full == "stop" or options.kind == "exact":
        return failure(
            f"{said}: the partition is full, and stops (filter.on_full: {options.on_full})",
            recipe.remedy(),
            place,
            FILTER_FULL,
        )
    return warning(
        f"{said}: it goes on beyond its capacity, and drops more new events wrongly than filter.error_rate"
        f" ({options.error_rate:g}) says",
        recipe.remedy(),
        place,
        BEYOND_CAPACITY,
    )


async def _events(
    cluster: Cluster, output: str, partition: int, held: _Held, most: int
) -> int | None:
    """Return how many events count as emitted, up to `most` and a little more; None if `most` is above COUNTED_MAX."""
    if most > COUNTED_MAX:
        return None
    events = 0
    reading = cluster.committed_events(output, partition, held.start, held.end, stall_s=STALL_S)
    async with aclosing(reading) as batches:
        async for batch in batches:
            events += len(batch)
            del batch
            if events >= most:
                break
    return events
