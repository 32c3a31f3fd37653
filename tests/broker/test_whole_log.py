"""Rules 1 to 3 of delivery, each by a real broker: the fence, what is asked behind it, and our label.

docs/delivery.md tells which test holds which rule.
"""

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from tests.broker.base import DEADLINE_S, client_config
from tests.broker.proxy import Action, Api, Cut, Drop, Frame, Hold, Proxy
from tests.broker.topics import (
    committed,
    produce,
    unique_name,
)
from tests.deployment import Deployment, keyed
from tests.local import Start, keys_of, output_keys, until

# --- rule 1: the fence is named after what it protects ---


@pytest.mark.rule(1)
async def test_whoever_writes_under_the_outputs_name_is_fenced(
    deployment: Deployment, start: Start
) -> None:
    """A transaction that anybody left open as OUTPUT/PARTITION is aborted at the start, and its owner shut out."""
    name = f"{deployment.sink}/0"
    config = client_config(deployment.bootstrap) | {"transactional.id": name}
    other: Any = Producer(config)
    other.init_transactions(DEADLINE_S)
    other.begin_transaction()
    other.produce(deployment.sink, b"v", b"zombie", partition=0)
    other.flush(DEADLINE_S)
    deployment.feed(keyed(range(100), 1))
    worker = start(deployment)
    await worker.consumed(100)
    with pytest.raises(KafkaException):
        other.commit_transaction(DEADLINE_S)
    await worker.stop()
    assert output_keys(deployment) == keys_of(range(100))
    assert worker.lines("doubt") == []


# --- rule 2: what is asked behind the fence ---


@pytest.mark.rule(2)
async def test_the_offset_is_read_behind_the_fence(deployment: Deployment, start: Start) -> None:
    """A former owner's commit is on its way: it must have reached the broker, or be refused, before we ask for it."""
    deployment.config["kafka"]["consumer"]["session_timeout_ms"] = 1000
    deployment.config["delivery"]["drain_s"] = 1
    go, settled = threading.Event(), threading.Event()
    answers: list[Frame] = []

    def of_the_former(frame: Frame) -> Action | None:
        if go.is_set() and is_over(frame):
            settled.set()
        if frame.api == Api.TXN_OFFSET_COMMIT and frame.number > 1:  # the first is the birth's
            return None if frame.is_answer else Hold(go)
        if frame.api in (Api.HEARTBEAT, Api.JOIN_GROUP) and held():
            return Drop()  # the group takes it for dead
        return Cut() if settled.is_set() else None

    def of_the_next(frame: Frame) -> Action | None:
        asked = frame.api == Api.OFFSET_FETCH and frame.is_answer and frame.version == 7
        if not asked or not following.seen[Api.SYNC_GROUP, True]:
            return None
        answers.append(frame)
        if len(answers) == 1:  # to the check of a start, which who has joined makes again
            return None
        go.set()
        return Hold(settled)

    with (
        Proxy(deployment.bootstrap, of_the_former) as former,
        Proxy(deployment.bootstrap, of_the_next) as following,
    ):

        def held() -> bool:
            return any(isinstance(action, Hold) for _, action in former.acted)

        first = start(deployment, former)
        await first.live()
        deployment.feed((0, b"%d" % number, None, [], None) for number in range(10))
        await until(held, first.lines)
        second = start(deployment, following)
        await second.consumed(10)
        assert settled.is_set()
        await first.crash(former)
        await second.stop()
    numbers = [int(key or b"") for key in output_keys(deployment)]
    assert numbers == list(range(10))


def is_over(frame: Frame) -> bool:
    """Whether the former owner's transaction is at its end, or its offset was refused: the answer ends in a code."""
    refused = frame.api == Api.TXN_OFFSET_COMMIT and frame.message[-2:] != b"\0\0"
    return frame.is_answer and (refused or frame.api == Api.END_TXN)


# --- rule 3: contiguity ---


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.rule(3)
async def test_the_label_is_behind_our_last_event(
    deployment: Deployment, start: Start, guarantee: str
) -> None:
    """After each commit, and before the marker that follows it: what others put between the two is still folded."""
    deployment.config["delivery"]["guarantee"] = guarantee
    worker = start(deployment)
    await worker.live()
    for number in range(5):
        deployment.feed(keyed(range(10 * number, 10 * number + 10), 1))
        await worker.consumed(10 * number + 10)
        markers = number if guarantee == "exactly_once" else 0
        assert worker.label == 10 * number + 10 + markers
    assert worker.lines("doubt") == []


@pytest.mark.rule(3)
async def test_foreign_markers_alone_stop_nobody(deployment: Deployment, start: Start) -> None:
    """A transaction of somebody else that was aborted moves our events on: we fold, and go on."""
    # With a shorter session a busy machine loses it in between; then we fold because of that, without a doubt.
    deployment.config["kafka"]["consumer"]["session_timeout_ms"] = 20_000
    worker = start(deployment)
    deployment.feed(keyed(range(10), 1))
    await worker.consumed(10)
    foreign = keyed(range(10, 30), 1)
    produce(deployment.bootstrap, deployment.sink, foreign, unique_name("foreign"), abort=True)
    deployment.feed(keyed(range(5, 20), 1))
    await worker.consumed(25)
    assert output_keys(deployment) == keys_of(range(20))
    (doubt,) = worker.lines("doubt")
    assert "our events were written at offset" in doubt["error"]
    assert worker.lines("shard_stopped") == []


@pytest.mark.rule(3)
async def test_a_second_writers_event_stops_before_the_commit(
    deployment: Deployment, start: Start
) -> None:
    """A foreign event between ours: what we sent is aborted, the offset stays, and the shard stops by name."""
    worker = start(deployment)
    deployment.feed(keyed(range(10), 1))
    await worker.consumed(10)
    produce(deployment.bootstrap, deployment.sink, keyed([10**6], 1))
    deployment.feed(keyed(range(10, 20), 1))
    assert "second writer" in await worker.stopped()
    assert output_keys(deployment) == keys_of([*range(10), 10**6])
    assert committed(deployment.bootstrap, deployment.group, deployment.source) == {0: 10}
