"""Waiting for brokers that are away: what is told, and when it ends; on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError
from structlog.testing import capture_logs

from streamdedup.errors import DeliveryError
from streamdedup.kafka.client.patience import Patience, start_patiently
from streamdedup.kafka.cluster import soon
from streamdedup.kafka.options import KafkaOptions
from streamdedup.testing.clock import VirtualLoop


def told(run: Coroutine[Any, Any, object]) -> list[str]:
    """The events that are logged while it runs."""
    loop = VirtualLoop()
    try:
        with capture_logs() as lines:
            loop.run_until_complete(run)
    finally:
        loop.close()
    return [line["event"] for line in lines]


def after(failures: int) -> Callable[[], Awaitable[str]]:
    """A start that finds no broker so many times."""
    outcomes = iter([KafkaConnectionError] * failures)

    async def start() -> str:
        for error in outcomes:
            raise error
        return "there"

    return start


def test_who_was_told_that_a_broker_is_away_is_told_that_it_is_back() -> None:
    """Once each, however often it was tried, and within a minute."""

    async def run() -> None:
        assert await start_patiently(after(5), "it", Patience()) == "there"

    assert told(run()) == ["broker_away", "broker_back"]


def test_a_broker_that_hangs_is_told_before_its_time_out() -> None:
    """After some seconds of silence, and with all of them; no attempt has failed by then."""

    async def hang() -> str:
        await asyncio.sleep(25)
        return "there"

    async def run() -> None:
        patience = Patience()
        starting = asyncio.create_task(start_patiently(hang, "it", patience, silent_s_max=10))
        await asyncio.sleep(9)
        assert patience.since is None
        await asyncio.sleep(2)
        assert patience.away_s == pytest.approx(11)
        await starting
        assert patience.since is None
        assert await start_patiently(hang, "it", patience) == "there"

    assert told(run()) == ["broker_away", "broker_back"]


@pytest.mark.parametrize(("given", "limit"), [(None, 6), (5.0, 5), (3600.0, 6)])
def test_a_command_waits_no_longer_than_a_person(given: float | None, limit: int) -> None:
    """Commands end by themselves, after seconds, however long a worker may wait, and speak of no worker."""
    named = KafkaOptions(bootstrap_servers="nobody:9092", group_id="g")
    options = named.model_copy(update={"give_up_after_s": given})

    @asynccontextmanager
    async def connect(options: KafkaOptions) -> AsyncIterator[str]:
        patience = Patience(options.give_up_after_s)
        yield await start_patiently(after(10_000), "the cluster", patience)

    async def run() -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(
            DeliveryError, match=f"at nobody:9092 within {limit} s; look at"
        ) as told:
            async with soon(connect, options, "nobody answers"):
                raise AssertionError
        assert "worker" not in str(told.value)
        assert asyncio.get_running_loop().time() - began == pytest.approx(limit)

    assert told(run()) == ["broker_away"]


def test_an_hour_away_is_a_line_a_minute() -> None:
    """Whoever waits, and how many."""

    async def run() -> None:
        patience = Patience()
        for minute_half in range(120):
            patience.away(f"shard {minute_half % 7}", KafkaConnectionError())
            await asyncio.sleep(30)

    assert told(run()) == ["broker_away"] * 60


def test_who_gives_up_does_not_say_that_the_broker_is_back() -> None:
    """Neither who is cancelled, as by SIGTERM, nor who has waited for `give_up_after_s`."""

    async def run() -> None:
        cancelled, ended = Patience(), Patience(give_up_after_s=5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await start_patiently(after(10**6), "it", cancelled)
        with pytest.raises(DeliveryError, match=r"kafka\.give_up_after_s: 5"):
            await start_patiently(after(10**6), "it", ended)
        assert cancelled.since is ended.since is None

    assert told(run()) == ["broker_away", "broker_away"]


def test_a_line_a_minute_holds_over_those_who_come_and_go() -> None:
    """A shard that leaves while the broker is away does not have the next one tell it again at once."""

    async def run() -> None:
        patience = Patience()
        for shard in range(10):
            patience.away(f"shard {shard}", KafkaConnectionError())
            patience.forget(f"shard {shard}")
            await asyncio.sleep(1)
        patience.away("the last", KafkaConnectionError())
        patience.back("the last")

    assert told(run()) == ["broker_away", "broker_back"]


@pytest.mark.parametrize("error", [KafkaConnectionError, NodeNotReadyError, RequestTimedOutError])
def test_a_broker_that_dies_during_a_command_is_named(error: type[Exception]) -> None:
    """It is no bug of ours; an error of a file that the command writes stays what it is."""
    options = KafkaOptions(bootstrap_servers="nobody:9092", group_id="g")

    @asynccontextmanager
    async def connect(_: KafkaOptions) -> AsyncIterator[str]:
        yield "there"

    async def ended_by(raised: Exception) -> None:
        async with soon(connect, options, "nobody answers"):
            raise raised

    with pytest.raises(DeliveryError, match="nobody answers"):
        asyncio.run(ended_by(error()))
    with pytest.raises(FileNotFoundError):
        asyncio.run(ended_by(FileNotFoundError()))
