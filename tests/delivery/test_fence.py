"""What a shard asks and does once it has fenced others, and in which order, over a broker in memory."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from typing_extensions import override

from streamdedup.kafka.offsets import Note
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.network import DirectNetwork
from tests.deployment import Deployment
from tests.local import Start, on_virtual_clock

T = TypeVar("T")


class Meddling(DirectNetwork):
    """Has something done behind the first answer to `call`."""

    def __init__(self, call: str, meddle: Callable[[], None]) -> None:
        self._call, self._meddle = call, meddle
        self.done = False

    @override
    def connect(self) -> "Meddling":
        return self

    @override
    def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":
        answer = super().request(call, act)
        if call == self._call and not self.done:
            self.done = True
            self._meddle()
        return answer


def test_anothers_commit_behind_the_outputs_end_is_no_lost_end(tmp_path: Path) -> None:
    """At least once, another may emit and commit once we know the output's end, which then seems too low."""
    deployment = at_least_once(tmp_path)

    def emit_and_commit() -> None:
        broker.produce(deployment.sink, [(0, b"a", b"value")])
        note = Note(cluster_id="memory", input_id=None, output_id=None, label=1).encode()
        broker.group(deployment.group).offsets[deployment.source, 0] = (1, note)

    broker = MemoryBroker(Meddling("list_offsets", emit_and_commit))
    fill(broker, deployment)
    work(broker, deployment)
    assert {event.key for event in broker.read_all(deployment.sink)[0]} == {b"a", b"b"}


def test_what_is_undecided_in_the_output_is_waited_for(tmp_path: Path) -> None:
    """A transaction that is open on the output may still be committed: its key is known before anything is decided."""
    deployment = Deployment("memory:1", tmp_path, partitions=1)
    broker = MemoryBroker()
    fill(broker, deployment)
    output = broker.log(deployment.sink, 0)
    output.append([(broker.now_ms(), b"a", b"value", ())], "foreign")

    def commit() -> None:
        output.decide("foreign", committed=True)
        output.mark("foreign")

    work(broker, deployment, meanwhile=lambda loop: loop.call_later(3, commit))
    assert [event.key for event in broker.read_all(deployment.sink)[0]] == [b"a", b"b"]


@pytest.mark.rule(2)
def test_an_undecided_offset_of_the_group_is_waited_for(tmp_path: Path) -> None:
    """A transaction that is open on it may still be committed: what it moved the offset over is not emitted again."""
    deployment = Deployment("memory:1", tmp_path, partitions=1)
    broker = MemoryBroker()
    fill(broker, deployment)
    foreign, group = broker.transaction("foreign"), broker.group(deployment.group)
    epoch = foreign.fence(60.0)
    foreign.stage(epoch, group, (deployment.source, 0), (1, ""), broker.now_ms() / 1000)
    commit = partial(foreign.end, epoch, commit=True)
    work(broker, deployment, meanwhile=lambda loop: loop.call_later(3, commit))
    assert [event.key for event in broker.read_all(deployment.sink)[0]] == [b"b"]


def test_at_least_once_commits_what_the_output_holds(tmp_path: Path) -> None:
    """At no moment is an offset committed whose events are not in the output yet: a crash then would lose them."""
    held: list[tuple[int, int]] = []
    deployment = at_least_once(tmp_path)

    class Watching(DirectNetwork):
        """Looks at the broker behind each answer."""

        @override
        def connect(self) -> "Watching":
            return self

        @override
        def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":
            answer = super().request(call, act)
            committed = broker.committed(deployment.group, deployment.source).get(0, 0)
            held.append((committed, len(broker.log(deployment.sink, 0).committed())))
            return answer

    broker = MemoryBroker(Watching())
    fill(broker, deployment)
    work(broker, deployment)
    assert (2, 2) in held
    assert all(committed <= emitted for committed, emitted in held)


def at_least_once(directory: Path) -> Deployment:
    """For a worker whose commits may be repeated."""
    deployment = Deployment("memory:1", directory, partitions=1)
    deployment.config["delivery"]["guarantee"] = "at_least_once"
    return deployment


def fill(broker: MemoryBroker, deployment: Deployment) -> None:
    """Make both topics; two events are in the input."""
    broker.create_topic(deployment.source)
    broker.create_topic(deployment.sink)
    broker.produce(deployment.source, [(0, b"a", b"value"), (0, b"b", b"value")])


def work(
    broker: MemoryBroker,
    deployment: Deployment,
    meanwhile: Callable[[asyncio.AbstractEventLoop], object] = lambda _loop: None,
) -> None:
    """Run a worker until both events are committed; no shard may stop."""

    async def scene(start: Start) -> None:
        meanwhile(asyncio.get_running_loop())
        worker = start(deployment, connect=connected_to(broker))
        await worker.until(
            lambda: broker.committed(deployment.group, deployment.source) == {0: 2}, "the end"
        )
        assert not worker.lines("shard_stopped")

    on_virtual_clock(scene)
