"""What a shard asks and does once it has fenced others, and in which order, over a broker in memory."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from typing_extensions import override

from streamdedup.kafka.offsets import Note
from streamdedup.kafka.records.records import Record
from streamdedup.testing import MemoryBroker
from streamdedup.testing.network import DirectNetwork
from tests import memory
from tests.local import Start
from tests.memory import over

T = TypeVar("T")


class Answering(DirectNetwork):
    """Calls `after` with the name of each call, behind the answer to it."""

    def __init__(self, after: Callable[[str], None]) -> None:
        self._after = after

    @override
    def connect(self) -> "Answering":
        return self

    @override
    def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":
        answer = super().request(call, act)
        self._after(call)
        return answer


class Stage(memory.Stage):
    """One partition, whose input has the events `a` and `b`."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start)
        self.fill()

    def fill(self) -> None:
        """Append the events."""
        self.broker.produce(self.source, [(0, b"a", b"value"), (0, b"b", b"value")])

    def at_least_once(self, after: Callable[[str], None]) -> None:
        """Have commits repeated, over another broker that calls `after` behind each of its answers."""
        self.config["delivery"]["guarantee"] = "at_least_once"
        self.broker = MemoryBroker(Answering(after))
        self.broker.create_topic(self.source)
        self.broker.create_topic(self.sink)
        self.fill()

    async def keys(self) -> list[bytes | None]:
        """Those of the output, once a worker has committed both events; no shard may stop."""
        worker = await self.to_the_end()
        assert not worker.lines("shard_stopped")
        return [event.key for event in self.output]


@over(Stage)
async def test_anothers_commit_behind_the_outputs_end_is_no_lost_end(stage: Stage) -> None:
    """At least once, another may emit and commit once we know the output's end, which then seems too low."""
    done = list[None]()

    def emit_and_commit(call: str) -> None:
        if call == "list_offsets" and not done:
            done.append(None)
            stage.broker.produce(stage.sink, [(0, b"a", b"value")])
            note = Note(cluster_id="memory", input_id=None, output_id=None, label=1).encode()
            stage.broker.group(stage.deployment.group).offsets[stage.source, 0] = (1, note)

    stage.at_least_once(emit_and_commit)
    assert set(await stage.keys()) == {b"a", b"b"}
    assert done


@over(Stage)
async def test_what_is_undecided_in_the_output_is_waited_for(stage: Stage) -> None:
    """A transaction that is open on the output may still be committed: its key is known before anything is decided."""
    output = stage.broker.log(stage.sink, 0)
    output.append([Record.of(stage.broker.now_ms(), b"a", b"value")], "foreign")

    def commit() -> None:
        output.decide("foreign", committed=True)
        output.mark("foreign")

    asyncio.get_running_loop().call_later(3, commit)
    assert await stage.keys() == [b"a", b"b"]


@pytest.mark.rule(2)
@over(Stage)
async def test_an_undecided_offset_of_the_group_is_waited_for(stage: Stage) -> None:
    """A transaction that is open on it may still be committed: what it moved the offset over is not emitted again."""
    broker = stage.broker
    foreign, group = broker.transaction("foreign"), broker.group(stage.deployment.group)
    epoch = foreign.fence(60.0)
    foreign.stage(epoch, group, (stage.source, 0), (1, ""), broker.now_ms() / 1000)
    asyncio.get_running_loop().call_later(3, partial(foreign.end, epoch, commit=True))
    assert await stage.keys() == [b"b"]


@over(Stage)
async def test_at_least_once_commits_what_the_output_holds(stage: Stage) -> None:
    """At no moment is an offset committed whose events are not in the output yet: a crash then would lose them."""
    held: list[tuple[int, int]] = []

    def look(_call: str) -> None:
        held.append((stage.committed, len(stage.broker.log(stage.sink, 0).committed())))

    stage.at_least_once(look)
    await stage.keys()
    assert (2, 2) in held
    assert all(committed <= emitted for committed, emitted in held)
