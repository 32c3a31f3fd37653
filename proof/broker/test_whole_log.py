"""More of rules 1 to 3 of delivery, by a real broker: who writes to the output, and where our events stand in it."""

import asyncio
import struct
from typing import Any

import pytest

from streamdedup.kafka.sink import KafkaWriter
from tests.broker.proxy import Action, Api, Frame, Proxy, Replace
from tests.broker.topics import (
    produce,
    unique_name,
)
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start, keys_of, output_keys


async def test_aborted_events_that_a_waiting_read_passes_are_no_doubt(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input's. The read ends with the commit that it waited beside, when the consumer has passed them."""
    commit, may_commit = KafkaWriter.commit, asyncio.Event()

    async def held(writer: KafkaWriter, *arguments: Any) -> None:
        await may_commit.wait()
        await commit(writer, *arguments)

    async def read_up_to(offset: int) -> None:
        source = worker.worker._source
        assert source is not None
        await worker.until(lambda: source.position(0) == offset, f"read up to {offset}")

    deployment.config["delivery"]["commit_interval_ms"] = 10
    worker = start(deployment)
    deployment.feed(keyed([0], 1))
    await worker.consumed(1)
    monkeypatch.setattr(KafkaWriter, "commit", held)
    for number in range(1, 6):  # two fill transactions, the others the one that waits for room
        await asyncio.to_thread(deployment.feed, keyed([number], 1))
        await read_up_to(number + 1)
    aborted = list(keyed(range(100, 120), 1))
    name = unique_name("aborted")
    where = deployment.bootstrap, deployment.source
    producing = asyncio.create_task(asyncio.to_thread(produce, *where, aborted, name, abort=True))
    await read_up_to(6 + len(aborted) + 1)
    may_commit.set()
    await producing
    await asyncio.to_thread(deployment.feed, keyed([6], 1))
    await worker.consumed(7)
    assert worker.lines("doubt") == []
    assert output_keys(deployment) == keys_of(range(7))


@pytest.mark.parametrize("events", [1, 2])
@pytest.mark.rule(3)
async def test_a_second_writers_event_before_our_marker_is_found(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    """Written when all of ours were acknowledged and not committed yet: it is seen at the next transaction."""
    commit = KafkaWriter.commit
    foreign = list(keyed(range(10**6, 10**6 + events), 1))

    async def late(writer: KafkaWriter, *arguments: Any) -> None:
        if writer._sent:
            await asyncio.to_thread(produce, deployment.bootstrap, deployment.sink, foreign)
            monkeypatch.undo()
        await commit(writer, *arguments)

    monkeypatch.setattr(KafkaWriter, "commit", late)
    worker = start(deployment)
    deployment.feed(keyed(range(10), 1))
    await worker.consumed(10)
    deployment.feed(foreign)
    assert "has a second writer: offset 10 is not ours" in await worker.stopped()
    await worker.stop()
    await start(deployment).through(events)
    assert output_keys(deployment) == keys_of([*range(10), *range(10**6, 10**6 + events)])


@pytest.mark.rule(3)
async def test_an_acknowledgement_without_an_offset_is_doubt(
    deployment: Deployment, start: Start
) -> None:
    """A broker that takes a batch and returns no offset leaves its place unknown: fence, fold, and send it anew."""
    with Proxy(deployment.bootstrap) as proxy:
        worker = start(deployment, proxy)
        await worker.live()
        replaced: list[int] = []
        proxy.rule = lambda frame: _without_offset(frame, deployment.sink, replaced)
        deployment.feed(keyed(range(10), 1))
        await worker.consumed(10)
        await worker.stop()
    assert len(replaced) == 1
    assert "reported no offset" in worker.lines("doubt")[0]["error"]
    assert lost_and_doubled(deployment) == (0, 0, 0)


def _without_offset(frame: Frame, topic: str, replaced: list[int]) -> Action | None:
    """Once: Produce's answer for `topic` with the offset -1."""
    name = topic.encode()
    if frame.api != Api.PRODUCE or not frame.is_answer or replaced or name not in frame.message:
        return None
    at = frame.message.index(name) + len(name) + 4 + 4 + 2  # count, partition, error
    replaced.append(struct.unpack_from(">q", frame.message, at)[0])
    return Replace(frame.message[:at] + struct.pack(">q", -1) + frame.message[at + 8 :])
