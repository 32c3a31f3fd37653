"""Runs the checks side by side, each for at most ANSWER_S_MAX, and collects their lines.

The sample comes last: to judge events takes this process's time, which must not hold up the answers of others.
"""

# How to add a check (paths are below `streamdedup/`, unless they begin with another folder)
#
# 1. A function that yields lines, in the module of what it looks at: brokers, topics, rights, groups, output, machine,
#    or sample. What it asks of brokers it asks through `facts`, so that it is asked once and hangs alone. What cannot
#    be found out is `unknown`.
# 2. Its line in CHECKS, or in OF_SAMPLE: id, what it looks at, and whether it asks brokers.
# 3. A test that causes it, in tests/doctor. `make docs` writes the table of docs/doctor.md.

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import structlog

from streamdedup.doctor import brokers, groups, machine, output, rights, sample, topics
from streamdedup.doctor.facts import ANSWER_S_MAX, Facts, MissingError
from streamdedup.doctor.lines import (
    Line,
    Report,
    Status,
    bounded,
    checked_by,
    of_error,
    ok,
    unknown,
)
from streamdedup.doctor.sample import Sampled
from streamdedup.errors import (
    ConfigError,
    DeliveryError,
    SnapshotError,
    StreamdedupError,
    traceback_without_messages,
)
from streamdedup.kafka.base import Connect
from streamdedup.kafka.client.connection import describe_error, refusal
from streamdedup.kafka.client.patience import is_away
from streamdedup.kafka.cluster import UNANSWERED, soon
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.topics import Topology
from streamdedup.settings import Settings

log = structlog.get_logger(__name__)

START_S_MAX = 5.0  # for the checks of a start, which take below 0.1 s in all
_AGAIN = "look at the brokers, and run this again"
_FIRST = "broker-versions"  # the check whose line says that no broker answers


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its id, what it looks at, in words for the documents, and the function that yields its lines.

    `asks_brokers`: without a broker it is unknown at once. `at_start`: a worker runs it at its start. `logged` is the
    line of the log by which the worker itself warns of the same, once its group has admitted it.
    """

    id: str
    looks_at: str
    run: Callable[[Facts], AsyncIterator[Line]]
    asks_brokers: bool = True
    at_start: bool = False
    logged: str | None = None


@dataclass(frozen=True, slots=True)
class SampleCheck:
    """A check of the sample."""

    id: str
    looks_at: str
    run: Callable[[Sampled], Iterator[Line]]


CHECKS = (
    Check(
        _FIRST,
        "whether all brokers answer, and from which version of Kafka on they are",
        brokers.versions,
    ),
    Check("broker-features", "the features in force, as `transaction.version`", brokers.features),
    Check("broker-limits", "the limits of sessions and transactions against ours", brokers.limits),
    Check(
        "broker-offsets", "how long the offsets of a stopped group are kept", brokers.offsets_kept
    ),
    Check("broker-racks", "whether the output's replicas are in several racks", brokers.racks),
    Check("clock", "this machine's clock against the leaders' of the output", brokers.clock),
    Check("topics", "all that a start checks: topics, partitions, cleanup, groups", topics.suited),
    Check("topic-replicas", "replicas, `min.insync.replicas`, replicas in sync", topics.replicas),
    Check("topic-leaders", "partitions without a leader", topics.leaders, at_start=True),
    Check(
        "topic-sizes",
        "the largest event along its way, and our own batch limit",
        topics.sizes,
        at_start=True,
    ),
    Check(
        "topic-retention",
        "the output's retention against the filter's memory",
        topics.retention,
        at_start=True,
        logged="output_forgets_first",
    ),
    Check(
        "topic-timestamps",
        "whose times the output keeps, and their limits",
        topics.timestamps,
        at_start=True,
        logged="window_unprotected",
    ),
    Check("control-topic", "the topic of single changes of the block list", topics.control),
    Check(
        "registry",
        "whether the Schema Registry answers and lets us in",
        topics.registry,
        asks_brokers=False,
    ),
    Check("rights-topics", "our rights on topics, as the brokers report them", rights.of_topics),
    Check("rights-groups", "our rights on the groups", rights.of_groups),
    Check(
        "rights-transactions",
        "our rights on transactional ids",
        rights.of_transactions,
    ),
    Check("group-members", "who is in the groups, and by which protocol", groups.members),
    Check("group-meaning", "whether members and offsets go by this configuration", groups.meaning),
    Check("group-partitions", "partitions that no member has", groups.unserved),
    Check("group-offsets", "offsets that another program committed", groups.offsets),
    Check(groups.UNREAD, "what is unread, since when, and whether it is read on", groups.unread),
    Check(
        "open-transactions", "transactions that stay open on input or output", groups.transactions
    ),
    Check("output-writers", "events of others in the output since our last commit", output.writers),
    Check("output-shared", "other groups whose workers write to the output", output.deployments),
    Check(
        "output-resume",
        "offsets, the logs' ends and the newest snapshots: where a start goes on",
        output.resume,
    ),
    Check(
        "filter-room", "how many events the output holds against the filter's capacity", output.room
    ),
    Check(
        "memory",
        "this machine's memory against the filters of all partitions",
        machine.memory,
        at_start=True,
    ),
    Check(
        "disk-space",
        "the free disk against `snapshot.keep` + 1 files a partition",
        machine.disk_space,
        at_start=True,
    ),
    Check(
        "disk-speed",
        "a write of 64 MiB beside the snapshots, synced",
        machine.disk_speed,
        asks_brokers=False,
    ),
    Check(
        "file-modes",
        "who else may read the secrets, or write to the snapshots",
        machine.modes,
        asks_brokers=False,
        at_start=True,
    ),
    Check("descriptors", "the limit of file descriptors against connections", machine.descriptors),
    Check(
        "compiled",
        "whether the inner loops are compiled and kept",
        machine.compiled,
        asks_brokers=False,
    ),
    Check(
        "lists",
        "the files of the lists: hash, normalization, checksums",
        machine.lists,
        asks_brokers=False,
    ),
)

OF_SAMPLE = (
    SampleCheck(
        "sample-keys", "how many of the newest events have a usable key, and why not", sample.keys
    ),
    SampleCheck("sample-partitions", "keys that come in several partitions", sample.partitions),
    SampleCheck("sample-frequent", "the most frequent key, and the empty one", sample.frequent),
    SampleCheck("sample-capacity", "distinct keys against `filter.capacity`", sample.capacity),
)


def reference_markdown() -> str:
    """Return the table of all checks, for the documents."""
    rows = [(check.id, check.looks_at, "yes" if check.at_start else "") for check in CHECKS]
    rows += [(check.id, check.looks_at, "") for check in OF_SAMPLE]
    head = "| Check | Looks at | At a start, too |\n|---|---|---|\n"
    return head + "".join(f"| `{id_}` | {looks_at} | {start} |\n" for id_, looks_at, start in rows)


async def examine(
    settings: Settings, connect: Connect, take_sample: Callable[[], Awaitable[Sampled]]
) -> Report:
    """Run all checks for `settings`, as written. `take_sample` judges events; it raises TimeoutError in the end."""
    started = time.perf_counter()
    reached = asyncio.create_task(_reached(settings, connect))
    facts = Facts(settings, connect)
    try:
        found = await asyncio.gather(*(_examined(check, facts, reached) for check in CHECKS))
        lines = groups.referred([line for of_check in found for line in of_check], facts.settings)
        trouble = await reached
        lines += await _sampled(take_sample) if trouble is None else _unsampled()
    finally:
        await facts.close()
    answered = not isinstance(trouble, DeliveryError)
    return Report(tuple(lines), answered, time.perf_counter() - started)


async def _reached(settings: Settings, connect: Connect) -> StreamdedupError | None:
    """Return why no broker can be asked; None if one answers."""
    try:
        async with soon(connect, settings.kafka, UNANSWERED):
            return None
    except (ConfigError, DeliveryError) as error:
        return error


async def _examined(
    check: Check, facts: Facts, reached: "asyncio.Task[StreamdedupError | None]"
) -> list[Line]:
    """Return the lines of a check, which is not run if it asks brokers and none is `reached`."""
    if check.asks_brokers and (trouble := await reached) is not None:
        if check.id == _FIRST:
            return checked_by(check.id, of_error(trouble))
        return checked_by(check.id, [_unasked()])
    return await _lines_of(check, facts)


async def _lines_of(check: Check, facts: Facts) -> list[Line]:
    """Run a check and return its lines; what keeps it from an answer is a line, too."""
    lines = list[Line]()
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            async for line in check.run(facts):
                lines.append(line)
    except Exception as error:
        lines += _of_any(error, facts)
    if not lines:
        lines.append(unknown("it found nothing to say", "report that: it is a fault of ours"))
    return checked_by(check.id, bounded(lines))


def _unasked() -> Line:
    return unknown("no broker can be asked", f"see the line of {_FIRST}")


def _of_any(error: Exception, facts: Facts) -> list[Line]:
    """Return the lines for an error that ended a check."""
    if isinstance(error, MissingError):
        return [_missing(error, facts)]
    if isinstance(error, TrimmedError):  # meanwhile; what that means, another check says
        return [_of_unknown(error)]
    if isinstance(error, ConfigError | DeliveryError | SnapshotError):
        return list(of_error(error))
    return [_of_unknown(error)]


def _of_unknown(error: Exception) -> Line:
    """Return the line for an error because of which something is not known."""
    if isinstance(error, TimeoutError):
        return unknown(f"no answer within {ANSWER_S_MAX:g} s", _AGAIN)
    if refused := refusal(error):
        return unknown(refused.sentence, refused.remedy or _AGAIN)
    if is_away(error) or isinstance(error, OSError | StreamdedupError):
        return unknown(f"no answer: {describe_error(error)['error']}", _AGAIN)
    log.error("check_failed", error=type(error).__name__, where=traceback_without_messages(error))
    return unknown(
        f"it failed ({type(error).__name__})", "report the line `check_failed` of the log"
    )


def _missing(error: MissingError, facts: Facts) -> Line:
    if error.hidden:
        return unknown("it may not be seen", "see the line of rights-topics", error.topic)
    is_made = facts.staged and error.topic == facts.settings.source.topic
    if is_made or (
        facts.settings.sink.create_topics and error.topic != facts.settings.source.topic
    ):
        return ok("it is not there yet: a start makes it", error.topic)
    return unknown("it is not there", "see the line of topics", error.topic)


async def _sampled(take_sample: Callable[[], Awaitable[Sampled]]) -> list[Line]:
    try:
        found = await take_sample()
    except Exception as error:
        first, *others = (check.id for check in OF_SAMPLE)
        lines = checked_by(first, [_not_sampled(error)])
        see = unknown("no sample could be taken", f"see the line of {first}")
        return lines + [line for other in others for line in checked_by(other, [see])]
    lines = []
    for check in OF_SAMPLE:
        lines += checked_by(check.id, bounded(check.run(found)))
    return lines


def _not_sampled(error: Exception) -> Line:
    if isinstance(error, TimeoutError):
        return unknown(f"the sample took longer than {ANSWER_S_MAX:g} s", "ask for fewer --events")
    if isinstance(error, StreamdedupError):
        line = next(of_error(error))
        return unknown(f"no sample could be taken: {line.sentence}", line.remedy or _AGAIN)
    return unknown(f"no sample could be taken ({type(error).__name__})", _AGAIN)


def _unsampled() -> list[Line]:
    return [line for check in OF_SAMPLE for line in checked_by(check.id, [_unasked()])]


async def log_at_start(settings: Settings, topology: Topology, connect: Connect) -> None:
    """Run the checks that take below 0.1 s in all, and log one line. `topology` are the topics, as planned.

    `settings` are those of the shards.
    """
    facts = Facts.knowing(settings, connect, topology)
    try:
        async with asyncio.timeout(START_S_MAX):
            chosen = [check for check in CHECKS if check.at_start]
            found = await asyncio.gather(*(_lines_at_start(check, facts) for check in chosen))
    except TimeoutError:
        return
    finally:
        await facts.close()
    lines = [line for of_check in found for line in of_check]
    by: dict[str, Any] = {
        status.value: [line.text for line in lines if line.status is status]
        for status in (Status.FAILURE, Status.WARNING, Status.UNKNOWN)
    }
    shown = {name: texts for name, texts in by.items() if texts}
    write = log.warning if by["failure"] or by["warning"] else log.info
    write(
        "start_checked",
        ok=sum(line.status is Status.OK for line in lines),
        **shown,
        remedy="`streamdedup doctor` looks at more",
    )


async def _lines_at_start(check: Check, facts: Facts) -> list[Line]:
    """Return the lines of a check; of a warning that the worker logs itself, the name of that line."""
    lines = await _lines_of(check, facts)
    if check.logged is None:
        return lines
    see = f"see the line `{check.logged}`"
    return [
        replace(line, sentence=see, remedy=None) if line.status is Status.WARNING else line
        for line in lines
    ]
