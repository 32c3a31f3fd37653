"""A second writer of an output partition: the error that reports what it wrote, when, and who it is.

Whatever cannot be found out in time, or at all, is left out of the message, or named as not known.
"""

import asyncio
from contextlib import aclosing, suppress
from typing import NamedTuple

from streamdedup.errors import DeliveryError
from streamdedup.events import Fingerprint
from streamdedup.kafka.base import Cluster
from streamdedup.units import moment

ANSWER_S_MAX = 5.0  # for each of the answers that the message needs, which are asked for at once
COUNTED_MAX = 1_000_000  # events


class ForeignRange(NamedTuple):
    """The output offsets from `start` to `end` (exclusive), in which no committed event is ours.

    A transaction found it when its events were written at `end`, and not at `start`. `producer_id` was ours then.
    """

    start: int
    end: int
    producer_id: int


async def second_writer(
    cluster: Cluster, output: str, partition: int, offset: int, foreign: ForeignRange
) -> DeliveryError:
    """Return the error that names the second writer, whose first event in the range `foreign` is at `offset`."""
    written, first, last = await asyncio.gather(
        _written(cluster, output, partition, offset, foreign.end),
        _first(cluster, output, partition, offset),
        _last(cluster, output, partition, foreign.producer_id),
    )
    return DeliveryError(
        f"{output}/{partition} has a second writer: offset {offset} is not ours; {written}, the first {first};"
        " their keys count as emitted from now on, so events of the input with these keys are duplicates (streamdedup"
        f" explain -c FILE --at INPUT/PARTITION:OFFSET says of which offset, once it is read); {last}",
        remedy="every output partition takes one writer, so stop the other and restart",
        finding="second-writer",
    )


async def _written(cluster: Cluster, output: str, partition: int, start: int, end: int) -> str:
    """Return how many committed events are at offsets from `start` to `end` (exclusive), and at which."""
    events, last, is_all = 0, start, False
    with suppress(Exception):
        async with asyncio.timeout(ANSWER_S_MAX):
            reading = cluster.committed_events(output, partition, start, end, stall_s=ANSWER_S_MAX)
            async with aclosing(reading) as batches:
                async for batch in batches:
                    events, last = events + len(batch), int(batch.offsets[-1])
                    del batch  # it may be a part of a large one
                    if events >= COUNTED_MAX:
                        break
                else:
                    is_all = True
    if is_all and events == 1:
        return f"it wrote 1 event, at offset {start}"
    count = f"{events:,}" if is_all else f"{max(events, 1):,} or more"
    return f"it wrote {count} events, at offsets from {start} to {last if is_all else end - 1}"


async def _first(cluster: Cluster, output: str, partition: int, offset: int) -> str:
    """Return of when the record batch at `offset` is, and of which producer."""
    found: Fingerprint | None = None
    with suppress(Exception):
        async with asyncio.timeout(ANSWER_S_MAX):
            found = await cluster.batch_at(output, partition, offset)
    if found is None:
        return "of a producer and a time that the broker did not report"
    whose = _named(found.producer_id, found.epoch)
    return f"of {moment(found.stamped_ms)} by {whose}"


async def _last(cluster: Cluster, output: str, partition: int, ours: int) -> str:
    """Return which producer with an id wrote last, and when; our own does not count."""
    writes = None
    with suppress(Exception):
        async with asyncio.timeout(ANSWER_S_MAX):
            writes = await cluster.last_writes(output, partition)
    if writes is None:
        return (
            "which producer wrote last is not known (the broker is older than 2.8, did not answer, or gives us no right"
            " to read the topic)"
        )
    others = [write for write in writes if write.producer_id != ours]
    if not others:
        return "the broker knows of no other producer with an id that wrote lately"
    last = max(others, key=lambda write: write.at_ms)
    return f"of all others with an id, {_named(last.producer_id, last.epoch)} wrote last, at {moment(last.at_ms)}"


def _named(producer_id: int, epoch: int) -> str:
    return (
        f"producer id {producer_id}, epoch {epoch}"
        if producer_id >= 0
        else "a producer without an id"
    )
