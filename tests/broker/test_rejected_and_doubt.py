"""Rules 8 and 9 of delivery, each by a real broker: what is rejected, what is doubt, and that doubt is not success.

Tombstones that pass are not judged, so no fold hides that one was emitted twice. docs/delivery.md tells which test
holds which rule.
"""

import struct
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamdedup.delivery import fold
from streamdedup.kafka.sink import KafkaWriter
from tests.broker.base import Broker
from tests.broker.proxy import Action, Api, Cut, Delay, Drop, Frame, Hold, Proxy, Replace
from tests.broker.topics import Event, alter_topic, produce, read_all
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start, single, until

HOUR_MS = 3_600_000


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition; ten events a transaction, requests that time out after a second."""
    return impatient(broker, tmp_path).create()


def impatient(broker: Broker, directory: Path) -> Deployment:
    """A deployment of one partition that waits for little, without topics."""
    made = Deployment(broker.bootstrap_servers, directory, partitions=1)
    made.config["kafka"]["producer"] = {"request_timeout_ms": 1000}
    made.config["kafka"]["consumer"]["session_timeout_ms"] = 1000
    made.config["delivery"] |= {"drain_s": 1, "batch_events_max": 10, "commit_interval_ms": 20}
    return made


def tombstones(numbers: Iterable[int]) -> Iterator[Event]:
    """Events that pass without a judgement."""
    for number in numbers:
        yield 0, b"%d" % number, None, [], None


def output_numbers(deployment: Deployment) -> list[int]:
    """The keys of the tombstones in the output, in order."""
    return [int(r.key or b"") for r in read_all(deployment.bootstrap, deployment.sink)]


@pytest.mark.rule(6)
@pytest.mark.rule(8)
async def test_an_event_older_than_the_outputs_retention_is_rejected(
    deployment: Deployment, start: Start
) -> None:
    """The broker would delete it at once: it becomes a dead letter of this moment, and its key stays unknown.

    That goes by the broker's clock, which the marker of an earlier commit shows.
    """
    alter_topic(deployment.bootstrap, deployment.sink, retention_ms=HOUR_MS)
    letters = deployment.create_side_topic("dead_letter_topic")
    now_ms = int(time.time() * 1000)
    worker = start(deployment)
    deployment.feed([(0, b"first", b"first", [], now_ms)])
    await worker.verified()
    old = now_ms - 2 * HOUR_MS
    deployment.feed([(0, b"k", b"old", [], old), (0, b"k", b"new", [], now_ms)])
    await worker.consumed(3)
    assert [r.value for r in read_all(deployment.bootstrap, deployment.sink)] == [b"first", b"new"]
    (letter,) = read_all(deployment.bootstrap, letters)
    assert letter.value == b"old"
    assert dict(letter.headers)["streamdedup.timestamp"] == b"%d" % old
    assert (letter.timestamp_ms or 0) >= now_ms


@pytest.fixture
def patient(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition; no request times out on a busy machine, so each doubt is one that the test makes."""
    return single(broker, tmp_path).create()


@pytest.mark.rule(8)
async def test_limits_are_read_anew_at_a_doubt(patient: Deployment, start: Start) -> None:
    """An output that takes less since: the broker refuses a batch, and the next try rejects what no longer fits."""
    patient.config["sink"]["compression"] = "none"
    letters = patient.create_side_topic("dead_letter_topic")
    worker = start(patient)
    await worker.live()
    alter_topic(patient.bootstrap, patient.sink, max_message_bytes=2000)
    values = [b"small", b"large" * 600, b"small too"]
    patient.feed([(0, value[:9], value, [], None) for value in values])
    await worker.consumed(3)
    assert [r.value for r in read_all(patient.bootstrap, patient.sink)] == values[::2]
    assert [r.value for r in read_all(patient.bootstrap, letters)] == [values[1]]
    assert len(worker.lines("doubt")) == 1


@pytest.mark.rule(9)
async def test_every_send_is_awaited(patient: Deployment, start: Start) -> None:
    """A refused batch fails no commit by itself: only its own answer shows it, that of a side topic, too."""
    patient.config["sink"]["compression"] = "none"
    letters = patient.create_side_topic("dead_letter_topic")
    patient.config["key"] = {"from": "json", "field": "id"}
    worker = start(patient)
    await worker.live()
    alter_topic(patient.bootstrap, letters, max_message_bytes=1500)
    patient.feed([(0, b"bad", b"no json" * 400, [], None), (0, None, b'{"id": 1}', [], None)])
    await worker.consumed(2)
    (letter,) = read_all(patient.bootstrap, letters)
    assert (letter.key, letter.value) == (b"bad", None)
    assert dict(letter.headers)["streamdedup.cut"] == b"value"
    assert lost_and_doubled(patient)[1:] == (0, 0)
    assert len(worker.lines("doubt")) == 1


OF_A_TRANSACTION = (
    Api.ADD_PARTITIONS_TO_TXN,
    Api.PRODUCE,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.END_TXN,
)


@pytest.mark.parametrize(
    ("of_answers", "action"),
    [(False, Cut()), (True, Cut()), (True, Drop())],
    ids=["request cut", "answer cut", "answer lost"],
)
@pytest.mark.rule(9)
async def test_an_unknown_outcome_is_settled_by_the_broker(
    deployment: Deployment, start: Start, of_answers: bool, action: Action
) -> None:
    """Whichever request of a transaction is cut off or never answered: doubt each time, nothing lost or doubled."""
    letters = deployment.create_side_topic("dead_letter_topic")
    with Proxy(deployment.bootstrap) as proxy:
        worker = start(deployment, proxy)
        await worker.live()
        for step, api in enumerate(OF_A_TRANSACTION):
            proxy.rule = _once(api, of_answers, action)
            deployment.feed(tombstones(range(10 * step, 10 * step + 10)))
            await worker.committed(10 * step + 10)
            await worker.logged("doubt", step + 1)
        assert len(worker.lines("doubt")) == len(OF_A_TRANSACTION)
        await worker.stop()
    assert output_numbers(deployment) == list(range(50))
    assert read_all(deployment.bootstrap, letters) == []


def _once(api: Api, of_answers: bool, action: Action) -> Any:
    done: list[Frame] = []

    def rule(frame: Frame) -> Action | None:
        if done or (frame.api, frame.is_answer) != (api, of_answers):
            return None
        done.append(frame)
        return action

    return rule


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
