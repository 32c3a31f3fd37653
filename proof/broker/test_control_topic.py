"""Whatever becomes of the control topic of a block list: events flow on, the log says what is wrong, none is missed."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

import streamdedup.worker.list_changes as changes_module
from streamdedup.events import Verdict
from streamdedup.lists.changed_list import ChangedList
from tests.broker.base import DEADLINE_S, Broker, client_config
from tests.broker.proxy import Proxy
from tests.broker.topics import Event, create_topic, delete_topic, produce, unique_name
from tests.deployment import Deployment, keyed
from tests.lists.files import list_file
from tests.local import LocalWorker, Start, single
from tests.memory import measured

ADD = b'{"op": "add"}'


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """One partition without a filter, screened by a list that holds nobody of the events, and a control topic."""
    monkeypatch.setattr(changes_module, "TOPIC_EVERY_S", 1.0)
    made = single(broker, tmp_path).create()
    made.config["filter"] = {"kind": "none"}
    del made.config["snapshot"]
    made.config["blocklist"] = {
        "file": str(list_file(tmp_path / "block.list", [b"nobody"])),
        "control_topic": create_control(made, unique_name("control")),
    }
    return made


def create_control(deployment: Deployment, name: str) -> str:
    """Create a control topic of two partitions."""
    create_topic(deployment.bootstrap, name, 2, cleanup_policy="compact")
    return name


def control_of(deployment: Deployment) -> str:
    """The name of the control topic."""
    return str(deployment.config["blocklist"]["control_topic"])


def added(numbers: Iterable[int]) -> list[Event]:
    """Messages that add the keys of those events, to both partitions in turn."""
    return [(number % 2, b"user%d@example.com" % number, ADD, [], None) for number in numbers]


async def write(deployment: Deployment, numbers: Iterable[int]) -> None:
    """Add keys to the list."""
    topic, events = control_of(deployment), added(numbers)
    await asyncio.to_thread(produce, deployment.bootstrap, topic, events)


def in_force(worker: LocalWorker) -> ChangedList:
    """The block list by which the worker judges now."""
    found = worker.worker.status.lists.now.block
    assert isinstance(found, ChangedList)
    return found


async def holds(worker: LocalWorker, keys: int) -> None:
    """Wait until so many keys are changed."""
    await worker.until(lambda: len(in_force(worker).overlay) == keys, f"{keys} changes in force")


def behind_s(worker: LocalWorker) -> float:
    """The metric: for how long the topic could not be read to its end."""
    (seconds,) = measured(worker, "list_changes_behind_seconds")
    return seconds


async def blocks(deployment: Deployment, worker: LocalWorker, numbers: Iterable[int]) -> int:
    """Feed events, and return how many of them are blocked, once all are committed."""
    fed, before, consumed = [*numbers], worker.tally[Verdict.BLOCKED], worker.tally.consumed
    await asyncio.to_thread(deployment.feed, keyed(fed, 1))
    await worker.consumed(consumed + len(fed))
    return worker.tally[Verdict.BLOCKED] - before


@asynccontextmanager
async def at_work(
    deployment: Deployment, start: Start, numbers: Iterable[int], proxy: Proxy | None = None
) -> AsyncIterator[LocalWorker]:
    """Start a worker that has read a change for each of `numbers`."""
    written = [*numbers]
    await write(deployment, written)
    async with start(deployment, proxy) as worker:
        await worker.live()
        await holds(worker, len(written))
        yield worker


async def test_a_deleted_topic_ends_no_worker(deployment: Deployment, start: Start) -> None:
    """The changes that were read stay in force; the log and the metric say that no more come."""
    async with at_work(deployment, start, range(5)) as worker:
        await asyncio.to_thread(delete_topic, deployment.bootstrap, control_of(deployment))

        def told() -> bool:
            return any("does not exist" in line["error"] for line in worker.lines("changes_behind"))

        await worker.until(told, "line about the missing topic")
        assert await blocks(deployment, worker, range(10)) == 5
        await worker.until(lambda: behind_s(worker) > 3, "metric that tells of it")
        assert not worker.task.done()


@pytest.mark.parametrize("count", [12, 5, 3])
@pytest.mark.needs_broker("topic ids")
async def test_another_topic_of_the_name_is_read_from_its_start(
    deployment: Deployment, start: Start, count: int
) -> None:
    """Made again with more, as many, or fewer changes than were read: all of its own are in force, and no others."""
    async with at_work(deployment, start, range(5)) as worker:
        before = in_force(worker).overlay
        await asyncio.to_thread(delete_topic, deployment.bootstrap, control_of(deployment))
        await asyncio.to_thread(create_control, deployment, control_of(deployment))
        await write(deployment, range(100, 100 + count))
        (line,) = await worker.logged("control_topic_remade")
        assert (line["log_level"], line["keys_changed"]) == ("warning", 5)
        await worker.until(lambda: in_force(worker).overlay is not before, "other changes")
        await holds(worker, count)
        assert in_force(worker).position == count
        assert await blocks(deployment, worker, [*range(5), *range(100, 120)]) == count
        await worker.until(lambda: behind_s(worker) < 3, "topic that is read")


async def test_an_open_transaction_shows(deployment: Deployment, start: Start) -> None:
    """What stands behind it cannot be read: the log names it, and the metric counts from the first unread change."""
    deployment.config["delivery"]["open_transaction_s"] = 1
    async with at_work(deployment, start, range(5)) as worker:
        foreign = Producer(
            client_config(deployment.bootstrap)
            | {"transactional.id": unique_name("foreign"), "linger.ms": 0}
        )
        await asyncio.to_thread(foreign.init_transactions, DEADLINE_S)
        foreign.begin_transaction()
        foreign.produce(control_of(deployment), ADD, b"user50@example.com", 0)
        await asyncio.to_thread(foreign.flush, DEADLINE_S)
        await write(deployment, [52, 53])
        (line,) = await worker.logged("changes_behind")
        assert (line["partition"], line["offset"]) == (0, 3)
        assert line["producer_id"] >= 0
        assert f"--topic {control_of(deployment)} --partition 0 --start-offset 3" in line["remedy"]
        await holds(worker, 6)
        await worker.until(lambda: behind_s(worker) > 3, "metric that tells of it")
        await asyncio.to_thread(foreign.commit_transaction, DEADLINE_S)
        await holds(worker, 8)
        await worker.until(lambda: behind_s(worker) < 3, "topic that is read")
