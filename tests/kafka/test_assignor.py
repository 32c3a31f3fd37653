"""Claims about the assignor that carries a name: it is aiokafka's sticky one, and each consumer has its own."""

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment as Assignment

from streamdedup.kafka.client.assignor import sticky_assignor

PARTITIONS = 6


class Topic(ClusterMetadata):  # type: ignore[misc]  # aiokafka has no types
    """A cluster with one topic."""

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:  # noqa: ARG002 - as aiokafka's
        """The only one."""
        return {"in"}

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Its partitions."""
        assert topic == "in"
        return set(range(PARTITIONS))


def assigned(leader: type[StickyPartitionAssignor], members: dict[str, Any]) -> dict[str, set[int]]:
    """What the leader assigns to members, by the assignors that they have."""
    offered = {name: assignor.metadata(["in"]) for name, assignor in members.items()}
    given = leader.assign(Topic(), offered)
    for name, assignor in members.items():
        assignor.on_assignment(given[name])
    return {name: _partitions(assignment) for name, assignment in given.items()}


def _partitions(assignment: Assignment) -> set[int]:
    return {where.partition for where in assignment.partitions()}


def test_no_two_consumers_share_what_they_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aiokafka keeps it in the class: a consumer that begins anew would claim what another one of the process has."""
    first, second = sticky_assignor("one"), sticky_assignor("one")
    assert first.name == "one"
    first.on_assignment(Assignment(0, [("in", [1, 2])], b""))
    assert StickyPartitionAssignor.member_assignment is None
    monkeypatch.setattr(StickyPartitionAssignor, "member_assignment", [TopicPartition("in", 3)])
    assert second.member_assignment is None
    assert second.metadata(["in"]).user_data == b""


def test_members_keep_their_partitions() -> None:
    """If one of three leaves, what the others have stays, and what is free is shared."""
    members = {name: sticky_assignor("one") for name in "abc"}
    before = assigned(members["a"], members)
    del members["a"]
    after = assigned(members["b"], members)
    assert {len(partitions) for partitions in after.values()} == {PARTITIONS // 2}
    assert all(before[name] < after[name] for name in members)
