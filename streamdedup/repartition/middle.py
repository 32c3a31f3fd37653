"""The middle topic: the stage makes it with the settings that it needs, and refuses one with other settings.

It belongs to one deployment. Nothing in it may be deleted before the second stage has read it, so only the purge
(`purge`) deletes, and the copies keep their timestamps, so no limit on them may apply.
"""

from collections.abc import Iterator, Sequence

import structlog

from streamdedup.errors import ConfigError
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.options import RepartitionOptions
from streamdedup.kafka.topics import (
    FOREVER,
    READ,
    WRITE,
    Topic,
    Topology,
    await_listed,
    settings_like,
    sink_topics,
)
from streamdedup.settings import Settings

log = structlog.get_logger(__name__)

ENVELOPE_BYTES = 1 << 16  # for the origin of each event, and the frame of a record batch
SEGMENT_BYTES = 64 << 20  # a purge frees whole segments
ANY_MS = (1 << 63) - 1  # Kafka's way to say that a limit on timestamps does not apply

# Of several inputs, the largest value counts; a value below 0 means no limit.
_LARGEST = ("max.message.bytes", "min.insync.replicas", "retention.ms")
_REMADE = "delete that topic, which this worker then makes itself, or name another source.repartition.topic"


def bytes_max(input_: Topic) -> int:
    """Return the size of the largest record batch that the middle must take.

    A record batch of the input may be compressed better than ours, and each event gets one more header.
    """
    return 2 * input_.bytes_max + ENVELOPE_BYTES


def settings_for(input_: Topic) -> dict[str, str]:
    """Return the settings of a new middle topic for `input_`. Those that its broker does not know are left out."""
    wanted = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str(ANY_MS),
        "message.timestamp.after.max.ms": str(ANY_MS),
        "message.timestamp.difference.max.ms": str(ANY_MS),
        "segment.bytes": str(SEGMENT_BYTES),
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(bytes_max(input_)),
    }
    if least := input_.settings.get("min.insync.replicas"):
        wanted["min.insync.replicas"] = least
    if "message.timestamp.after.max.ms" in input_.settings:  # Kafka 3.6 deprecates the third
        del wanted["message.timestamp.difference.max.ms"]
    else:
        del wanted["message.timestamp.before.max.ms"], wanted["message.timestamp.after.max.ms"]
    return wanted


def other_partitions(middle: Topic, partitions: int) -> list[str]:
    """Return the problem, as a list, if the `middle` topic has another number of partitions; else an empty list."""
    problems = list[str]()
    if middle.partitions != partitions:
        problems.append(
            f"the middle topic {middle.name} has {middle.partitions} partitions, and source.repartition.partitions is"
            f" {partitions}: keys would be in other partitions than before; set that option back, or begin with a new"
            " kafka.group_id, middle and output"
        )
    return problems


def misfits(middle: Topic, input_: Topic | None, partitions: int) -> list[str]:
    """Return what does not suit in the `middle` topic of `input_`; it must have this number of `partitions`.

    If `input_` is None, because the input may not be seen, what depends on it is not checked.
    """
    problems = other_partitions(middle, partitions)
    if input_ and middle.replicas < input_.replicas:
        problems.append(
            f"the middle topic {middle.name} has {middle.replicas} replicas, fewer than {input_.name}, which has"
            f" {input_.replicas}: give it as many (kafka-reassign-partitions.sh), or name another"
            " source.repartition.topic"
        )
    if middle.settings:
        for setting, must_be, found in _wrong_settings(middle, input_):
            problems.append(
                f"the middle topic {middle.name} has {setting}={found}, and must have {must_be}; set that, or {_REMADE}"
            )
    return problems


def _wrong_settings(middle: Topic, input_: Topic | None) -> Iterator[tuple[str, str, str]]:
    """Yield each setting that is wrong: its name, what it must be, and what it is."""
    known = middle.settings
    if middle.compacted or not middle.deletes_by_age:
        yield "cleanup.policy", "delete", known["cleanup.policy"]
    for setting in ("retention.ms", "retention.bytes"):
        if middle.number(setting, -1) >= 0:
            yield setting, "-1", known[setting]
    if not middle.stamped_by_producer:
        yield "message.timestamp.type", "CreateTime", known["message.timestamp.type"]
    else:
        for side, limit in (("before", middle.behind_ms_max), ("after", middle.ahead_ms_max)):
            if limit < FOREVER:
                yield f"message.timestamp.{side}.max.ms", str(ANY_MS), str(limit)
    if known.get("unclean.leader.election.enable", "false") != "false":
        yield "unclean.leader.election.enable", "false", "true"
    if input_ is None:
        return
    if middle.bytes_max < bytes_max(input_):
        yield "max.message.bytes", f"{bytes_max(input_)} at least", str(middle.bytes_max)
    least = input_.number("min.insync.replicas", 1)
    if middle.number("min.insync.replicas", least) < least:
        yield "min.insync.replicas", f"{least} at least", known["min.insync.replicas"]


async def prepared(settings: Settings, cluster: Cluster, inputs: Sequence[str]) -> Topology:
    """Return the `inputs`, the middle topic and the dead letters' topic; the middle is made if it is missing.

    `settings` are those of the first stage. ConfigError if a topic is missing or does not suit.
    """
    options = options_of(settings)
    names = [*inputs, *sink_topics(settings.sink)]
    topology = await cluster.describe(names)
    if input_ := all_of(topology, inputs):
        wanted = {options.topic: settings_for(input_)}
        if settings.sink.create_topics:
            wanted |= {name: settings_like(input_, 0) for name in sink_topics(settings.sink)[1:]}
        missing = wanted.keys() - topology.topics.keys()
        for name in missing:
            if await cluster.create(name, options.partitions, input_.replicas, wanted[name]):
                log.info("topic_created", topic=name, partitions=options.partitions)
        if missing:
            topology = await await_listed(cluster.describe, names, missing)
    check(topology, settings, inputs)
    return topology


def all_of(topology: Topology, inputs: Sequence[str]) -> Topic | None:
    """Return the `inputs` that are there as if they were one topic, with the largest of their settings.

    What is made to suit it suits each of them. None if none is there.
    """
    topics = [topology[name] for name in inputs if name in topology.topics]
    if not topics:
        return None
    settings = dict(topics[0].settings)
    for name in _LARGEST:
        values = [int(topic.settings[name]) for topic in topics if name in topic.settings]
        if values:
            settings[name] = str(-1 if min(values) < 0 else max(values))
    return Topic(
        name=", ".join(topic.name for topic in topics),
        topic_id=None,
        partitions=sum(topic.partitions for topic in topics),
        replicas=max(topic.replicas for topic in topics),
        settings=settings,
    )


def check(topology: Topology, settings: Settings, inputs: Sequence[str]) -> None:
    """Raise one ConfigError that lists everything that does not suit the first stage, whose `settings` these are."""
    options, written = options_of(settings), sink_topics(settings.sink)
    problems = [
        f"the topic {name} does not exist or may not be seen; create it"
        for name in (*inputs, *written)
        if name not in topology.topics
    ]
    problems += [
        f"the right {right} on topic {name} is missing; grant it (docs/security.md)"
        for name, operation, right in _rights(inputs, written, options.topic)
        if name in topology.topics and not topology[name].may(operation)
    ]
    input_ = all_of(topology, inputs)
    if input_ and options.topic in topology.topics:
        problems += misfits(topology[options.topic], input_, options.partitions)
    if problems:
        raise ConfigError("\n".join(problems))


def _rights(
    inputs: Sequence[str], written: Sequence[str], middle: str
) -> Iterator[tuple[str, int, str]]:
    yield from ((name, READ, "Read") for name in (*inputs, middle))
    yield from ((name, WRITE, "Write") for name in written)


def options_of(settings: Settings) -> RepartitionOptions:
    """Return the options of the stage whose `settings` these are."""
    if (options := settings.source.repartition) is None:
        raise ValueError("these settings are of no stage: source.repartition is not set")
    return options
