"""One group, one meaning, by a real broker: workers that would take another key of an event wait, and say so."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from tests.broker.base import Broker
from tests.broker.proxy import Action, Api, Drop, Frame, Proxy
from tests.broker.topics import Event, read_all
from tests.deployment import Deployment
from tests.local import LocalWorker, Start

FIRST_EVENTS, USERS = 15_000, 5_000
REJOIN_S_MIN, REJOIN_S_MAX = 1.0, 5.0  # as promised


@pytest.fixture
def pair(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions, keys in JSON, quick to end."""
    made = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    made.config["delivery"]["drain_s"] = 5
    made.config["key"] = {"field": "id"}
    return made


def visits(numbers: range) -> list[Event]:
    """Events with an id of their own, several of one user."""
    values = {n: orjson.dumps({"id": n, "user": n % USERS}) for n in numbers}
    return [(n % 2, None, value, [], None) for n, value in values.items()]


def ids(deployment: Deployment) -> list[int]:
    """The ids of the output's events."""
    output = read_all(deployment.bootstrap, deployment.sink)
    return sorted(orjson.loads(event.value or b"")["id"] for event in output)


def start_with_key(
    start: Start, deployment: Deployment, field: str, proxy: Proxy | None = None
) -> LocalWorker:
    """A worker whose key is in that field."""
    deployment.config["key"] = {"field": field}
    return start(deployment, proxy)


@pytest.mark.rule(11)
async def test_a_sleeper_waits_for_a_group_that_has_changed(pair: Deployment, start: Start) -> None:
    """Its session ended while it heard of nothing; it asks every few seconds, and no time limit of brokers counts."""
    asleep, asked = [False], list[float]()

    def rule(frame: Frame) -> Action | None:
        if frame.api == Api.JOIN_GROUP and not frame.is_answer and not asleep[0]:
            asked.append(time.monotonic())
        return Drop() if asleep[0] and frame.api == Api.HEARTBEAT else None

    pair.config["kafka"]["give_up_after_s"] = 3
    with Proxy(pair.bootstrap, rule) as proxy:
        sleeper = start_with_key(start, pair, "user", proxy)
        await sleeper.live()
        asleep[0] = True
        other = start_with_key(start, pair, "id")
        await other.live()
        asked.clear()
        asleep[0] = False
        proxy.cut_all()
        await sleeper.logged("group_of_another_configuration")
        await sleeper.until(lambda: len(asked) >= 6, "requests")
        gaps = [later - sooner for sooner, later in pairwise(asked)]
        assert all(REJOIN_S_MIN - 0.1 <= gap <= REJOIN_S_MAX + 2 for gap in gaps[1:]), gaps
        pair.feed(visits(range(100)))
        await other.consumed(100)
        await other.stop()
        await sleeper.live()
        assert len(sleeper.lines("keys_changed")) == 2
        await sleeper.stop()
    assert await asyncio.to_thread(ids, pair) == list(range(100))
