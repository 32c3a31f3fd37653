"""How work that takes long shares the event loop: in turns, or in a thread."""

import asyncio
from collections import deque
from collections.abc import Iterator

from streamdedup.events import EventBatch
from streamdedup.keys.extract import Extractor, Keys


async def in_turns(steps: Iterator[None]) -> None:
    """Do them all, with a turn for everybody else after each; who is cancelled does the rest at once."""
    try:
        for _ in steps:
            await asyncio.sleep(0)
    finally:
        deque(steps, maxlen=0)  # half of them would be the fold of no offset


async def keys_of(batch: EventBatch, extractor: Extractor) -> Keys:
    """The keys of all events of `batch`; taken in a thread where the loop would wait too long for them."""
    if extractor.takes_long:
        return await asyncio.to_thread(extractor.extract, batch)
    return extractor.extract(batch)
