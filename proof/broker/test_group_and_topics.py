"""More of rules 11 and 12 of delivery, by a real broker: the group, long folds, and topics that are not there."""

import struct
import threading
from pathlib import Path

import pytest

from streamdedup.errors import ConfigError
from tests.broker.base import Broker
from tests.broker.proxy import Action, Api, Delay, Frame, Hold, Proxy, Replace
from tests.broker.topics import (
    create_topic,
    produce,
)
from tests.deployment import Deployment, keyed
from tests.local import Start, single


@pytest.mark.rule(11)
async def test_a_long_fold_takes_snapshots_as_it_goes(deployment: Deployment, start: Start) -> None:
    """A fold that is broken off is not begun anew: the next one goes on from its last snapshot."""
    deployment.config["snapshot"]["interval_s"] = 0.1
    for number in range(6):
        produce(deployment.bootstrap, deployment.sink, keyed([number], 1))

    answers: list[Frame] = []

    def slowly(frame: Frame) -> Action | None:
        if frame.api != Api.FETCH or deployment.sink.encode() not in frame.message:
            return None
        if frame.is_answer:
            answers.append(frame)
            return Delay(0.2) if len(answers) < 4 else Hold(threading.Event())
        return Replace(frame.message.replace(struct.pack(">i", 4 << 20), struct.pack(">i", 100)))

    with Proxy(deployment.bootstrap, slowly) as proxy:
        first = start(deployment, proxy)
        saved = (await first.logged("snapshot_saved"))[0]
        assert 0 < saved["label"] < 6
        assert first.lines("output_folded") == []
        await first.stop()
    second = start(deployment)
    assert (await second.logged("output_folded"))[0]["start"] >= saved["label"]


@pytest.mark.rule(11)
async def test_a_member_offers_the_name_of_its_meaning_alone(
    deployment: Deployment, start: Start
) -> None:
    """By a second one, workers of another meaning could join the group."""
    joins: list[bytes] = []

    def watch(frame: Frame) -> None:
        if frame.api == Api.JOIN_GROUP and not frame.is_answer:
            joins.append(frame.message)

    with Proxy(deployment.bootstrap, watch) as proxy:
        worker = start(deployment, proxy)
        await worker.live()
        await worker.stop()
    (line,) = worker.lines("worker_starts")
    one_protocol = b"consumer" + struct.pack(">i", 1) + struct.pack(">h", len(line["meaning"]))
    assert joins
    assert all(one_protocol + line["meaning"].encode() in join for join in joins)


@pytest.mark.needs_broker("topic ids")  # others are asked for all topics
@pytest.mark.rule(12)
async def test_asking_for_a_topic_never_names_it_alone(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """Until a topic is known to exist it is asked for with the flag that forbids the broker to create it."""
    deployment = single(broker, tmp_path)
    create_topic(deployment.bootstrap, deployment.source)
    asked: list[bytes] = []

    def watch(frame: Frame) -> None:
        asks = frame.api == Api.METADATA and not frame.is_answer
        if asks and deployment.sink.encode() in frame.message:
            asked.append(frame.message)

    with Proxy(deployment.bootstrap, watch) as proxy:
        worker = start(deployment, proxy)
        with pytest.raises(ConfigError, match="does not exist"):
            await worker.task
    assert asked
    for (
        message
    ) in asked:  # v10 ends in: topics' tags, allow_auto_topic_creation, two more flags, tags
        assert struct.unpack(">hh", message[:4]) == (Api.METADATA, 10)
        assert message[-4] == 0
