"""Claims about reading a control topic: how much of the loop it takes, and what it reads of a trimmed one."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import streamdedup.worker.list_changes as changes_module
from streamdedup.delivery.recipe import Recipe
from streamdedup.errors import ConfigError
from streamdedup.kafka.records.records import Record
from streamdedup.keys.hashing import MURMUR3
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.lists import control
from streamdedup.lists.control import Change, read_change
from streamdedup.lists.overlay import PARTITIONS_MAX, REMOVED, Changes
from streamdedup.metrics.counts import Meters
from streamdedup.settings import load
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.threads import Lane
from streamdedup.worker.list_changes import ROWS_A_TURN, ControlTopic
from streamdedup.worker.tasks import beside
from tests.deployment import Deployment
from tests.local import Start
from tests.memory import over

ADD, REMOVE = b'{"op": "add"}', b'{"op": "remove"}'
TOPIC = "control"


class Stage:
    """A control topic of two partitions, of which much is fetched at once."""

    def __init__(self, directory: Path, _start: Start | None = None) -> None:
        self.broker = MemoryBroker()
        self.broker.create_topic(TOPIC, 2, cleanup_policy="compact")
        self.broker.fetch_events_max = 10_000
        self.deployment = Deployment("memory:1", directory)

    def write(self, events: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        """Append changes to it."""
        self.broker.produce(TOPIC, events)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[ControlTopic]:
        """Follow it, as a worker does."""
        settings = load(self.deployment.write_config())
        recipe = Recipe(settings, 1)
        async with connected_to(self.broker)(settings.kafka) as cluster:
            topic = ControlTopic(
                recipe, cluster, TOPIC, meters=Meters(), keys=Lane(1), now_ms=lambda: 0
            )
            await topic.catch_up()

            async def follow() -> None:
                async for _ in topic.news():
                    pass

            async with beside(follow()):
                yield topic

    async def read(self) -> ControlTopic:
        """Read all of it, as a worker does before it joins its group."""
        async with self.following() as topic:
            return topic


async def test_changes_take_a_bounded_turn_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many came at once: few rows a turn, in the loop's own thread, and their digests by batch.

    A thread beside the loop would take the interpreter from each kernel of the loop.
    """
    stage, changes, turn = Stage(tmp_path), 20_000, 0
    rows, batches = Counter[int](), list[int]()
    threads = set[threading.Thread]()
    stage.write([(n % 2, b"user%d" % n, ADD) for n in range(changes)])
    apply = Changes.apply

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(next_turn)

    def watched(entry: bytes | None, value: bytes | None, normal: Normalizer | None) -> Change:
        rows[turn] += 1
        threads.add(threading.current_thread())
        return read_change(entry, value, normal)

    def applied(self: Changes, *arguments: object) -> None:
        batches.append(turn)
        apply(self, *arguments)  # type: ignore[arg-type] # as they came

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(changes_module, "read_change", watched)
    monkeypatch.setattr(Changes, "apply", applied)
    loop.call_soon(next_turn)
    topic = await stage.read()
    assert len(topic.overlay) == rows.total() == changes
    assert max(rows.values()) <= ROWS_A_TURN <= 64
    assert threads == {threading.current_thread()}
    assert len(batches) == len(set(batches)) < changes / ROWS_A_TURN * 1.1


@over(Stage)
async def test_addresses_are_read_beside_the_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python code reads each, for up to 1 ms: few in one call of a thread. The loop applies them, in their order."""
    changes, threads = 200, Counter[threading.Thread]()
    calls, appliers = list[int](), set[threading.Thread]()
    apply, run = Changes.apply, Lane.run
    stage.write([(n % 2, f"user{n}@bücher.example".encode(), ADD) for n in range(3)])
    right = [(n % 2, b"user%d@example.com" % n, ADD) for n in range(changes)]
    stage.write(right)

    def watched(entry: bytes | None, value: bytes | None, normal: Normalizer | None) -> Change:
        threads[threading.current_thread()] += 1
        return read_change(entry, value, normal)

    def applied(self: Changes, *arguments: object) -> None:
        appliers.add(threading.current_thread())
        apply(self, *arguments)  # type: ignore[arg-type] # as they came

    async def ran(self: Lane, *arguments: object) -> object:
        before = threads.total()
        found: object = await run(self, *arguments)  # type: ignore[arg-type] # as they came
        calls.append(threads.total() - before)
        return found

    monkeypatch.setattr(changes_module, "read_change", watched)
    monkeypatch.setattr(Changes, "apply", applied)
    monkeypatch.setattr(Lane, "run", ran)
    stage.deployment.config["key"]["normalize"] = "email"
    topic = await stage.read()
    assert len(topic.overlay) == changes
    assert topic._meters.changes_malformed == 3
    assert threads.total() == sum(calls) == changes + 3
    assert threading.current_thread() not in threads
    assert max(calls) <= ROWS_A_TURN
    assert appliers == {threading.current_thread()}


@over(Stage)
async def test_a_partition_that_is_trimmed_is_read_from_its_start(stage: Stage) -> None:
    """While it is read: what is left is in force before the worker serves."""
    stage.broker.fetch_events_max = 100
    stage.write([(0, b"user%d" % n, ADD) for n in range(1_000)])
    log, request = stage.broker.log(TOPIC, 0), MemoryBroker.request

    async def trimming(self: MemoryBroker, *arguments: object) -> object:
        if arguments[1] == "fetch" and log.start == 0:
            log.trim(500)
        return await request(self, *arguments)  # type: ignore[arg-type] # as they came

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryBroker, "request", trimming)
        topic = await stage.read()
    assert (len(topic.overlay), topic.position) == (500, 1_000)


@over(Stage)
async def test_a_running_worker_and_a_new_one_agree_after_partitions_were_added(
    stage: Stage,
) -> None:
    """An entry that moved to another partition is as its later message says, in whichever partition that is."""
    keys = [b"user%d" % n for n in range(60)]

    def write(moves: int, value: bytes | None, at_ms: int) -> None:
        for n, key in enumerate(keys):
            stage.broker.log(TOPIC, (n + moves * (n % 2 + 1)) % 3 if moves else n % 2).append(
                [Record.of(at_ms, key, value)]
            )

    digests = MURMUR3.digests(keys)
    write(0, ADD, 1_000)
    async with stage.following() as running:
        stage.broker.add_partitions(TOPIC, 3)
        for moves, value, at_ms in ((1, REMOVE, 2_000), (2, ADD, 1_500), (2, None, 3_000)):
            write(moves, value, at_ms)
            while running.position < sum(log.end for log in stage.broker.topics[TOPIC].logs):
                await asyncio.sleep(0.1)
            new = await stage.read()
            assert new.position == running.position
            assert list(new.overlay.look_up(digests)) == list(running.overlay.look_up(digests))
            assert list(new.overlay.look_up(digests)) == [REMOVED] * len(keys)


@over(Stage)
async def test_a_malformed_message_may_hide_an_earlier_one_from_a_new_worker(stage: Stage) -> None:
    """Compaction keeps the last message of a record key, whatever it is: the line says so, and names the offset."""
    stage.write([(0, b"user1", ADD), (0, b"user1", b"no JSON")])
    with capture_logs() as lines:
        assert len((await stage.read()).overlay) == 1
    [line] = [line for line in lines if line["event"] == "change_malformed"]
    assert (line["partition"], line["offset"]) == (0, 1)
    assert "an earlier change of its entry stays in force here" in line["note"]
    stage.broker.log(TOPIC, 0).trim(1)  # as compaction takes the first of the two
    assert len((await stage.read()).overlay) == 0
    stage.write([(0, b"user1", ADD)])
    assert len((await stage.read()).overlay) == 1


@over(Stage)
async def test_too_many_partitions_are_refused(stage: Stage) -> None:
    """By number, and with what to do."""
    stage.broker.add_partitions(TOPIC, PARTITIONS_MAX + 1)
    with pytest.raises(ConfigError, match=r"has 4097 partitions, .* name another one in blocklist"):
        await stage.read()


@over(Stage)
async def test_too_many_moved_entries_are_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes memory; the message has the way out."""
    monkeypatch.setattr(control, "MOVED_MAX", 9)
    for count in (9, 10):
        stage.write([(n % 2, b"user%d" % (n // 2), ADD) for n in range(2 * count)])
        if count == 9:
            assert len((await stage.read()).overlay) == 9
    with pytest.raises(ConfigError, match="changes of more than 9 entries in several partitions"):
        await stage.read()


@pytest.mark.parametrize("leaderless", [True, False])
@over(Stage)
async def test_a_partition_in_trouble_holds_up_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, leaderless: bool
) -> None:
    """Without a leader, or with an error at each look: it is tried less and less often, and the others are followed."""
    ask, tries = MemoryCluster.end_offset, list[float]()

    async def end_offset(self: MemoryCluster, topic: str, partition: int) -> int:
        if partition == 0:
            tries.append(asyncio.get_running_loop().time())
            if leaderless:
                await asyncio.Event().wait()
            raise ValueError
        return await ask(self, topic, partition)

    def leader(_self: MemoryCluster, _topic: str, partition: int) -> int | None:
        return None if leaderless and partition == 0 else 0

    async with stage.following() as topic:
        monkeypatch.setattr(MemoryCluster, "end_offset", end_offset)
        monkeypatch.setattr(MemoryCluster, "leader", leader)
        waits = []
        for number in range(40):
            stage.write([(1, b"user%d" % number, ADD)])
            begun_at = asyncio.get_running_loop().time()
            while len(topic.overlay) <= number:
                await asyncio.sleep(0.1)
            waits.append(asyncio.get_running_loop().time() - begun_at)
            await asyncio.sleep(2)
        assert max(waits) < 3
        assert 5 < len(tries) < 15


@pytest.mark.parametrize("error", [KeyError, OSError, MemoryError, ValueError])
@over(Stage)
async def test_an_error_that_nobody_foresaw_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """It is reported by its type alone, since its message may hold a key."""
    monkeypatch.setattr(changes_module, "TOPIC_EVERY_S", 1.0)

    async def broken(*_: object) -> None:
        raise error("user1@example.com")

    with capture_logs() as lines:
        async with asyncio.timeout(600), stage.following() as topic:
            with monkeypatch.context() as patched:
                patched.setattr(changes_module, "control_topic", broken)
                while not any(line["event"] == "changes_behind" for line in lines):
                    await asyncio.sleep(0.1)
            stage.write([(0, b"user7", ADD)])
            while len(topic.overlay) < 1:
                await asyncio.sleep(0.1)
    (line, *_) = [line for line in lines if line["event"] == "changes_behind"]
    assert error.__name__ in line["error"]
    assert error is OSError or "user1@" not in str(line)
