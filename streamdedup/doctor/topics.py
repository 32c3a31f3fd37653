"""Checks of the topics: what a start checks, replicas, leaders, sizes, retention, timestamps; and of the registry."""

from collections.abc import AsyncIterator, Iterator

from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import registry_answering
from streamdedup.doctor.facts import Facts
from streamdedup.doctor.lines import Line, failure, of_error, ok, unknown, warning
from streamdedup.errors import ConfigError
from streamdedup.kafka.partitions import LEADER_REMEDY, WITHOUT_LEADER
from streamdedup.kafka.retention import shortfall
from streamdedup.kafka.sink import BATCH_BYTES_MAX
from streamdedup.kafka.topics import FOREVER, Topic, Topology, sink_topics
from streamdedup.lists.control import control_topic
from streamdedup.metrics.findings import NO_LEADER, OUTPUT_FORGETS
from streamdedup.settings import Settings
from streamdedup.units import counted, sized

_GRANT = "grant DescribeConfigs on it (docs/security.md)"


async def suited(facts: Facts) -> AsyncIterator[Line]:
    """All that a start checks of topics, groups and rights, and by which it would be refused."""
    try:
        planned = await facts.planned()
    except ConfigError as error:
        for line in of_error(error):
            yield line
        return
    there = await facts.topology()
    made = sorted(planned.topics.keys() - there.topics.keys())
    made_later = f"; a start makes {', '.join(made)}" if made else ""
    inputs = await facts.inputs()
    output = planned[facts.settings.sink.topic]
    silent = [name for name in _written(facts, there) if not there[name].settings]
    for name in silent:
        yield unknown(
            "its settings are not reported to us, so whether it is compacted is not known",
            _GRANT,
            name,
        )
    if silent:
        return
    yield ok(
        f"{facts.written.source.shown} ({counted(len(inputs), 'topic')}) and {output.name}"
        f" ({counted(output.partitions, 'partition')}) suit a start{made_later}"
    )


async def replicas(facts: Facts) -> AsyncIterator[Line]:
    """Whether the loss of one broker loses nothing, and stops nothing."""
    brokers = len(await facts.brokers())
    topology = await facts.topology()
    for name in _written(facts, topology):
        topic = topology[name]
        found = list(_too_few(topic, brokers))
        for line in found:
            yield line
        if not found:
            yield ok(_copies(topic, brokers), name)
    if not _written(facts, topology):
        yield ok("none of the topics that are written is there yet")


def _written(facts: Facts, topology: Topology) -> list[str]:
    middle = [facts.settings.source.topic] if facts.staged else []
    names = [*middle, *sink_topics(facts.settings.sink)]
    return [name for name in names if name in topology.topics]


def _copies(topic: Topic, brokers: int) -> str:
    least = topic.settings.get("min.insync.replicas")
    in_sync = f", min.insync.replicas={least}" if least else ""
    alone = " on a cluster of one broker, which keeps no copy" if brokers == 1 else ""
    return f"{counted(topic.replicas, 'replica')}{in_sync}{alone}"


def _too_few(topic: Topic, brokers: int) -> Iterator[Line]:
    least = topic.number("min.insync.replicas", 1)
    writable = {n: placed for n, placed in topic.placed.items() if n not in topic.leaderless}
    short = [n for n, placed in sorted(writable.items()) if len(placed.in_sync) < least]
    if topic.replicas < least:
        yield failure(
            f"it has {counted(topic.replicas, 'replica')}, and min.insync.replicas={least}: no broker takes an event",
            f"lower min.insync.replicas of {topic.name} to {topic.replicas - 1 or 1}, or give it more replicas"
            " (kafka-reassign-partitions.sh)",
            topic.name,
        )
        return
    if short:
        yield failure(
            f"{counted(len(short), 'partition')} with fewer replicas in sync than min.insync.replicas={least} (one is"
            f" {topic.name}/{short[0]}): no event is taken there",
            LEADER_REMEDY,
            topic.name,
        )
    behind = [n for n, p in sorted(writable.items()) if least <= len(p.in_sync) < len(p.on)]
    if behind:
        yield warning(
            f"{counted(len(behind), 'partition')} with replicas that are not in sync (one is {topic.name}/{behind[0]})",
            "look at the brokers of its replicas (kafka-topics.sh --describe --under-replicated-partitions)",
            topic.name,
        )
    if topic.replicas == 1 and brokers > 1:
        yield warning(
            "it has one replica, so a broker that fails takes its events with it, and the memory of their keys",
            "give it 3 replicas (kafka-reassign-partitions.sh)",
            topic.name,
        )
    elif least == 1 and topic.replicas > 1 and "min.insync.replicas" in topic.settings:
        yield warning(
            "min.insync.replicas=1: an event that was acknowledged may be on one broker only, and is lost with it",
            f"set min.insync.replicas=2 on {topic.name}",
            topic.name,
        )


async def leaders(facts: Facts) -> AsyncIterator[Line]:
    """Whether every partition has a leader."""
    topology, partitions = await facts.topology(), 0
    wrong = False
    for name, topic in topology.topics.items():
        partitions += topic.partitions
        for number in topic.leaderless:
            wrong = True
            yield failure(
                WITHOUT_LEADER,
                LEADER_REMEDY,
                f"{name}/{number}",
                NO_LEADER,
            )
    if not wrong:
        yield ok(f"all of {counted(partitions, 'partition')} have leaders")


async def sizes(facts: Facts) -> AsyncIterator[Line]:
    """Whether an event that the input takes fits into all topics to which it may go."""
    topology, sink = await facts.topology(), facts.settings.sink
    inputs = [topology[name] for name in await facts.inputs() if name in topology.topics]
    silent = [topic.name for topic in inputs if not topic.settings]
    for name in silent:
        yield unknown(
            "its settings are not reported to us, so its largest event is not known", _GRANT, name
        )
    largest = max((topic.bytes_max for topic in inputs if topic.settings), default=None)
    if largest is None:
        if not silent:
            yield unknown("no input is there yet", "create it", facts.written.source.shown)
        return
    wrong = False
    for name in sink_topics(sink):
        topic = topology.topics.get(name)
        if topic is None:
            continue
        if not topic.settings:
            yield unknown(
                "its settings are not reported to us, so its limit is not known", _GRANT, name
            )
        elif topic.bytes_max < largest:
            wrong = True
            yield warning(
                f"max.message.bytes={topic.bytes_max}, and the input takes events of {largest:,} bytes: larger ones"
                f" {_refused(facts.settings, name)}",
                f"set max.message.bytes={largest} or more on {name}",
                name,
            )
    if not wrong:
        ours = int(facts.settings.kafka.producer.get("max_batch_size", BATCH_BYTES_MAX))
        yield ok(
            f"the largest event of the input, {sized(largest)}, fits everywhere; we write record batches of"
            f" {sized(ours)} at most, or of one event"
        )


def _refused(settings: Settings, name: str) -> str:
    if name == settings.sink.duplicates_topic:
        return "stop their partition if they are duplicates"
    if name != settings.sink.topic:
        return "lose their values in their letters"
    if settings.sink.on_rejected == "stop":
        return "stop their partition (sink.on_rejected: stop)"
    return "become dead letters (sink.on_rejected: dead_letter)"


async def retention(facts: Facts) -> AsyncIterator[Line]:
    """Whether the output keeps its events as long as the filter remembers their keys."""
    output, remembered_ms = await facts.output(), facts.settings.filter.remembered_ms
    if remembered_ms == 0:
        yield ok("there is no filter, so nothing is folded", output.name)
    elif not output.settings:
        yield unknown(
            "its settings are not reported to us, so its retention is not known",
            _GRANT,
            output.name,
        )
    elif short := shortfall(output, remembered_ms):
        yield warning(short.reason, short.remedy, finding=OUTPUT_FORGETS)
    else:
        kept = output.retention_ms
        days = "for ever" if kept >= FOREVER else f"for {kept / 86_400_000:.3g} days"
        yield ok(
            f"it keeps its events {days}, as long as the filter remembers their keys", output.name
        )


async def timestamps(facts: Facts) -> AsyncIterator[Line]:
    """Whether the output keeps the events' own times, and whether one wrong time could empty a window."""
    output, options = await facts.output(), facts.settings.filter
    if not output.settings:
        yield unknown(
            "its settings are not reported to us, so its type of timestamps is not known",
            _GRANT,
            output.name,
        )
    elif options.by_event_time and not output.stamped_by_producer:
        yield failure(
            "it replaces timestamps by its own (message.timestamp.type=LogAppendTime), and a filter with"
            " filter.retention forgets by the events' own times",
            f"set message.timestamp.type=CreateTime on {output.name}",
            output.name,
        )
    elif options.by_event_time and options.max_jump is None and output.ahead_ms_max >= FOREVER:
        yield warning(
            "it takes any timestamp, and one far in the future would empty the windows",
            f"set message.timestamp.after.max.ms of {output.name}, or filter.max_jump",
            output.name,
        )
    else:
        kind = "the producers'" if output.stamped_by_producer else "the brokers' (LogAppendTime)"
        yield ok(f"its times are {kind}, as the filter needs them", output.name)


async def control(facts: Facts) -> AsyncIterator[Line]:
    """Whether the topic of single changes of the block list suits."""
    name = facts.settings.blocklist.control_topic
    if not name:
        yield ok("blocklist.control_topic is not set")
        return
    try:
        topic = await facts.once("control topic", lambda cluster: control_topic(cluster, name))
    except ConfigError as error:
        for line in of_error(error, name):
            yield line
        return
    if topic.settings:
        yield ok(
            f"it keeps the last change of each entry, in {counted(topic.partitions, 'partition')}",
            name,
        )
    else:
        yield unknown(
            "its settings are not reported to us, so its cleanup.policy is not known", _GRANT, name
        )


async def registry(facts: Facts) -> AsyncIterator[Line]:
    """Whether the Schema Registry answers, if the format of values needs one."""
    options = facts.written.kafka.schema_registry
    if options is None:
        yield ok(f"key.format: {facts.written.key.format} needs none")
        return
    await registry_answering(Recipe(facts.settings, 1))
    yield ok("it answers, and lets us in", options.address)
