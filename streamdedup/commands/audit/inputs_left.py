"""Inputs that the configuration names no more, although the first stage has read them: the output has their events.

The first stage's offset stays on a topic that was taken out of the configuration. What stands below it was copied, so
it is compared as that of any other input.
"""

from collections.abc import Collection
from dataclasses import dataclass

from streamdedup.kafka.base import Cluster
from streamdedup.kafka.topics import READ, Topology
from streamdedup.settings import Settings


@dataclass(frozen=True, slots=True)
class InputsLeft:
    """The topics that were left: those to `read`, with their `logs`, and those that are gone or may not be read."""

    read: tuple[str, ...]
    unreadable: tuple[str, ...]
    logs: Topology

    def beside(self, topology: Topology) -> Topology:
        """Return `topology` with the topics to read."""
        logs = {name: self.logs[name] for name in self.read}
        return Topology(topology.cluster_id, {**topology.topics, **logs})


async def inputs_left(settings: Settings, cluster: Cluster, inputs: Collection[str]) -> InputsLeft:
    """Return the topics beside `inputs` on which the first stage has offsets. `settings` are those of the stage.

    The caller sets a time-out.
    """
    left = sorted(await cluster.topics_of(settings.kafka.group_id) - set(inputs))
    logs = await cluster.describe(left) if left else Topology(None, {})
    read = tuple(name for name in left if name in logs.topics and logs[name].may(READ))
    return InputsLeft(read, tuple(name for name in left if name not in read), logs)
