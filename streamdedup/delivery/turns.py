"""How work that takes long shares the event loop: in turns, or in a thread."""

import asyncio
from collections import deque
from collections.abc import Iterator

from streamdedup.events import EventBatch
from streamdedup.keys.extract import Extractor, Keys


async def in_turns(steps: Iterator[None]) -> None:
    """Do all steps, and give the event loop a turn after each. If cancelled, do the remaining steps at once."""
    try:
        for _ in steps:
            await asyncio.sleep(0)
    finally:
        deque(steps, maxlen=0)  # after half of them, the filter is not the fold up to any offset


async def keys_of(batch: EventBatch, extractor: Extractor) -> Keys:
    """Return the keys of all events of `batch`; extract them in a thread if that would hold up the loop too long."""
    if extractor.takes_long:
        return await asyncio.to_thread(extractor.extract, batch)
    return extractor.extract(batch)
