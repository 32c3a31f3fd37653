"""Checks of the consumer groups: members, what they go by, offsets, what is unread; and transactions on the input."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from streamdedup.doctor.facts import Extents, Facts, for_each
from streamdedup.doctor.lines import Line, Status, failure, ok, unknown, warning
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.groups import NEWER_REMEDY, SHARE_REMEDY, UNSERVED_REMEDY, InForce
from streamdedup.kafka.offsets import Committed
from streamdedup.kafka.partitions import abort_command
from streamdedup.kafka.topics import Topic
from streamdedup.metrics.findings import (
    FOREIGN_TRANSACTION,
    GROUP_REFUSES,
    INPUT_TRANSACTION,
    MEANING_DIFFERS,
    OTHER_PROTOCOL,
    PARTITIONS_UNSERVED,
    Kind,
)
from streamdedup.settings import Settings
from streamdedup.settings.meaning import Meaning, shown_check, whose
from streamdedup.units import counted, lasting, moment

UNREAD = "group-unread"
SAY_WHY = ("output-writers", "filter-room")  # the checks that find why a partition stands still
SHOWN_MAX = 5  # members in one line
STANDS_S = 4.0  # how long a partition with unread events may commit nothing before it stands still
STANDS_EVERY_S = 0.5


async def members(facts: Facts) -> AsyncIterator[Line]:
    """Who is in the groups, and where."""
    for group in facts.groups:
        found = await facts.in_force(group)
        if found.newer and not found.share:
            yield failure(
                f"{counted(len(found.newer), 'member')} of the new group protocol (KIP-848) took partitions of it:"
                f" {_named(found.newer)}; no worker reads what they take",
                NEWER_REMEDY,
                group,
                OTHER_PROTOCOL,
            )
        if found.share:
            yield failure(
                "it is a share group (KIP-932), which admits no worker, even if it is empty",
                SHARE_REMEDY.format(group=group),
                group,
                GROUP_REFUSES,
            )
        elif found.members:
            yield ok(f"{counted(len(found.members), 'member')}: {_named(found.members)}", group)
        elif not found.newer:
            yield ok("no member: no worker runs", group)


def _named(found: Sequence[str]) -> str:
    more = len(found) - SHOWN_MAX
    return ", ".join(found[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


async def meaning(facts: Facts) -> AsyncIterator[Line]:
    """Whether the members of the group, and its offsets, go by this configuration."""
    group, ours = facts.settings.kafka.group_id, Meaning.of(facts.settings)
    found = await facts.in_force(group)
    wrong = False
    if found.members and found.assignor is None:
        yield unknown(
            "the group rebalances, so the broker does not name what its members go by",
            "run this again when it has settled",
            group,
        )
        return
    if found.assignor not in (None, ours.name):
        wrong = True
        yield failure(
            f"joined by {counted(len(found.members), 'member')} as {found.assignor} ({whose(found.assignor)}), not as"
            f" {ours.name}: it would refuse a worker of this configuration",
            "if this configuration is wrong, correct it; if it is right, stop all of its members (docs/operate.md)",
            group,
            GROUP_REFUSES,
        )
    known = {n: c.note for n, c in (await facts.committed()).items() if c.note}
    others = {
        note.meaning
        for note in known.values()
        if note.meaning is not None and note.meaning not in ours.kin | {ours.check}
    }
    for check in sorted(others):
        wrong = True
        yield failure(
            f"its offsets were committed with the meaning {shown_check(check)}, and this configuration has"
            f" {shown_check(ours.check)}: it has another key, output or middle topic",
            "set that back, or begin with another kafka.group_id and output (docs/operate.md)",
            group,
            MEANING_DIFFERS,
        )
    if not wrong:
        who = "its members and its offsets" if found.members else "its offsets"
        yield ok(f"{who} go by this configuration" if known else "nothing is committed yet", group)


async def offsets(facts: Facts) -> AsyncIterator[Line]:
    """Whether the group's offsets are those of a worker."""
    group, source = facts.settings.kafka.group_id, await facts.source()
    committed = await facts.committed()
    foreign = sorted(number for number, found in committed.items() if found.note is None)
    if not committed:
        yield ok(f"no offset is committed on {source.name}", group)
    elif foreign:
        one = foreign[0]
        yield warning(
            f"{counted(len(foreign), 'offset')} of {len(committed)} on {source.name} without a note of ours (one is"
            f" {committed[one].offset} of {source.name}/{one}): another program, or Kafka's own tool, committed them",
            "none if you moved them on purpose; else give that program another group.id, and move the offsets back by"
            " `streamdedup reset`",
            group,
        )
    else:
        yield ok(f"{counted(len(committed), 'offset')} on {source.name}, all of a worker", group)


async def unread(facts: Facts) -> AsyncIterator[Line]:
    """How much is unread, for how long it has waited, and whether it is read on."""
    for group, topic in await facts.readings():
        async for line in _unread_of(facts, group, await facts.topic(topic)):
            yield line


async def _unread_of(facts: Facts, group: str, source: Topic) -> AsyncIterator[Line]:
    extents = await facts.extents(source.name)
    committed = await facts.committed_on(group, source.name)
    at = {n: committed[n].offset if n in committed else start for n, start in extents.first.items()}
    behind = {n: end - at[n] for n, end in extents.stable.items() if n in at and end > at[n]}
    answered = extents.stable.keys() & extents.first.keys()
    silent = sorted(set(range(source.partitions)) - answered)
    if silent:
        yield unknown(
            f"the leaders of {counted(len(silent), 'partition')} did not answer (one is"
            f" {source.name}/{silent[0]})",
            "look at the brokers, and try again",
        )
    if not behind:
        if not silent:
            yield ok(f"everything in {source.name} is read")
        return
    times = await facts.once(
        f"times of {source.name}",
        lambda cluster: _first_times(cluster, source.name, at, sorted(behind)),
    )
    found = await facts.in_force(group)
    if found.members:
        moved = await facts.once(
            f"movement of {group} on {source.name}",
            lambda cluster: _moved(cluster, group, source.name, committed, sorted(behind)),
        )
        for line in _moving(source.name, behind, times, moved):
            yield line
    elif committed:
        yield warning(
            f"{_waiting(behind, times)}, and the group {group} has no members: nobody reads them",
            "start a worker",
            source.name,
        )
    else:
        yield ok(f"{_waiting(behind, times)}, and no worker has committed yet", source.name)


def _moving(
    topic: str, behind: Mapping[int, int], times: Mapping[int, int], moved: frozenset[int]
) -> Iterator[Line]:
    for number in sorted(behind.keys() - moved):
        yield warning(
            f"{_waiting({number: behind[number]}, times)}, and no offset was committed for {STANDS_S:g} s although the"
            " group has members: the partition stands still",
            "look at /readyz of the worker that has it, or for `shard_stopped`, `filter_full` and `doubt` in its log"
            " (docs/runbook.md)",
            f"{topic}/{number}",
        )
    if moved:
        yield ok(f"{_waiting({n: behind[n] for n in moved}, times)}, and it is read on", topic)


def referred(lines: Iterable[Line], settings: Settings) -> list[Line]:
    """Return the lines of all checks; that of a partition that stands still refers to the failure that says why.

    `settings` are those of the shards.
    """
    lines = list(lines)
    why = {
        line.place: line.check
        for line in lines
        if line.check in SAY_WHY and line.status is Status.FAILURE
    }
    made = list[Line]()
    for line in lines:
        topic, _, number = (line.place or "").rpartition("/")
        check = why.get(f"{settings.sink.topic}/{number}")
        if line.check == UNREAD and topic == settings.source.topic and check:
            made.append(replace(line, remedy=f"see the line of {check}"))
        else:
            made.append(line)
    return made


def _waiting(behind: Mapping[int, int], times: Mapping[int, int]) -> str:
    """Return how much is unread, in all and by partition, and since when; `times` are of the first unread events."""
    oldest = min((times[n] for n in behind if n in times), default=None)
    since = ""
    if oldest is not None:
        since = f", the oldest of {moment(oldest)} ({lasting(time.time() * 1000 - oldest)} ago)"
    shown = ""
    if len(behind) > 1:
        most = sorted(behind, key=lambda n: (-behind[n], n))[:SHOWN_MAX]
        each = (f"{n}: {behind[n]:,}{_age(times.get(n))}" for n in most)
        shown = f" (by partition, the most first: {', '.join(each)})"
    return f"{counted(sum(behind.values()), 'offset')} unread{since}{shown}"


def _age(time_ms: int | None) -> str:
    """Return for how long the first unread event of a partition has waited, after its number of offsets."""
    return "" if time_ms is None else f" for {lasting(time.time() * 1000 - time_ms)}"


async def _first_times(
    cluster: Cluster, topic: str, at: Mapping[int, int], numbers: Sequence[int]
) -> dict[int, int]:
    """Return the time of the first unread record batch of each partition, ms since 1970, if it has one."""
    found = await for_each(numbers, lambda n: cluster.batch_at(topic, n, at[n]))
    return {n: batch.stamped_ms for n, batch in found.items() if batch and batch.stamped_ms >= 0}


async def _moved(
    cluster: Cluster,
    group: str,
    topic: str,
    before: Mapping[int, Committed],
    numbers: Sequence[int],
) -> frozenset[int]:
    """Return for which of the partitions an offset was committed meanwhile."""
    loop = asyncio.get_running_loop()
    ends_at, left = loop.time() + STANDS_S, set(numbers)
    while left and loop.time() < ends_at:
        await asyncio.sleep(STANDS_EVERY_S)
        now = await cluster.committed_all(group, topic, sorted(left), stable=False)
        left -= {
            n for n, found in now.items() if n not in before or found.offset != before[n].offset
        }
    return frozenset(numbers) - left


async def unserved(facts: Facts) -> AsyncIterator[Line]:
    """Whether each partition has a member that reads it."""
    topics = dict[str, list[str]]()
    for group, topic in await facts.readings():
        topics.setdefault(group, []).append(topic)
    for group, read in topics.items():
        found: InForce = await facts.in_force(group)
        if not (found.members or found.newer):
            yield ok("no worker runs", group)
        elif found.assigned is None:
            yield unknown(
                "the broker does not name the partitions of the members: the group rebalances, or is of another"
                " protocol",
                "run this again when it has settled",
                group,
            )
        else:
            known = [await facts.topic(name) for name in read]
            every = {(topic.name, number) for topic in known for number in range(topic.partitions)}
            yield _served(group, every, found.assigned)


def _served(group: str, every: set[tuple[str, int]], assigned: frozenset[tuple[str, int]]) -> Line:
    left = sorted(every - assigned)
    if not left:
        return ok(f"all of {counted(len(every), 'partition')} have a member", group)
    topic, number = left[0]
    return warning(
        f"no member of the group has {counted(len(left), 'partition')}, so nobody reads them (one is {topic}/{number})",
        UNSERVED_REMEDY,
        group,
        PARTITIONS_UNSERVED,
    )


async def transactions(facts: Facts) -> AsyncIterator[Line]:
    """Whether a transaction of others is open on the input, or on the output, for longer than it should be."""
    read = [(topic, INPUT_TRANSACTION) for _, topic in await facts.readings()]
    for topic, finding in (*read, (facts.settings.sink.topic, FOREIGN_TRANSACTION)):
        if topic not in (await facts.topology()).topics:
            continue
        extents = await facts.extents(topic)
        async for line in _open_on(facts, topic, extents, finding):
            yield line


async def _open_on(
    facts: Facts, topic: str, extents: Extents, finding: Kind
) -> AsyncIterator[Line]:
    held = {n: stable for n, stable in extents.stable.items() if stable < extents.end.get(n, 0)}
    firsts = await facts.once(
        f"open on {topic}",
        lambda cluster: for_each(sorted(held), lambda n: cluster.batch_at(topic, n, held[n])),
    )
    after_s, is_lasting = facts.settings.delivery.open_transaction_s, False
    for number, first in firsts.items():
        age_s = time.time() - first.stamped_ms / 1000 if first else 0.0
        if first is None or age_s < after_s:
            continue
        is_lasting = True
        kind = warning if finding == INPUT_TRANSACTION else failure
        yield kind(
            f"a transaction of producer id {first.producer_id}, epoch {first.epoch}, is open from offset"
            f" {held[number]} on, its first event of {moment(first.stamped_ms)}: nothing above it is read",
            f"have its producer end it, or abort it: {abort_command(topic, number, held[number])}",
            f"{topic}/{number}",
            finding,
        )
    if not is_lasting:
        yield ok(f"no transaction is open for longer than {after_s:g} s", topic)
