"""A consumer of your own, which handles the first event of each key: check, handle, add, commit.

At least once: a key is handled again after a crash, and if its events are in flight together. When, and what a filter
costs: docs/library.md, "A consumer of your own".
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer

from streamdedup import Addable, Kept

Handle = Callable[[Any], Awaitable[None]]


async def consume(
    topic: str, group: str, seen: Addable | Kept, handle: Handle, **options: Any
) -> None:
    """Call `handle` with each event whose key is not in `seen`, until cancelled. Every event has a key."""

    async def once(event: Any) -> None:
        if event.key not in seen:  # check
            await handle(event)  # handle
            seen.add(event.key)  # add

    options = {"auto_offset_reset": "earliest", **options, "enable_auto_commit": False}
    async with AIOKafkaConsumer(topic, group_id=group, **options) as consumer:
        while True:
            for events in (await consumer.getmany(timeout_ms=1000)).values():
                async with asyncio.TaskGroup() as in_flight:
                    for event in events:
                        in_flight.create_task(once(event))
            await consumer.commit()  # commit
