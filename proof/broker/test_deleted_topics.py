"""Topics that are deleted under a running worker, on a broker that creates whatever it is asked for."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamdedup.errors import DeliveryError
from streamdedup.worker import topic_watch
from tests.broker.base import admin_client, wait_until
from tests.broker.plugin import _found
from tests.broker.process import ProcessBroker
from tests.broker.topics import create_topic
from tests.broker.versions import wanted
from tests.deployment import Deployment, keyed
from tests.local import Start

pytestmark = pytest.mark.broker

ANSWER_S = 30.0


@pytest.fixture(scope="module")
def generous() -> Iterator[ProcessBroker]:
    """A broker as it comes out of the box: a request for the metadata of a topic may create it."""

    def started() -> ProcessBroker:
        broker = ProcessBroker(wanted())
        try:
            broker.configure({**broker.settings, "auto.create.topics.enable": "true"})
            broker.format()
            broker.start()
        except BaseException:
            broker.close()
            raise
        return broker

    with closing(_found(started)) as broker:
        yield broker


@pytest.fixture
def deployment(
    generous: ProcessBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Deployment:
    """Three partitions, and clients that look at their topics all the time."""
    monkeypatch.setattr(topic_watch, "EVERY_S", 0.2)
    monkeypatch.setattr(topic_watch, "MISSING_S", 3.0)
    made = Deployment(generous.bootstrap_servers, tmp_path, partitions=3).create()
    made.create_side_topic("duplicates_topic")
    made.config["delivery"]["drain_s"] = 5
    made.config["kafka"]["consumer"]["metadata_max_age_ms"] = 200
    made.config["kafka"]["producer"] = {"metadata_max_age_ms": 200}
    return made


def exists(deployment: Deployment, topic: str) -> bool:
    """Whether the broker lists it; that asks for all topics, and creates none."""
    admin = admin_client(deployment.bootstrap)
    return topic in admin.list_topics(timeout=ANSWER_S).topics


@pytest.mark.parametrize("whose", ["source.topic", "sink.topic", "sink.duplicates_topic"])
@pytest.mark.rule(12)
async def test_a_deleted_topic_stays_deleted(
    deployment: Deployment, start: Start, whose: str
) -> None:
    """Made again by a client, it would have the broker's number of partitions, and keys would pass twice."""
    section, leaf = whose.split(".")
    topic = deployment.config[section][leaf]
    worker = start(deployment)
    deployment.feed(keyed([*range(30), *range(30)], 3))
    await worker.consumed(60)
    admin = admin_client(deployment.bootstrap)
    admin.delete_topics([topic])[topic].result(ANSWER_S)
    wait_until(lambda: not exists(deployment, topic), ANSWER_S, lambda: f"{topic} is still there")
    if section == "sink":
        deployment.feed(keyed(range(20, 60), 3))
    with pytest.raises(DeliveryError, match=f"while the worker ran: {topic};"):
        await worker.task
    assert not exists(deployment, topic)
    create_topic(deployment.bootstrap, topic, 5)  # the operator's own, with his partitions
