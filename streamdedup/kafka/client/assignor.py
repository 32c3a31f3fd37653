"""The assignor of a consumer group: aiokafka's sticky one, under a name that says who may share the group.

A member offers the group this one assignor. As long as the group has a member, the coordinator refuses every other that
does not offer an assignor of the same name (error 23, inconsistent group protocol); an empty group takes any.

We rely on `StickyPartitionAssignor` keeping what it remembers of its member in the class, as `member_assignment`.
"""

from collections.abc import Sequence

from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor


def sticky_assignor(group_name: str) -> type[StickyPartitionAssignor]:
    """Return the sticky assignor under the name `group_name`: a new class, because each consumer needs its own."""

    class NamedAssignor(StickyPartitionAssignor):
        name = group_name
        member_assignment: Sequence[TopicPartition] | None = None

    return NamedAssignor
