"""Checks of the brokers: versions, features, limits, racks, clocks."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from streamdedup.delivery.leader_clocks import REMEDY as CLOCK_REMEDY
from streamdedup.delivery.leader_clocks import differs
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.doctor.facts import Facts
from streamdedup.doctor.lines import Line, failure, ok, unknown, warning
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.broker_clock import DIFFERENCE_S_MAX, Span, certain_s
from streamdedup.kafka.broker_settings import (
    OFFSETS_KEPT_MINUTES,
    SESSION_MS_MAX,
    SESSION_MS_MIN,
    TRANSACTION_MS_MAX,
)
from streamdedup.kafka.brokers import OLDEST, Broker
from streamdedup.kafka.sink import transaction_timeout_s
from streamdedup.kafka.source import SESSION_TIMEOUT_MS
from streamdedup.metrics.findings import BROKER_AWAY, CLOCK_DIFFERS
from streamdedup.units import counted

STAMPS_S_MAX = 3.0  # how long the clocks' check waits for a transaction of a worker that runs
STAMPS_EVERY_S = 0.2
MEMBERS_S_MAX = 2.0  # for the answer whether a worker runs
PARTITIONS_LOOKED_AT = 16  # of the output, for the stamps of their leaders
_KEPT_MINUTES = 7 * 24 * 60  # Kafka's default
_GRANT = "grant DescribeConfigs on the cluster if you want it checked (docs/security.md)"


async def versions(facts: Facts) -> AsyncIterator[Line]:
    """Whether all brokers answer, and are new enough."""
    found = await facts.brokers()
    for broker in found:
        if broker.failure:
            yield warning(
                f"broker {broker.node} at {broker.address} does not answer ({broker.failure})",
                "look whether it runs and can be reached from here; what it leads is not read or written meanwhile",
                finding=BROKER_AWAY,
            )
    answering = [broker for broker in found if broker.since]
    if not answering:
        yield unknown("no broker states its version", "look at the brokers, and try again")
        return
    oldest = min((broker.since or OLDEST for broker in answering), key=_number)
    what = f"{counted(len(found), 'broker')}, of Kafka {oldest}"
    what += "" if oldest == OLDEST else " or later, by the requests that they take"
    if oldest == OLDEST and facts.written.delivery.exactly_once:
        yield failure(
            f"{what}, and delivery.guarantee: exactly_once needs 2.5",
            "upgrade them, or set delivery.guarantee: at_least_once",
        )
    elif _number(oldest) < (2, 8):
        yield warning(
            f"{what}: they report no topic ids, so a topic that was made again is not noticed",
            "upgrade them to 2.8 or later (results/compatibility.md#older-brokers)",
        )
    elif _number(oldest) < (3, 5):
        yield warning(
            f"{what}: before 3.6 a transaction may hang, and keeps its partition undecided until somebody aborts it",
            "upgrade them to 3.6 or later",
        )
    else:
        yield ok(what)


def _number(version: str) -> tuple[int, ...]:
    return (0,) if version == OLDEST else tuple(map(int, version.split(".")))


async def features(facts: Facts) -> AsyncIterator[Line]:
    """Which features the cluster has in force."""
    found = [broker for broker in await facts.brokers() if not broker.failure]
    if not found:
        yield unknown("no broker answered", "look at the brokers, and try again")
        return
    known = [broker.features for broker in found if broker.features is not None]
    if not known:
        yield ok("the brokers report no features: they have ZooKeeper, or are of before 2.7")
        return
    levels = known[0]
    shown = ", ".join(f"{name} {level}" for name, level in sorted(levels.items()))
    transactions = levels.get("transaction.version", 0)
    yield ok(f"transaction.version is {transactions}" + (f" ({shown})" if shown else ""))


async def limits(facts: Facts) -> AsyncIterator[Line]:
    """Whether the brokers accept our session and transaction time-outs."""
    kafka, reporting = facts.written.kafka, _reporting(await facts.brokers())
    session_ms = int(kafka.consumer.get("session_timeout_ms", SESSION_TIMEOUT_MS))
    transaction_ms = round(transaction_timeout_s(kafka) * 1000)
    least = _most(reporting, SESSION_MS_MIN)
    longest = _least(reporting, SESSION_MS_MAX)
    transaction_most = _least(reporting, TRANSACTION_MS_MAX)
    if least is None and longest is None and transaction_most is None:
        yield unknown("the brokers do not report their limits to us", _GRANT)
        return
    wrong = False
    if least is not None and session_ms < least:
        wrong = True
        yield failure(
            f"kafka.consumer.session_timeout_ms is {session_ms}, and the brokers' {SESSION_MS_MIN} is {least}",
            "raise the former, or lower the latter",
        )
    if longest is not None and session_ms > longest:
        wrong = True
        yield failure(
            f"kafka.consumer.session_timeout_ms is {session_ms}, and the brokers' {SESSION_MS_MAX} is {longest}",
            "lower the former, or raise the latter",
        )
    if transaction_most is not None and transaction_ms > transaction_most:
        wrong = True
        yield failure(
            f"kafka.producer.transaction_timeout_ms is {transaction_ms}, and the brokers' {TRANSACTION_MS_MAX} is"
            f" {transaction_most}, so they would refuse every transaction",
            "lower the former, or raise the latter",
        )
    if not wrong:
        yield ok(
            f"the brokers accept a session of {session_ms / 1000:g} s and a transaction of"
            f" {transaction_ms / 1000:g} s"
        )


async def offsets_kept(facts: Facts) -> AsyncIterator[Line]:
    """How long the brokers keep the offsets of a group that is stopped."""
    kept = _least(_reporting(await facts.brokers()), OFFSETS_KEPT_MINUTES)
    if kept is None:
        yield unknown("the brokers do not report to us how long they keep offsets", _GRANT)
        return
    days = kept / 1440
    if kept < _KEPT_MINUTES:
        again = (
            "and all of the input is read again (nothing in the output is emitted twice)"
            if facts.settings.filter.remembers
            else "and all of the input is emitted again, since there is no filter"
        )
        yield warning(
            f"{OFFSETS_KEPT_MINUTES} is {kept} ({days:.3g} days): if all workers are stopped for longer, the group's"
            f" offsets are deleted, {again}",
            f"raise {OFFSETS_KEPT_MINUTES} of the brokers to 10080 or more",
        )
    else:
        yield ok(f"the offsets of a stopped group are kept for {days:.3g} days")


async def racks(facts: Facts) -> AsyncIterator[Line]:
    """Whether the replicas of the output lie in several racks, if the brokers have some."""
    by_node = {broker.node: broker.rack for broker in await facts.brokers()}
    named = sorted({rack for rack in by_node.values() if rack})
    if len(named) < 2:
        yield ok(
            "the brokers name no racks" if not named else f"all brokers are in rack {named[0]}"
        )
        return
    output = await facts.output()
    alone = [
        number
        for number, replicas in sorted(output.placed.items())
        if len({by_node.get(node) for node in replicas.on}) < 2
    ]
    if alone:
        yield warning(
            f"all replicas of {counted(len(alone), 'partition')} are in one rack (one is {output.name}/{alone[0]}), and"
            f" the brokers are in {len(named)}: if that rack fails, they cannot be written",
            "spread their replicas (kafka-reassign-partitions.sh)",
            output.name,
        )
    else:
        yield ok(f"the replicas of {output.name} are in several of the racks {', '.join(named)}")


async def clock(facts: Facts) -> AsyncIterator[Line]:
    """Whether this machine's clock agrees with the brokers': by the stamps of transactions that end meanwhile."""
    output = await facts.output()
    numbers = sorted(output.placed)[:PARTITIONS_LOOKED_AT] or range(
        min(output.partitions, PARTITIONS_LOOKED_AT)
    )
    writes = False
    with suppress(Exception):  # then it waits for nothing
        async with asyncio.timeout(MEMBERS_S_MAX):
            writes = bool((await facts.in_force(facts.settings.kafka.group_id)).members)
    within_s = STAMPS_S_MAX if writes else 0.0
    found = await facts.once(
        "clocks", lambda cluster: _differences(cluster, output.name, list(numbers), within_s)
    )
    if not found:
        yield unknown(
            "no stamp of a broker was found in the output, so their clocks are not known",
            "run this again while a worker writes",
        )
        return
    certain = {leader: certain_s(span) for leader, span in found.items()}
    differing = {leader: s for leader, s in certain.items() if abs(s) > DIFFERENCE_S_MAX}
    for leader, seconds in differing.items():
        yield warning(
            f"{differs(seconds)} the clock of broker {leader}",
            CLOCK_REMEDY,
            finding=CLOCK_DIFFERS,
        )
    sure = [s for s in found.values() if s.latest - s.earliest < 2 * DIFFERENCE_S_MAX * 1000]
    if not differing and sure:
        yield ok(f"this machine's clock and that of {counted(len(sure), 'broker')} agree")
    elif not differing:
        yield unknown(
            "no transaction ended while this looked: all that is known is that this machine's clock is not behind the"
            " brokers'",
            "run this again while a worker writes",
        )


async def _differences(
    cluster: Cluster, topic: str, numbers: Sequence[int], within_s: float
) -> dict[int, Span]:
    """Return, by leader, by how many ms our clock is ahead of its, as far as stamps in the output prove it.

    This waits up to `within_s` seconds for a stamp that comes meanwhile, which gives both bounds. One that was there
    before gives the least that the leader's clock can show now.
    """
    found: dict[int, Span] = {}
    begun_ms, loop = wall_clock_ms(), asyncio.get_running_loop()
    ends_at = loop.time() + within_s
    before = dict(await cluster.end_offsets(topic, numbers))
    for number, end in before.items():
        stamp = await cluster.stamp(topic, number, max(0, end - 1), end) if end else None
        if stamp is not None:
            now_ms = wall_clock_ms()
            least = found.get(stamp.leader, Span(-_EVER_MS, _EVER_MS))
            found[stamp.leader] = Span(least.earliest, min(least.latest, now_ms - stamp.stamped_ms))
    while loop.time() < ends_at and (not found or _is_open(found)):
        await asyncio.sleep(STAMPS_EVERY_S)
        for number, end in (await cluster.end_offsets(topic, numbers)).items():
            start = before.get(number, end)
            if end <= start:
                continue
            stamp = await cluster.stamp(topic, number, start, end)
            if stamp is not None:
                now_ms = wall_clock_ms()
                found[stamp.leader] = Span(
                    begun_ms - stamp.stamped_ms - 1, now_ms - stamp.stamped_ms
                )
    return found


_EVER_MS = 1 << 60


def _is_open(found: dict[int, Span]) -> bool:
    return any(span.earliest <= -_EVER_MS for span in found.values())


def _reporting(found: Sequence[Broker]) -> list[Broker]:
    return [broker for broker in found if broker.settings is not None]


def _least(found: Sequence[Broker], setting: str) -> int | None:
    return min(_numbers(found, setting), default=None)


def _most(found: Sequence[Broker], setting: str) -> int | None:
    return max(_numbers(found, setting), default=None)


def _numbers(found: Sequence[Broker], setting: str) -> list[int]:
    values = (broker.number(setting) for broker in found)
    return [value for value in values if value is not None]
