"""What a shard asks and does once it has fenced others, and in which order, over a broker in memory."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from streamdedup.delivery import State
from streamdedup.kafka.offsets import Note
from streamdedup.settings import Settings
from streamdedup.testing import MemoryBroker, VirtualLoop, connected_to
from streamdedup.testing.network import DirectNetwork
from streamdedup.worker import Worker

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

    def emit_and_commit() -> None:
        broker.produce("out", [(0, b"a", b"value")])
        note = Note("memory", None, None, 1).encode()
        broker.group("group").offsets["in", 0] = (1, note)

    broker = MemoryBroker(Meddling("list_offsets", emit_and_commit))
    broker.create_topic("in")
    broker.create_topic("out")
    broker.produce("in", [(0, b"a", b"value"), (0, b"b", b"value")])
    work(broker, tmp_path, "at_least_once")
    assert {event.key for event in broker.read_all("out")[0]} == {b"a", b"b"}


def test_what_is_undecided_in_the_output_is_waited_for(tmp_path: Path) -> None:
    """A transaction that is open on the output may still be committed: its key is known before anything is decided."""
    broker = MemoryBroker()
    broker.create_topic("in")
    broker.create_topic("out")
    broker.produce("in", [(0, b"a", b"value"), (0, b"b", b"value")])
    output = broker.log("out", 0)
    output.append([(broker.now_ms(), b"a", b"value", ())], "foreign")

    def commit() -> None:
        output.decide("foreign", committed=True)
        output.mark("foreign")

    work(broker, tmp_path, "exactly_once", meanwhile=lambda loop: loop.call_later(3, commit))
    assert [event.key for event in broker.read_all("out")[0]] == [b"a", b"b"]


def test_at_least_once_commits_what_the_output_holds(tmp_path: Path) -> None:
    """At no moment is an offset committed whose events are not in the output yet: a crash then would lose them."""
    held: list[tuple[int, int]] = []

    class Watching(DirectNetwork):
        """Looks at the broker behind each answer."""

        def connect(self) -> "Watching":
            """As `Network.connect`."""
            return self

        def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":
            """As `Connection.request`."""
            answer = super().request(call, act)
            committed = broker.committed("group", "in").get(0, 0)
            held.append((committed, len(broker.log("out", 0).committed())))
            return answer

    broker = MemoryBroker(Watching())
    broker.create_topic("in")
    broker.create_topic("out")
    broker.produce("in", [(0, b"a", b"value"), (0, b"b", b"value")])
    work(broker, tmp_path, "at_least_once")
    assert (2, 2) in held
    assert all(committed <= emitted for committed, emitted in held)


def work(
    broker: MemoryBroker,
    directory: Path,
    guarantee: str,
    meanwhile: Callable[[asyncio.AbstractEventLoop], object] = lambda _loop: None,
) -> None:
    """Run a worker until both events of the input are committed; no shard may stop."""
    tree: dict[str, dict[str, object]] = {
        "kafka": {"bootstrap_servers": "memory:1", "group_id": "group"},
        "source": {"topic": "in"},
        "key": {"from": "key"},
        "filter": {"capacity": 1000},
        "sink": {"topic": "out"},
        "delivery": {"guarantee": guarantee},
        "snapshot": {"directory": str(directory)},
    }
    worker = Worker(Settings.model_validate(tree), connect=connected_to(broker))

    async def main() -> None:
        meanwhile(asyncio.get_running_loop())
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            while broker.committed("group", "in") != {0: 2}:
                assert all(d.state is not State.STOPPED for d in worker.deliveries.values())
                await asyncio.sleep(0.1)
        worker.stop()
        await running

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
