"""What a shard asks once it has fenced others, and in which order."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from streamdedup.kafka.offsets import Note
from streamdedup.testing import MemoryBroker, VirtualLoop, connected_to
from streamdedup.testing.network import DirectNetwork
from tests.deployment import Deployment
from tests.local import workers

T = TypeVar("T")


class Meddling(DirectNetwork):
    """Has something done behind the first answer to `call`."""

    def __init__(self, call: str, meddle: Callable[[], None]) -> None:
        self._call, self._meddle = call, meddle
        self.done = False

    def connect(self) -> "Meddling":
        """As `Network.connect`."""
        return self

    def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":
        """As `Connection.request`."""
        answer = super().request(call, act)
        if call == self._call and not self.done:
            self.done = True
            self._meddle()
        return answer


def test_anothers_commit_behind_the_outputs_end_is_no_lost_end(tmp_path: Path) -> None:
    """At least once, another may emit and commit once we know the output's end, which then seems too low."""
    deployment = Deployment("memory:1", tmp_path, partitions=1)
    deployment.config["delivery"]["guarantee"] = "at_least_once"

    def emit_and_commit() -> None:
        broker.produce(deployment.sink, [(0, b"a", b"value")])
        note = Note("memory", None, None, 1).encode()
        broker.group(deployment.group).offsets[deployment.source, 0] = (1, note)

    broker = MemoryBroker(Meddling("list_offsets", emit_and_commit))
    broker.create_topic(deployment.source)
    broker.create_topic(deployment.sink)
    broker.produce(deployment.source, [(0, b"a", b"value"), (0, b"b", b"value")])

    async def main() -> None:
        async with workers() as start:
            worker = start(deployment, connect=connected_to(broker))
            await worker.until(
                lambda: broker.committed(deployment.group, deployment.source) == {0: 2}, "the end"
            )
            assert not worker.lines("shard_stopped")

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert {event.key for event in broker.read_all(deployment.sink)[0]} == {b"a", b"b"}
