"""How work that takes long shares the event loop: in turns, or in a thread."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from streamdedup.delivery.schemas import resolved
from streamdedup.events import Column, EventBatch
from streamdedup.kafka.records.decoding import CHUNK_BYTES
from streamdedup.keys.extract import BYTES_A_TURN, Extractor, Keys
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.keys.steps import advanced
from streamdedup.threads import Lane

P = ParamSpec("P")
T = TypeVar("T")

KEYS_A_CALL = 32  # read by Python code, in at most some 1 ms each
KEYS_A_TURN = 1024  # the same, in some 4 us each
HEADER_BYTES_A_TURN = 1 << 20  # at most half a million headers: some 2 ms each time they are walked


class Turns:
    """The turns of the event loop: in each, at most one shard begins to decide, in the order in which they asked.

    One answer of a broker brings the events of many partitions. If all their shards decided in the same turn, the loop
    would stall for the sum of their times.
    """

    def __init__(self) -> None:
        self._queue = asyncio.Lock()

    async def mine(self) -> None:
        """Return in a later turn of the loop, in which no other call returns."""
        async with self._queue:
            await asyncio.sleep(0)


async def in_turns(steps: Iterator[None]) -> None:
    """Do all steps, and give the event loop a turn after each. If cancelled, do the remaining steps at once."""
    try:
        for _ in steps:
            await asyncio.sleep(0)
    finally:
        deque(steps, maxlen=0)  # after half of them, the filter is not the fold up to any offset


async def keys_of(
    batch: EventBatch, extractor: Extractor, lane: Lane, *, are_known: bool = False
) -> Keys:
    """Return the keys of all events of `batch`; extract them in `lane` if that would hold up the loop too long.

    Each call is short, so partitions whose keys Python code must read take turns, and a cancelled one ends soon. If
    their schemas are not known yet, it waits for the registry; `are_known` says that they are.
    """
    if are_known:
        return await _keys_of(batch, extractor, lane)
    parts = [await _keys_of(part, extractor, lane) async for part in resolved(batch, extractor)]
    return Keys.joined(parts)


async def _keys_of(batch: EventBatch, extractor: Extractor, lane: Lane) -> Keys:
    name, steps = f"{batch.topic}/{batch.partition}", extractor.steps(batch)
    in_lane = extractor.takes_long_for(batch) or is_large(batch)
    keys: Keys | None
    while True:
        if in_lane:
            keys = await lane.run(name, "the keys of its events", advanced, steps, KEYS_A_CALL)
        else:
            keys = advanced(steps, KEYS_A_TURN)
        if keys is not None:
            return keys
        await asyncio.sleep(0)


async def digests_of(keys: Column, hash_: Hash) -> Digests:
    """Return the digests (n, 2) of `keys`, of which none is null; made in a thread if they would hold up the loop."""
    return await beside(is_long(keys), hash_.of_column, keys)


def is_long(keys: Column) -> bool:
    """Return whether to hash `keys` in a thread, because they have more bytes than one turn may take."""
    return int(keys.sizes.sum()) > BYTES_A_TURN


def is_large(batch: EventBatch) -> bool:
    """Return whether to read `batch` in a thread: its events, or their headers, are more than one turn may take.

    Its sizes alone decide.
    """
    of_headers = batch.headers.sizes.sum()
    return bool(of_headers > HEADER_BYTES_A_TURN or batch.bodies.sizes.sum() > CHUNK_BYTES)


async def beside(takes_long: bool, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `call` returns, made in a thread if it takes long, and here if it does not."""
    if takes_long:
        return await asyncio.to_thread(call, *args, **kwargs)
    return call(*args, **kwargs)
