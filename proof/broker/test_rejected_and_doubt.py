"""Rules 8 and 9 of delivery, each by a real broker: what is rejected, what is doubt, and that doubt is not success.

Tombstones that pass are not judged, so no fold hides that one was emitted twice. docs/delivery.md tells which test
holds which rule.
"""

import asyncio
import gc
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from streamdedup.delivery import fold
from streamdedup.kafka.sink import KafkaWriter
from tests.broker.base import OwnedBroker
from tests.broker.proxy import Action, Api, Cut, Delay, Drop, Frame, Hold, Proxy, Replace
from tests.broker.test_rejected_and_doubt import (
    deployment,  # noqa: F401 - fixtures
    impatient,
    output_numbers,
    tombstones,
)
from tests.broker.topics import produce
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start, until

pytestmark = pytest.mark.broker


FENCINGS = 8  # one in two left a failure behind


class LateRequest:
    """A proxy's rule: the first request of `api` is late, and arrives in the midst of the next transaction.

    After that one, too, has come so far, nothing passes any more, as if its owner had died.
    """

    def __init__(self, api: Api) -> None:
        self.over = threading.Event()
        self._api = api
        self._late: Frame | None = None
        self._began = False  # whether the next transaction has
        self._go, self._arrived = threading.Event(), threading.Event()
        # The late end must come after the next transaction's events; a late offset after its offset, before its end.
        ends = api == Api.END_TXN
        self._then = Api.PRODUCE if ends else Api.TXN_OFFSET_COMMIT
        self._next = Api.ADD_OFFSETS_TO_TXN if ends else Api.END_TXN

    def __call__(self, frame: Frame) -> Action | None:
        """What becomes of the frame."""
        if self.over.is_set():
            return Cut()
        late = self._late
        if late is None:
            if frame.api != self._api or frame.is_answer:
                return None
            self._late = frame
            return Hold(self._go)
        if (frame.is_answer, frame.connection, frame.correlation_id) == (
            True,
            late.connection,
            late.correlation_id,
        ):
            self._arrived.set()
            if self._next == Api.ADD_OFFSETS_TO_TXN:
                self.over.set()
        elif frame.is_answer and frame.api in (Api.END_TXN, Api.INIT_PRODUCER_ID):
            if self._go.is_set():
                self.over.set()
            self._began = True
        elif frame.is_answer and frame.api == self._then and self._began:
            self._go.set()
        elif frame.api == self._next and not frame.is_answer and self._go.is_set():
            return Hold(self._arrived)
        return None


@pytest.mark.parametrize("api", [Api.END_TXN, Api.TXN_OFFSET_COMMIT], ids=["end", "offset"])
@pytest.mark.parametrize("defence", ["deadline", "replaced connection"])
@pytest.mark.rule(9)
async def test_a_late_duplicate_hits_no_later_transaction(
    deployment: Deployment,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    api: Api,
    defence: str,
) -> None:
    """What was resent and arrives late would end another transaction, or move its offset; each defence prevents it."""
    if defence == "deadline":
        monkeypatch.setattr(KafkaWriter, "_check_connections", lambda _self: None)
    else:
        monkeypatch.setattr(KafkaWriter, "transaction_s_max", 30.0)
    deployment.feed(tombstones(range(30)))
    with Proxy(deployment.bootstrap) as proxy:
        rule = LateRequest(api)
        proxy.rule = rule
        first = start(deployment, proxy)
        await until(rule.over.is_set, first.lines)
        await first.crash(proxy)
    second = start(deployment)
    await second.committed(30)
    assert output_numbers(deployment) == list(range(30))


@pytest.mark.private_broker
@pytest.mark.rule(9)
async def test_a_broker_that_pauses_within_a_transaction(
    private_broker: OwnedBroker, tmp_path: Path, start: Start
) -> None:
    """Nothing answers beyond every deadline: doubt; when it goes on, what was under way is settled exactly."""
    deployment = impatient(private_broker, tmp_path).create()
    with Proxy(deployment.bootstrap) as proxy:
        worker = start(deployment, proxy)
        await worker.live()
        paused = threading.Event()

        def pause_it(frame: Frame) -> None:
            if frame.api == Api.TXN_OFFSET_COMMIT and frame.is_answer and not paused.is_set():
                private_broker.pause()
                paused.set()

        proxy.rule = pause_it
        deployment.feed(tombstones(range(30)))
        await worker.logged("doubt")
        private_broker.resume()
        await worker.committed(30)
        await worker.stop()
    assert paused.is_set()
    assert output_numbers(deployment) == list(range(30))


@pytest.mark.rule(9)
async def test_a_fold_may_take_long_as_long_as_it_moves(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deadline is on progress: a fold of many times that is no doubt, one that stands still is."""
    monkeypatch.setattr(fold, "STALL_S_MAX", 3.0)
    for number in range(8):  # in as many record batches
        produce(deployment.bootstrap, deployment.sink, keyed([number], 1))
    moves = threading.Event()

    def slowly(frame: Frame) -> Action | None:
        if frame.api != Api.FETCH or deployment.sink.encode() not in frame.message:
            return None
        if frame.is_answer:
            return Delay(0.5) if moves.is_set() else Drop()
        return Replace(frame.message.replace(struct.pack(">i", 4 << 20), struct.pack(">i", 100)))

    with Proxy(deployment.bootstrap, slowly) as proxy:
        worker = start(deployment, proxy)
        (away,) = await worker.logged("broker_away")
        assert "nothing could be read at offset 0 for 3 s" in away["error"]
        moves.set()
        await worker.live()
        assert not worker.lines("doubt")
        assert worker.lines("output_folded")[0]["events"] == 8
        assert proxy.seen[Api.FETCH, True] >= 8
        await worker.stop()


async def test_a_fencing_leaves_no_failure_that_nobody_looked_at(
    deployment: Deployment, start: Start
) -> None:
    """Asyncio would report each one at level error, with a traceback, although the doubt was logged and settled."""
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context))
    async with start(deployment) as worker:
        await worker.live()
        for turn in range(FENCINGS):
            name = f"{deployment.sink}/0"
            await asyncio.to_thread(produce, deployment.bootstrap, deployment.sink, [], name)
            deployment.feed(keyed(range(100 * turn, 100 * turn + 100), 1))
            await worker.consumed(100 * turn + 100)
    assert worker.worker.status.meters.of(0).doubts["fenced"] >= FENCINGS
    gc.collect()
    assert unseen == []
    assert lost_and_doubled(deployment) == (0, 0, 0)
