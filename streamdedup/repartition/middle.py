"""The middle topic: the stage makes it with the settings that it needs, and refuses one with other settings.

It belongs to one deployment. Nothing in it may be deleted before the second stage has read it, so only the purge
(`purge`) deletes, and the copies keep their timestamps, so no limit on them may apply.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from streamdedup.errors import ConfigError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.options import RepartitionOptions
from streamdedup.kafka.retention import settings_like
from streamdedup.kafka.topics import (
    FOREVER,
    READ,
    WRITE,
    Topic,
    Topology,
    await_listed,
    rights_missing,
    sink_topics,
)
from streamdedup.settings import Settings

log = structlog.get_logger(__name__)

ENVELOPE_BYTES = 1 << 16  # for the origin of each event, and the frame of a record batch
SEGMENT_BYTES = 64 << 20  # a purge frees whole segments
ANY_MS = (1 << 63) - 1  # Kafka's way to say that a limit on timestamps does not apply
BYTES_MAX = (1 << 31) - 1  # the largest value of max.message.bytes

# Of several inputs, the largest value counts; a value below 0 means no limit.
_LARGEST = ("max.message.bytes", "retention.ms")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a first stage begins with, before anything is made.

    `topology` has the `inputs`, the topics that are written, and those of them that will be made; `missing` are the
    names of the latter. `like` is the inputs as one topic (`all_of`).
    """

    inputs: tuple[str, ...]
    topology: Topology
    missing: Collection[str]
    like: Topic


def bytes_max(input_: Topic) -> int:
    """Return the size of the largest record batch that the middle must take.

    A record batch of the input may be compressed better than ours, and each event gets one more header.
    """
    return min(2 * input_.bytes_max + ENVELOPE_BYTES, BYTES_MAX)


def in_sync_min(input_: Topic) -> int:
    """Return the `min.insync.replicas` that the middle must have; no topic can have more than its replicas."""
    return min(input_.number("min.insync.replicas", 1), input_.replicas)


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
    if "min.insync.replicas" in input_.settings:
        wanted["min.insync.replicas"] = str(in_sync_min(input_))
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


def own_misfits(middle: Topic, partitions: int) -> list[str]:
    """Return what does not suit in the `middle` topic, whatever the inputs are; it must have so many `partitions`."""
    problems = other_partitions(middle, partitions)
    for setting, must_be, found in wrong_settings(middle):
        problems.append(
            f"the middle topic {middle.name} has {setting}={found}, and must have {must_be}; set that on it, or name"
            " another source.repartition.topic"
        )
    return problems


def misfits(middle: Topic, input_: Topic) -> list[str]:
    """Return what does not suit in the `middle` topic for this input."""
    problems = list[str]()
    if middle.replicas < input_.replicas:
        problems.append(
            f"the middle topic {middle.name} has {middle.replicas} replicas, fewer than {input_.name}, which has"
            f" {input_.replicas}: give it as many (kafka-reassign-partitions.sh), or name another"
            " source.repartition.topic"
        )
    for setting, least, found in _too_small(middle, input_):
        problems.append(
            f"the middle topic {middle.name} has {setting}={found}, and must have {least} at least for the input"
            f" {input_.name}; set that on {middle.name}, lower {setting} of {input_.name}, or name another"
            " source.repartition.topic"
        )
    return problems


def wrong_settings(middle: Topic) -> Iterator[tuple[str, str, str]]:
    """Yield each setting that no middle topic may have: its name, what it must be, and what it is.

    Nothing of a topic whose settings are not known.
    """
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


def _too_small(middle: Topic, input_: Topic) -> Iterator[tuple[str, int, int]]:
    """Yield each setting that is too small for the input: its name, what it must be at least, and what it is."""
    if not middle.settings:
        return
    if middle.bytes_max < bytes_max(input_):
        yield "max.message.bytes", bytes_max(input_), middle.bytes_max
    least = in_sync_min(input_)
    if (found := middle.number("min.insync.replicas", least)) < least:
        yield "min.insync.replicas", least, found


def is_as_made(topic: Topic) -> bool:
    """Return whether a topic has the settings by which a worker makes a middle topic."""
    own_size = topic.number("segment.bytes", 0) == SEGMENT_BYTES
    return bool(topic.settings) and own_size and not any(wrong_settings(topic))


async def described(settings: Settings, cluster: Cluster, inputs: Sequence[str]) -> Topology:
    """Return those of the `inputs` and of the topics that are written that exist."""
    return await cluster.describe([*inputs, *sink_topics(settings.sink)])


def planned(settings: Settings, topology: Topology, inputs: Sequence[str]) -> Plan:
    """Return what the stage begins with. ConfigError if a topic does not suit, or is missing and will not be made."""
    options, like = options_of(settings), all_of(topology, inputs)
    if like is None:
        check(topology, settings, inputs)
        raise ValueError("no input is given")
    wanted: dict[str, Mapping[str, str]] = {options.topic: settings_for(like)}
    if settings.sink.create_topics:
        wanted |= {name: settings_like(like) for name in sink_topics(settings.sink)[1:]}
    to_make = {
        name: Topic(
            name, None, options.partitions, like.replicas, topology.rights_on(name), settings=its
        )
        for name, its in wanted.items()
        if name not in topology.topics and name not in topology.hidden
    }
    plan = Topology(topology.cluster_id, {**topology.topics, **to_make})
    check(plan, settings, inputs)
    return Plan(tuple(inputs), plan, tuple(to_make), like)


async def made(settings: Settings, cluster: Cluster, plan: Plan, names: list[str]) -> Topology:
    """Make what is missing, and return all topics of `plan`. ConfigError if a broker refuses, or one does not suit.

    The names of those that it made are added to `names`.
    """
    if not plan.missing:
        return plan.topology
    created = await cluster.create([plan.topology[name] for name in plan.missing])
    names += created
    for name in created:
        log.info("topic_created", topic=name, partitions=plan.topology[name].partitions)
    topology = await await_listed(cluster.describe, list(plan.topology.topics), plan.missing)
    check(topology, settings, plan.inputs)
    return topology


async def add_way_out(
    problems: list[str],
    cluster: Cluster,
    middle: Topic,
    inputs: Sequence[Topic],
    settings: Settings,
) -> None:
    """If the `middle` topic is among the `problems`, and was never used, add that it may be deleted.

    `settings` are those as written.
    """
    own = own_misfits(middle, options_of(settings).partitions)
    if not own and not any(misfits(middle, input_) for input_ in inputs):
        return
    async with asyncio.timeout(ANSWER_S_MAX):
        readers = await cluster.groups_on(middle.name, ())
        if readers or middle.name in await cluster.topics_of(settings.kafka.group_id):
            return
        if not await never_held(cluster, middle):
            return
    problems.append(
        f"the middle topic {middle.name} never held an event, and no group has offsets on it, so it may be deleted: the"
        " worker then makes one that suits"
    )


async def never_held(cluster: Cluster, topic: Topic) -> bool:
    """Return whether nothing was ever written to `topic`. The caller sets a time-out."""
    ends = await asyncio.gather(
        *(cluster.end_offset(topic.name, partition) for partition in range(topic.partitions))
    )
    return not any(ends)


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
    if any("min.insync.replicas" in topic.settings for topic in topics):
        settings["min.insync.replicas"] = str(max(map(in_sync_min, topics)))
    return Topic(
        name=", ".join(topic.name for topic in topics),
        topic_id=None,
        partitions=sum(topic.partitions for topic in topics),
        replicas=max(topic.replicas for topic in topics),
        settings=settings,
    )


def check(topology: Topology, settings: Settings, inputs: Sequence[str]) -> None:
    """Raise one ConfigError that lists everything that does not suit the first stage, whose `settings` these are."""
    problems = [problem for name in inputs for problem in input_problems(topology, settings, name)]
    refuse([*problems, *written_problems(topology, settings)])


def refuse(problems: Sequence[str]) -> None:
    """Raise one ConfigError that lists the `problems`, each once, if there are any."""
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))


def input_problems(topology: Topology, settings: Settings, name: str) -> list[str]:
    """Return why the topic `name` cannot be an input of the first stage."""
    if name not in topology.topics:
        return [_missing(name)]
    problems, input_ = rights_missing(topology, [(name, READ)]), topology[name]
    if middle := topology.topics.get(options_of(settings).topic):
        problems += misfits(middle, input_)
    return problems


def written_problems(topology: Topology, settings: Settings) -> list[str]:
    """Return what does not suit in the topics that the first stage writes, whatever the inputs are."""
    options, written = options_of(settings), sink_topics(settings.sink)
    problems = [_missing(name) for name in written if name not in topology.topics]
    rights = [(options.topic, READ), *((name, WRITE) for name in written)]
    problems += rights_missing(topology, rights)
    if middle := topology.topics.get(options.topic):
        problems += own_misfits(middle, options.partitions)
    return problems


def _missing(name: str) -> str:
    return f"the topic {name} does not exist or may not be seen; create it"


def options_of(settings: Settings) -> RepartitionOptions:
    """Return the options of the stage whose `settings` these are."""
    if (options := settings.source.repartition) is None:
        raise ValueError("these settings are of no stage: source.repartition is not set")
    return options
