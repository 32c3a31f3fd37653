"""The topics, as the cluster describes them: ids, partition counts, settings, rights; and whether they suit our use.

No request creates a topic: ours do not allow that, nor do those of the clients (`client.creation`). Topics that do not
suit are refused before the worker joins its group; the message names each of them, and the remedy.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.admin import DescribeConfigsRequest

from streamdedup.errors import ConfigError
from streamdedup.kafka.client.closing import starting
from streamdedup.kafka.client.connection import client_arguments, fatal_of
from streamdedup.kafka.client.creation import never_creating
from streamdedup.kafka.client.patience import is_away
from streamdedup.kafka.client.protocol import TopicsWithIds, all_topics
from streamdedup.kafka.options import KafkaOptions, SinkOptions

READ, WRITE, CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS = 3, 4, 5, 6, 8, 10  # AclOperation codes
RIGHTS_UNKNOWN = -(1 << 31)
TOPIC_RESOURCE = 2
METADATA_RETRY_S = 0.1
METADATA_WAIT_S = 30.0
LISTED_WAIT_S = 30.0

_HIDING = (TopicAuthorizationFailedError, LeaderNotAvailableError)

_GRANT = ", or grant Describe on it, and what else it needs (docs/security.md)"
DEFAULT_MESSAGE_BYTES_MAX = 1_048_588
FOREVER = 1 << 62


def allows(rights: int, operation: int) -> bool:
    """Return whether `rights`, a bit for each operation, have it; True if the broker does not report rights."""
    return rights == RIGHTS_UNKNOWN or bool(rights >> operation & 1)


@dataclass(frozen=True, slots=True)
class Replicas:
    """The ids of the brokers that have a replica of a partition, and of those whose replica is in sync."""

    on: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `topic_id` is None, and `settings` are empty, if the broker does not report them.

    `leaderless` are the partitions that had no leader when the broker was asked. `placed` has the replicas of each
    partition at that time, by their numbers; it is empty for a topic that is not made yet.
    """

    name: str
    topic_id: str | None
    partitions: int
    replicas: int
    rights: int = RIGHTS_UNKNOWN
    settings: Mapping[str, str] = field(default_factory=dict)
    leaderless: tuple[int, ...] = ()
    placed: Mapping[int, Replicas] = field(default_factory=dict)

    def may(self, operation: int) -> bool:
        """Return whether we have the right to do `operation`; True if the broker does not report rights."""
        return allows(self.rights, operation)

    def number(self, setting: str, default: int) -> int:
        """Return an integer setting of the topic, `default` if it is not known."""
        return int(self.settings.get(setting, default))

    @property
    def bytes_max(self) -> int:
        """The size of the largest record batch that the topic takes."""
        return self.number("max.message.bytes", DEFAULT_MESSAGE_BYTES_MAX)

    @property
    def stamped_by_producer(self) -> bool:
        """Whether events keep their timestamps. Otherwise the broker replaces them, and accepts any."""
        return self.settings.get("message.timestamp.type", "CreateTime") == "CreateTime"

    @property
    def ahead_ms_max(self) -> int:
        """How far a timestamp may be ahead of the broker's clock, in ms."""
        return self._distance_ms("after")

    @property
    def behind_ms_max(self) -> int:
        """How far a timestamp may be behind the broker's clock, in ms."""
        return self._distance_ms("before")

    @property
    def retention_ms(self) -> int:
        """How long an event is kept after its timestamp, in ms."""
        retention = self.number("retention.ms", -1)
        return FOREVER if retention < 0 else min(retention, FOREVER)

    def _distance_ms(self, side: str) -> int:
        """Return the limit of one side. Kafka before 3.6 had one setting for both sides."""
        if not self.stamped_by_producer:
            return FOREVER
        either = self.number("message.timestamp.difference.max.ms", FOREVER)
        distance = min(self.number(f"message.timestamp.{side}.max.ms", FOREVER), FOREVER)
        return distance if distance < FOREVER else min(either, FOREVER)

    @property
    def deletes_by_age(self) -> bool:
        """Whether retention applies. It does not apply to a topic that is only compacted."""
        return "delete" in self.settings.get("cleanup.policy", "delete")

    @property
    def compacted(self) -> bool:
        """Whether the broker may delete an event because a later one has the same key."""
        return "compact" in self.settings.get("cleanup.policy", "delete")


@dataclass(frozen=True, slots=True)
class Topology:
    """The topics of one worker, and the cluster they are on."""

    cluster_id: str | None
    topics: Mapping[str, Topic]
    hidden: frozenset[str] = frozenset()
    """Names that were asked for and that we may not see, whether there are such topics or not."""
    absent: Mapping[str, int] = field(default_factory=dict)
    """Names of which there is no topic, each with the rights that we will have on it, if the broker reports them."""

    def __getitem__(self, name: str) -> Topic:
        return self.topics[name]

    def rights_on(self, name: str) -> int:
        """Return the rights on a topic that is not there; RIGHTS_UNKNOWN if the broker does not report them."""
        return self.absent.get(name, RIGHTS_UNKNOWN)


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of topics that were known."""

    missing: Sequence[str] = ()
    """Those that the broker does not list. With ZooKeeper, a broker that starts answers before it knows its topics."""
    remade: Sequence[str] = ()
    """Those that were deleted and created again."""
    leaderless: Sequence[tuple[str, int]] = ()
    """The partitions that have no leader, of all topics: topic and partition."""


async def describe(client: Any, names: Sequence[str]) -> Topology:
    """Return those topics of `names` that exist, with their settings."""
    async with asyncio.timeout(METADATA_WAIT_S):
        found = await _metadata(client, names)
    settings = await _settings(client, list(found.topics))
    topics = {
        name: replace(topic, settings=settings.get(name, {}))
        for name, topic in found.topics.items()
    }
    return replace(found, topics=topics)


async def names(client: Any) -> list[str]:
    """Return the names of all topics that we may see."""
    async with asyncio.timeout(METADATA_WAIT_S):
        response = await client.send(client.get_random_node(), all_topics())
    return [row[1] for row in response.topics]


async def create(options: KafkaOptions, topics: Collection[Topic]) -> list[str]:
    """Create the `topics` with their settings; return the names of those that did not exist.

    The broker is first asked whether it would create them, so that one that it refuses leaves no other one behind.
    ConfigError with its reasons if it refuses.
    """
    new = [
        NewTopic(topic.name, topic.partitions, topic.replicas, topic_configs=dict(topic.settings))
        for topic in topics
    ]
    admin = never_creating(AIOKafkaAdminClient(**await client_arguments(options)))
    try:
        with starting():
            await admin.start()
        _created(await admin.create_topics(new, validate_only=True))
        return _created(await admin.create_topics(new))
    finally:
        await admin.close()


def _created(response: Any) -> list[str]:
    """Return the names of the topics that are, or would be, created. ConfigError if the broker refuses one."""
    names, problems = list[str](), list[str]()
    for name, code, *rest in response.topic_errors:
        error = for_code(code)
        if not code:
            names.append(name)
        elif is_away(failed := error()):
            raise failed
        elif error is not TopicAlreadyExistsError:
            reason = next((r for r in rest if r), error.__name__)
            problems.append(f"the topic {name} could not be created: {reason}; create it yourself")
    if problems:
        raise ConfigError("\n".join(problems))
    return names


async def await_listed(
    describe: Callable[[Sequence[str]], Awaitable[Topology]],
    names: Sequence[str],
    created: Collection[str],
) -> Topology:
    """Return those of `names` that exist, once all that were `created` just now are listed. TimeoutError if not."""
    async with asyncio.timeout(LISTED_WAIT_S):
        while True:
            topology = await describe(names)
            if set(created) <= topology.topics.keys():
                return topology
            await asyncio.sleep(METADATA_RETRY_S)


def rights_missing(topology: Topology, wanted: Iterable[tuple[str, int]]) -> list[str]:
    """Return a line for the operator for each of the rights `wanted` that is missing, of topics that are there.

    A right is the name of a topic, and READ or WRITE.
    """
    problems = list[str]()
    for name, operation in wanted:
        if name in topology.topics and not topology[name].may(operation):
            right = "Read" if operation == READ else "Write"
            problems.append(
                f"the right {right} on topic {name} is missing; grant it (docs/security.md)"
            )
    return problems


def refuse_missing(
    topology: Topology, source: str, names: Sequence[str], option: str = "source.topic"
) -> None:
    """ConfigError that lists which of `names` do not exist. It creates none.

    `source` is one of them, by the option of that name.
    """
    missing = [name for name in names if name not in topology.topics]
    if missing:
        raise ConfigError(
            "\n".join(
                f"the topic {name} does not exist or may not be seen; check"
                f" {option if name == source else 'sink'}"
                for name in missing
            )
        )


@contextmanager
def naming(made: Collection[str]) -> Iterator[None]:
    """Add the names of the topics that this start has `made` to an error by which it is refused in this context."""
    try:
        yield
    except Exception as error:
        if (refused := fatal_of(error)) is None or not made:
            raise
        raise type(refused)(
            f"{refused}\nthis start made {', '.join(made)}; the next one takes them, so delete them only if their names"
            " were wrong"
        ) from error


def sink_topics(sink: SinkOptions) -> list[str]:
    """Return the names of the topics that are written, the output first."""
    side_topics = (sink.duplicates_topic, sink.blocked_topic, sink.dead_letter_topic)
    return [sink.topic, *filter(None, side_topics)]


def stamped_topics(sink: SinkOptions) -> list[str]:
    """Return the names of the topics whose events are letters: we stamp them, with the broker's time."""
    duplicates = sink.duplicates_topic if sink.duplicates_headers else None
    return [*filter(None, (duplicates, sink.blocked_topic, sink.dead_letter_topic))]


def check(
    topology: Topology,
    source: str,
    sink: SinkOptions,
    *,
    remembers: bool = True,
    by_event_time: bool = False,
    is_middle: bool = False,
) -> None:
    """Raise one ConfigError that lists everything that does not suit.

    `is_middle`: the source is the middle topic of `source.repartition`. `remembers`: there is a filter, the fold of the
    output. `by_event_time`: the filter forgets by the events' timestamps.
    """
    written = ((name, WRITE) for name in sink_topics(sink))
    problems = rights_missing(topology, [(source, READ), (sink.topic, READ), *written])
    # Without the source, the sink's topics are not made yet, because they get as many partitions as it has.
    made_later = sink.create_topics and source not in topology.topics
    for name in (source, *(() if made_later else sink_topics(sink))):
        if name not in topology.topics:
            # Then sink.create_topics cannot help: it never makes the source, or it is on already.
            own = name == source or sink.create_topics
            remedy = "" if own else ", or set sink.create_topics: true"
            remedy = _GRANT if name in topology.hidden else remedy
            problems.append(
                f"the topic {name} does not exist or may not be seen; create it{remedy}"
            )
    if source in topology.topics:
        problems += _misfits(topology, topology[source], sink, remembers, is_middle)
    output = topology.topics.get(sink.topic)
    if output and by_event_time and not output.stamped_by_producer:
        problems.append(
            f"the topic {sink.topic} replaces timestamps by its own (message.timestamp.type=LogAppendTime): a filter"
            " with filter.retention forgets by the events' own times, also in a fold; set CreateTime"
        )
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))


def _misfits(
    topology: Topology, source: Topic, sink: SinkOptions, remembers: bool, is_middle: bool
) -> list[str]:
    problems = []
    for name in sink_topics(sink):
        topic = topology.topics.get(name)
        if topic is not None and topic.partitions < source.partitions:
            fewer = (
                f"the topic {name} has {topic.partitions} partitions, {source.name} has {source.partitions}:"
                " events keep their partition"
            )
            if is_middle:
                problems.append(
                    f"the topic {name} has {topic.partitions} partitions, the middle topic {source.name} has"
                    f" {source.partitions}: events keep their partition. If somebody added partitions to"
                    f" {source.name}, begin with a new kafka.group_id, middle and output; if nothing was written to"
                    f" {name} yet, add partitions to it"
                )
            elif remembers and name == sink.topic:
                problems.append(
                    f"{fewer}. If nothing was emitted yet, add partitions to {name}; else keys would be in other"
                    f" partitions, and their duplicates pass there: make {source.name} again with {topic.partitions},"
                    f" or set source.on_growth: accept and add partitions to {name}"
                )
            else:
                problems.append(f"{fewer}, so add partitions to {name}")
    output = topology.topics.get(sink.topic)
    duplicates = topology.topics.get(sink.duplicates_topic or "")
    if output and duplicates and output.settings and duplicates.settings:
        problems += _narrower(duplicates, output, are_letters=sink.duplicates_headers)
    for side in sink_topics(sink)[1:]:
        topic = topology.topics.get(side)
        if topic is not None and topic.compacted:
            problems.append(
                f"the topic {side} is compacted (cleanup.policy={topic.settings['cleanup.policy']}): it would refuse"
                " events without a key, and delete others that share a key; set cleanup.policy=delete"
            )
    if output is None or not output.compacted:
        return problems
    policy = output.settings["cleanup.policy"]
    if remembers:
        problems.append(
            f"the topic {sink.topic} is compacted (cleanup.policy={policy}): the filter is built from it, so"
            " nothing in it may be deleted; set cleanup.policy=delete"
        )
    elif sink.shadow:
        problems.append(
            f"the topic {sink.topic} is compacted (cleanup.policy={policy}): a blocked event would replace"
            " another one with the same key; set cleanup.policy=delete, or sink.shadow=false"
        )
    return problems


def _narrower(duplicates: Topic, output: Topic, *, are_letters: bool) -> list[str]:
    """Return the limits that are stricter in the duplicates topic than in the output.

    A duplicate may be as large, as old or as far ahead as any event that passes; a letter about one is never old.
    """
    limits = {"max.message.bytes": (duplicates.bytes_max, output.bytes_max)}
    times = {
        "message.timestamp.after.max.ms": (duplicates.ahead_ms_max, output.ahead_ms_max),
        "message.timestamp.before.max.ms": (duplicates.behind_ms_max, output.behind_ms_max),
    }
    problems = []
    for setting, (narrow, wide) in (limits if are_letters else limits | times).items():
        if narrow < wide:
            problems.append(
                f"the topic {duplicates.name} has {setting}={narrow}, less than {output.name} ({wide}): a duplicate may"
                " be like any event that passes, so raise the former"
            )
    return problems


async def _metadata(
    client: Any,
    names: Sequence[str],
    *,
    with_leaders: bool = True,
) -> Topology:
    """Return the topics that exist and have leaders, without their settings, and which do not.

    `with_leaders`: wait until all that exist have leaders. Otherwise those without are hidden.
    """
    while True:
        try:
            response = await client.send(client.get_random_node(), TopicsWithIds(list(names)))
        except NotImplementedError:  # brokers before 2.8, and librdkafka's mock broker
            response = await client.send(client.get_random_node(), all_topics())
        rows = [row for row in response.topics if row[1] in names]
        errors = {row[1]: for_code(row[0]) for row in rows if row[0]}
        if not with_leaders or LeaderNotAvailableError not in errors.values():
            break
        await asyncio.sleep(METADATA_RETRY_S)
    with_ids = response.API_VERSION >= 10
    topics = [_topic(row, with_ids) for row in rows if row[0] == 0]
    missing = [row for row in rows if errors.get(row[1]) is UnknownTopicOrPartitionError]
    # A broker that reports rights says that a topic is unknown only if we have the right Describe on it.
    absent = {row[1]: row[5] for row in missing if with_ids and row[5] >> DESCRIBE & 1}
    return Topology(
        getattr(response, "cluster_id", None),
        {topic.name: topic for topic in topics},
        frozenset(name for name, error in errors.items() if error in _HIDING),
        absent,
    )


def _topic(row: tuple[Any, ...], with_ids: bool) -> Topic:
    if with_ids:
        _error, name, topic_id, _internal, partitions, rights, _tags = row
        return Topic(
            name,
            str(topic_id) if topic_id.int else None,
            len(partitions),
            len(partitions[0][4]),
            rights,
            leaderless=_leaderless(partitions),
            placed={row[1]: Replicas(tuple(row[4]), tuple(row[5])) for row in partitions},
        )
    _error, name, _internal, partitions = row
    return Topic(
        name,
        None,
        len(partitions),
        len(partitions[0][3]),
        leaderless=_leaderless(partitions),
        placed={row[1]: Replicas(tuple(row[3]), tuple(row[4])) for row in partitions},
    )


def _leaderless(partitions: Sequence[tuple[Any, ...]]) -> tuple[int, ...]:
    """Return the numbers of the partitions (error, partition, leader, ...) that have no leader."""
    return tuple(sorted(partition for _error, partition, leader, *_ in partitions if leader < 0))


async def _settings(client: Any, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the settings of the topics; empty for those that the broker does not report, or not to us.

    An error that may pass is raised: without settings, an unsuitable topic would be taken for a suitable one.
    """
    if not names:
        return {}
    request = DescribeConfigsRequest([(TOPIC_RESOURCE, name, None) for name in names], False)
    try:
        response = await client.send(client.get_random_node(), request)
    except NotImplementedError:
        return {}
    except KafkaError as error:
        if is_away(error):
            raise
        return {}
    for row in response.resources:
        if row[0] and is_away(failed := for_code(row[0])()):
            raise failed
    return {
        row[3]: {entry[0]: entry[1] for entry in row[4] if entry[1] is not None}
        for row in response.resources
        if row[0] == 0
    }


async def changed(client: Any, known: Topology) -> Changes:
    """Return which topics are missing, or were created again, since `known`.

    A topic that we may no longer see, or that has no leader, is not among them; the others are compared.
    """
    async with asyncio.timeout(METADATA_WAIT_S):
        now = await _metadata(client, list(known.topics), with_leaders=False)
    return changes(known, now.topics, now.hidden)


def changes(
    known: Topology, now: Mapping[str, Topic], hidden: Collection[str] = frozenset()
) -> Changes:
    """Compare the topics that are listed `now` with those that are `known`."""
    seen = {name: topic for name, topic in known.topics.items() if name not in hidden}
    return Changes(
        missing=[name for name in seen if name not in now],
        remade=[
            name
            for name, topic in seen.items()
            if name in now and now[name].topic_id != topic.topic_id
        ],
        leaderless=tuple((name, p) for name in seen if name in now for p in now[name].leaderless),
    )
