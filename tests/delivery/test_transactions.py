"""Claims about transactions in flight, and about the search for an event that is refused."""

import asyncio
import weakref
from typing import Any

import numpy as np
import pytest

from streamdedup.delivery.pace import Pace
from streamdedup.delivery.transactions import DecidedBatch, InFlight, Transaction, run_together
from streamdedup.events import EventBatch
from streamdedup.kafka.records.records import Record
from streamdedup.kafka.records.records import batch_of as batch_of_records
from streamdedup.kafka.sink import DoubtError
from tests.memory import Stage, over


def batch_of(offsets: list[int]) -> EventBatch:
    """Events without key and value at these offsets."""
    records = [Record.of(0, None, None)] * len(offsets)
    return batch_of_records("t", 0, offsets, records, offsets[-1] + 1)


def part_of(offsets: list[int]) -> DecidedBatch:
    """Events at these offsets, decided."""
    return DecidedBatch(
        batch=batch_of(offsets),
        verdicts=np.zeros(len(offsets), np.uint8),
        malformed={},
        rejected={},
        letter_ms=0,
    )


def transaction_of(offsets: list[int]) -> Transaction:
    """A closed transaction of events at these offsets."""
    made = Transaction()
    made.add(part_of(offsets))
    made.close(offsets[-1] + 1, None)
    return made


async def test_what_was_sent_is_not_kept() -> None:
    """Its megabytes are free while the rest of the transaction is awaited."""
    gone, part = Transaction(), part_of([1, 2])
    gone.add(part)
    kept = weakref.ref(part.batch.offsets)
    del part

    async def send() -> None:
        async for part in gone.parts():
            assert kept() is part.batch.offsets
            del part

    sending = asyncio.create_task(send())
    await asyncio.sleep(0)
    assert kept() is None
    gone.close(3, None)
    await sending


async def test_no_more_are_in_flight_than_allowed_and_they_arrive_in_order() -> None:
    """A third waits until the first of two is committed; all are committed in the order in which they departed."""
    flights, sent, arrived = InFlight(2), [Transaction() for _ in range(5)], list[Transaction]()

    async def depart() -> None:
        for transaction in sent:
            await flights.room()
            flights.depart(transaction)
            assert sent.index(transaction) - len(arrived) < 2
        flights.close()

    async def commit() -> None:
        async for transaction in flights.arrivals():
            assert not flights.none
            for _ in range(3):
                await asyncio.sleep(0)
            arrived.append(transaction)

    await run_together(depart(), commit())
    assert arrived == sent
    assert flights.none


async def test_work_goes_on_while_one_waits_for_another() -> None:
    """It gives what it gives, or its error; it is cancelled once only one is in flight, and not begun where one is."""
    flights = InFlight(2)
    ended: list[str] = []

    async def waits() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")
        return "never"

    async def gives() -> str:
        return "given"  # at its first step

    async def fails() -> str:
        raise OSError("broken")

    arrivals = flights.arrivals()
    for _ in range(2):
        await flights.room()
        flights.depart(Transaction())
    await anext(arrivals)
    assert await flights.meanwhile(gives()) == "given"
    with pytest.raises(OSError, match="broken"):
        await flights.meanwhile(fails())
    cancelled = asyncio.create_task(flights.meanwhile(waits()))
    await asyncio.sleep(0.01)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    waiting = asyncio.create_task(flights.meanwhile(waits()))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    assert ended == ["waits"]
    await anext(arrivals)  # the first is committed
    assert await waiting is None
    assert await flights.meanwhile(gives()) is None
    assert ended == ["waits", "waits"]


async def test_the_first_failure_ends_the_others_and_is_raised() -> None:
    """Also one that is a cancellation which nobody asked for: a client library may cancel its caller."""
    ended = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def fails(error: BaseException) -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(OSError, match="broken"):
        await run_together(waits(), fails(OSError("broken")))
    with pytest.raises(DoubtError, match="cancelled from within"):
        await run_together(waits(), fails(asyncio.CancelledError()))
    assert ended == ["waits", "waits"]


async def test_who_is_cancelled_ends_both() -> None:
    """And neither goes on in the background."""
    ended = []

    async def waits(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    task = asyncio.create_task(run_together(waits("one"), waits("other")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == ["one", "other"]


@pytest.mark.parametrize(
    "bad",
    [{0}, {999}, {500}, {17, 18}, {0, 512, 999}, set()],
    ids=lambda bad: str(sorted(bad)),
)
def test_the_event_that_is_refused_is_found_by_halving(bad: set[int]) -> None:
    """Each refused event is found alone, nothing else is; in a logarithmic number of refusals."""
    pace, at, refusals = Pace(1000), 0, 0
    delivered: list[int] = []
    while at < 1000:
        offsets = list(range(at, min(1000, at + pace.events_max)))
        if bad & set(offsets) - pace.refused.keys():
            pace.halve(transaction_of(offsets), "why")
            refusals += 1
            continue
        delivered += [offset for offset in offsets if offset not in pace.refused]
        at = offsets[-1] + 1
        pace.passed(at)
    assert delivered == sorted(set(range(1000)) - bad)
    assert refusals <= 22 * len(bad)
    assert pace.events_max == 1000
    assert not pace.refused


def test_a_transaction_counts_what_it_takes() -> None:
    """Events, and the offset of the last one, whatever parts they come in."""
    transaction: Any = transaction_of([3, 5])
    assert (transaction.events, transaction.last_offset, transaction.next_offset) == (2, 5, 6)


@over(Stage)
async def test_a_commit_interval_beyond_the_time_out_still_commits(stage: Stage) -> None:
    """However the two are set, a transaction is closed in time: a trickle of events is no endless doubt."""
    stage.config["kafka"]["producer"] = {"request_timeout_ms": 3000}
    stage.config["delivery"]["commit_interval_ms"] = 10_000
    worker = await stage.started()
    for number in range(80):
        stage.feed([number])
        await asyncio.sleep(0.05)  # a trickle, on a virtual clock
    await worker.consumed(80)
    assert worker.lines("doubt") == []
