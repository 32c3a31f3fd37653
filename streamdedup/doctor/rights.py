"""Checks of rights: those that the brokers report, and the others as the commands by which they are granted."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import NamedTuple

from streamdedup.doctor.facts import Facts
from streamdedup.doctor.lines import Line, failure, ok, unknown, warning
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.client.connection import refusal
from streamdedup.kafka.topics import (
    DELETE,
    DESCRIBE_CONFIGS,
    READ,
    RIGHTS_UNKNOWN,
    WRITE,
    Topology,
    allows,
    sink_topics,
)

_NAMES = {READ: "Read", WRITE: "Write", DELETE: "Delete", DESCRIBE_CONFIGS: "DescribeConfigs"}
_USER = "User:NAME"
NO_AUTHORIZER = "the brokers check no rights: they have no authorizer"


class _Need(NamedTuple):
    """A right on a topic; `is_optional` if a worker runs without it."""

    topic: str
    operation: int
    is_optional: bool = False


async def of_topics(facts: Facts) -> AsyncIterator[Line]:
    """Whether we have the rights on the topics that a worker needs."""
    if await _unchecked(facts):
        yield ok(NO_AUTHORIZER)
        return
    topology = await facts.topology()
    missing, silent = 0, list[_Need]()
    for need in _needs(facts, await facts.inputs()):
        rights = _rights_on(topology, need.topic)
        name = _NAMES[need.operation]
        if need.topic in topology.hidden:
            missing += 1
            yield failure(
                "it may not be seen: there is no such topic, or the right Describe on it is missing",
                _grant(need),
                need.topic,
            )
        elif rights == RIGHTS_UNKNOWN:
            silent.append(need)
        elif not allows(rights, need.operation):
            missing += 1
            kind = warning if need.is_optional else failure
            yield kind(f"the right {name} is missing", _grant(need), need.topic)
    for need in silent:
        yield unknown(
            f"the brokers do not report whether we have the right {_NAMES[need.operation]}",
            f"if they check rights: {_grant(need)}",
            need.topic,
        )
    if not missing and not silent:
        yield ok("we have all rights on topics that a worker needs")


def _needs(facts: Facts, inputs: tuple[str, ...]) -> Iterator[_Need]:
    sink = facts.settings.sink
    for name in inputs:
        yield _Need(name, READ)
    if facts.staged:
        middle = facts.settings.source.topic
        for operation in (READ, WRITE, DELETE):
            yield _Need(middle, operation)
        yield _Need(middle, DESCRIBE_CONFIGS, is_optional=True)
    yield _Need(sink.topic, READ)
    for name in sink_topics(sink):
        yield _Need(name, WRITE)
        yield _Need(name, DESCRIBE_CONFIGS, is_optional=True)


def _rights_on(topology: Topology, name: str) -> int:
    if name in topology.topics:
        return topology[name].rights
    return topology.rights_on(name)


def _grant(need: _Need) -> str:
    return _command(f"--topic {need.topic} --operation {_NAMES[need.operation]}")


def _command(what: str) -> str:
    return (
        f"grant it: kafka-acls.sh --bootstrap-server SERVER --add --allow-principal {_USER} {what}"
    )


async def of_groups(facts: Facts) -> AsyncIterator[Line]:
    """Whether we have the right Read on the groups."""
    if await _unchecked(facts):
        yield ok(NO_AUTHORIZER)
        return
    for group in facts.groups:
        rights = await facts.once(f"rights on {group}", partial(_rights_on_group, group))
        command = _command(f"--group {group} --operation Read")
        if rights == RIGHTS_UNKNOWN:
            yield unknown(
                "the brokers do not report whether we have the right Read on it",
                f"if they check rights: {command}",
                group,
            )
        elif allows(rights, READ):
            yield ok("we have the right Read on it", group)
        else:
            yield failure("the right Read on the group is missing", command, group)


async def of_transactions(facts: Facts) -> AsyncIterator[Line]:
    """Whether we may write under our transactional ids: the brokers report only whether we may see them."""
    checked = await facts.once("authorizer", lambda cluster: cluster.checks_rights())
    if checked is False:
        yield ok(NO_AUTHORIZER)
        return
    prefixes = [facts.settings.sink.topic]
    prefixes += [facts.settings.source.topic] if facts.staged else []
    for topic in prefixes:
        command = _command(
            f"--transactional-id {topic}/ --resource-pattern-type prefixed --operation Write"
        )
        seen = checked is None or await facts.once(
            f"transactional id of {topic}", partial(_may_see, f"{topic}/0")
        )
        if seen:
            yield unknown(
                f"the brokers do not report whether we have the right Write on the transactional ids {topic}/*",
                f"if it was not granted yet, {command}",
            )
        else:
            yield failure(f"the right Write on the transactional ids {topic}/* is missing", command)


async def _rights_on_group(group: str, cluster: Cluster) -> int:
    """Return our rights on a group; none if the broker refuses even to describe it."""
    try:
        return await cluster.group_rights(group)
    except Exception as error:
        if refusal(error) is None:
            raise
        return 0


async def _may_see(transactional_id: str, cluster: Cluster) -> bool:
    return await cluster.may_see_transactions(transactional_id)


async def _unchecked(facts: Facts) -> bool:
    """Return whether it is known that the brokers check no rights."""
    return await facts.once("authorizer", lambda cluster: cluster.checks_rights()) is False
