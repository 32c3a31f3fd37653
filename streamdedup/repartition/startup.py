"""The checks before a stage begins: the middle topic belongs to this deployment alone, and the groups fit it."""

import asyncio
from collections.abc import Callable, Collection

import structlog

from streamdedup.delivery.topics import planned
from streamdedup.errors import ConfigError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.topics import DELETE, Topic, Topology, sink_topics
from streamdedup.repartition.foreign import may_be_middle, refuse_foreign
from streamdedup.repartition.middle import add_way_out, misfits, options_of, own_misfits, refuse
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying_group

log = structlog.get_logger(__name__)

MIDDLE_POLL_S = 1.0
TOPICS_MAX = 10  # of other topics that are looked at

_ANEW = "use a new kafka.group_id, middle topic and output, and feed them from the old output and the input"


async def check_groups(settings: Settings, cluster: Cluster) -> None:
    """ConfigError if the broker is too old, or a group has offsets where it should have none.

    `settings` are those as written.

    A second-stage group that has read another topic has an output that is spread by another rule: keys would be in
    other partitions than their filters. The first stage may have offsets on any topic: inputs come and go, and an
    offset on a former one moves nothing.
    """
    options = options_of(settings)
    group, middle = settings.kafka.group_id, options.topic
    async with asyncio.timeout(ANSWER_S_MAX):
        if not await cluster.supports_stable_offsets(group, middle):
            raise ConfigError(
                "source.repartition needs a broker of Kafka 2.5 or later (stable OffsetFetch), whatever"
                " delivery.guarantee says",
                remedy="upgrade the broker, or remove the option",
            )
        if others := sorted(await cluster.topics_of(group) - {middle}):
            raise ConfigError(
                f"the group {group} has offsets on {', '.join(others[:3])}, and with source.repartition it reads"
                f" {middle} alone: what it has emitted is spread over partitions by another rule",
                remedy=f"{_ANEW} (docs/partitioning.md)",
            )
        if not await check_owner(cluster, middle, group):
            log.info(
                "groups_not_listed",
                topic=middle,
                reason="the broker lists no groups for us, so whether others read the middle topic is not checked",
                remedy="grant Describe on groups, or make sure that nobody else reads or writes this topic",
            )


async def warn_of_former(settings: Settings, cluster: Cluster, inputs: Collection[str]) -> None:
    """Log once on which topics the first stage's group has offsets although they are not among `inputs`.

    `inputs` are those that are read, and those that are left out, each of which has a line of its own.
    """
    async with asyncio.timeout(ANSWER_S_MAX):
        former = sorted(await cluster.topics_of(copying_group(settings)) - set(inputs))
    if former:
        log.warning(
            "inputs_left",
            topics=former[:TOPICS_MAX],
            reason="the group of the first stage has offsets on these topics, and the configuration names them no more:"
            " what they hold from there on is not read",
            remedy="none if they were taken out on purpose; if one is named again, reading goes on at its offset",
        )


async def await_middle(
    settings: Settings, cluster: Cluster, on_wait: Callable[[str | None], None]
) -> Topic:
    """Wait until the middle topic is there, and return it: without a first stage, this process does not make it.

    ConfigError if the topic does not suit, as far as it and the inputs may be seen. `settings` are those as written.
    With a pattern, the first stage leaves out inputs that the topic does not suit. `on_wait` gets what this waits for,
    as text, and None at the end.
    """
    options = options_of(settings)
    is_logged = False
    while True:
        async with asyncio.timeout(ANSWER_S_MAX):
            topics = (await cluster.describe([options.topic])).topics
        if options.topic in topics:
            on_wait(None)
            break
        if not is_logged:
            is_logged = True
            on_wait(f"waits for the first stage, which makes the middle topic {options.topic}")
            log.warning(
                "middle_missing",
                middle=options.topic,
                remedy="start the first stage (run --stage repartition), which makes this topic; do not make it"
                " yourself. If it is there, grant Describe on it",
            )
        await asyncio.sleep(MIDDLE_POLL_S)
    middle, named = topics[options.topic], settings.source.named or ()
    async with asyncio.timeout(ANSWER_S_MAX):
        inputs = list((await cluster.describe(named)).topics.values()) if named else []
    problems = own_misfits(middle, options.partitions)
    problems += (problem for input_ in inputs for problem in misfits(middle, input_))
    await add_way_out(problems, cluster, middle, inputs, settings)
    refuse(problems)
    return middle


async def check_owner(cluster: Cluster, middle: str, group: str) -> bool:
    """Return whether the broker lets us see which groups have offsets on the middle topic.

    ConfigError if a group other than `group` has.
    """
    strangers = await cluster.groups_on(middle, {group})
    if strangers:
        raise ConfigError(
            f"the group {', '.join(sorted(strangers)[:3])} has offsets on the middle topic {middle}: it belongs to the"
            f" group {group} alone, whose workers delete what they have read",
            remedy="stop that group and delete its offsets,"
            " or name another source.repartition.topic",
        )
    return strangers is not None


def check_purge(middle: Topic) -> None:
    """ConfigError if we may not delete what was read from the `middle` topic, as far as the broker reports rights."""
    if not middle.may(DELETE):
        raise ConfigError(
            f"the right Delete on topic {middle.name} is missing, without which its disk fills up: what was read is"
            " deleted from it",
            remedy="grant it (docs/security.md)",
        )


async def check_may_join(cluster: Cluster, *groups: str) -> None:
    """ConfigError if we may not join one of the `groups`, as far as the broker reports rights."""
    async with asyncio.timeout(ANSWER_S_MAX):
        refused = [group for group in groups if not await cluster.may_join(group)]
    refuse(
        [
            f"kafka.group_id: the right Read on group {group} is missing; grant it (docs/security.md)"
            for group in refused
        ]
    )


async def check_not_staged(settings: Settings, cluster: Cluster) -> None:
    """ConfigError if the group has worked with `source.repartition`, and these settings have none.

    What it has emitted is spread over partitions by the judged key, and the input is not.
    """
    group, source = settings.kafka.group_id, settings.source.topic
    async with asyncio.timeout(ANSWER_S_MAX):
        others = sorted(await cluster.topics_of(group) - {source})[:TOPICS_MAX]
        topology = await cluster.describe(others) if others else None
        for name, topic in topology.topics.items() if topology else ():
            notes = await cluster.notes(group, name, topic.partitions)
            if any(note.placed for note in notes.values()):
                raise ConfigError(
                    f"the group {group} has worked with source.repartition, by the middle topic {name}: what it has"
                    f" emitted is spread over partitions by the judged key, and {source} is not",
                    remedy=f"set source.repartition again, or {_ANEW} (docs/partitioning.md)",
                )


async def check_unstaged(settings: Settings, cluster: Cluster) -> Topology:
    """Return the topics of a worker without `source.repartition`, as `delivery.topics.check_topics` does."""
    found = await cluster.describe([settings.source.topic, *sink_topics(settings.sink)])
    await _refuse_middle(settings, cluster, found)
    return await planned(settings, cluster, found)


async def _refuse_middle(settings: Settings, cluster: Cluster, topology: Topology) -> None:
    """ConfigError if the input is the middle topic of another deployment."""
    input_ = topology.topics.get(settings.source.topic)
    if settings.source.repartition is None and input_ is not None and may_be_middle(input_):
        await refuse_foreign(settings, cluster, topology, [input_.name])
