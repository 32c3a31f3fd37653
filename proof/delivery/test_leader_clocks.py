"""More claims about a worker whose clock is wrong: no markers, or no answer."""

import asyncio

import pytest

from streamdedup.testing.cluster import MemoryCluster
from tests.delivery.test_leader_clocks import HOUR_MS, Stage, good
from tests.memory import over


@over(Stage)
async def test_without_markers_the_broker_refuses_and_halving_finds_it(stage: Stage) -> None:
    """At least once: nothing is rejected for its time beforehand, whatever our clock says."""
    stage.config["delivery"]["guarantee"] = "at_least_once"
    stage.ahead_ms = -2 * HOUR_MS
    worker = await stage.works()
    stage.send(good(0, 20))
    stage.send(good(20, 1), 2 * HOUR_MS)
    stage.send(good(21, 20))
    await worker.consumed(41)
    assert len(stage.output) == 40
    assert stage.reasons() == [b"refused by out: InvalidTimestamp"]


@over(Stage)
async def test_a_broker_that_shows_no_marker_holds_up_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the question for it raises or however long it takes, events go on; the clock stays unverified."""

    async def never(*_: object) -> None:
        await asyncio.sleep(3600)

    async def fails(*_: object) -> None:
        raise OSError("no route to host")

    worker = await stage.works()
    for number, answer in enumerate((never, fails)):
        monkeypatch.setattr(MemoryCluster, "stamp", answer)
        stage.send(good(number * 10, 10))
        await worker.consumed(number * 10 + 10)
        await asyncio.sleep(10)
    clocks = worker.worker.status.clocks
    assert clocks is not None
    assert not clocks.is_verified([0])
