"""Close a client on every way out, so that no connection and no task of it stays.

We rely on these private names of aiokafka: of `AIOKafkaClient.bootstrap`, its local `bootstrap_conn`; of
`AIOKafkaConsumer`, `_client`; of `AIOKafkaProducer`, `_closed`, `_sender.sender_task`, of its `_txn_manager`
`_transaction_waiter` and `_pending_txn_offsets`, and of its `_message_accumulator` `_batches`, each with a `future` and
a `_drain_waiter`.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka.client import AIOKafkaClient

CLOSE_S_MAX = 5.0
STOP_S = 1.0
CANCELS_MAX = 20  # two were enough in every test


@contextmanager
def starting() -> Iterator[None]:
    """If a client's start is cancelled within this context, close its first connection.

    aiokafka 0.14 keeps that one in a local variable only, and forgets it.
    """
    try:
        yield
    except BaseException as error:
        place = error.__traceback__
        while place:
            if place.tb_frame.f_code is AIOKafkaClient.bootstrap.__code__:
                connection = place.tb_frame.f_locals.get("bootstrap_conn")
                if connection is not None:
                    connection.close()
            place = place.tb_next
        raise


async def let_go(closing: Awaitable[object], within_s: float = CLOSE_S_MAX) -> bool:
    """Run the close method of a client; return whether it ended well within `within_s` seconds.

    The method may wait for a broker that is away, and may raise CancelledError although nobody cancelled us. If we are
    cancelled, it is, too.
    """
    task = asyncio.ensure_future(closing)
    try:
        ended, _ = await asyncio.wait({task}, timeout=within_s)
    except BaseException:
        task.cancel()
        raise
    if not ended:
        task.cancel()
        return False
    return not task.cancelled() and task.exception() is None


async def close_consumer(consumer: Any, within_s: float = CLOSE_S_MAX) -> bool:
    """Stop a consumer, which leaves its group; return whether that ended well within `within_s` seconds.

    Otherwise its connections are closed, and its metadata is no longer refreshed: `stop()` does that last, after it has
    waited for a broker that may be away.
    """
    stopped = False
    try:
        stopped = await let_go(consumer.stop(), within_s)
    finally:
        if not stopped:
            await let_go(consumer._client.close(), STOP_S)
    return stopped


def disregard(future: "asyncio.Future[Any]") -> None:
    """Let `future` fail without a report by asyncio that nobody looked: a failure of it is known by other means."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


def disregard_transaction(producer: Any) -> None:
    """Do that for the end of the producer's transaction, and for the offsets that it has not sent yet.

    A producer that is fenced fails all that it has. It may fail one of these again under another future, so call this
    before.
    """
    transactions = producer._txn_manager
    for future in (
        transactions._transaction_waiter,
        *(future for *_, future in transactions._pending_txn_offsets),
    ):
        if future is not None:
            disregard(future)


async def close_producer(producer: Any) -> None:
    """Close a producer without flushing: `stop()` waits for a broker that may be away.

    One cancel of the sender is not always enough, so this repeats it. What the producer fails as it ends is no news.
    """
    producer._closed = True
    task = producer._sender.sender_task
    try:
        for _ in range(CANCELS_MAX):
            if task is None or task.done():
                break
            task.cancel()
            await asyncio.wait([task], timeout=0.05)
        if task is not None and task.done() and not task.cancelled():
            task.exception()
        if producer._txn_manager:
            disregard_transaction(producer)
        for batches in producer._message_accumulator._batches.values():
            for batch in batches:
                disregard(batch.future)
                disregard(batch._drain_waiter)
        await asyncio.sleep(0)
    finally:
        await let_go(producer.client.close(), STOP_S)
