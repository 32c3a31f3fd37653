"""Claims about the check of an output, by which every rate of `bench/worker` is one of an exact output."""

from collections.abc import AsyncIterator
from typing import cast

import numpy as np
import pytest

from bench.worker.batches import encode
from bench.worker.checking import Checked, WrongOutputError, checked
from bench.worker.events import Form, Part, parts
from bench.worker.log import Batch, Log
from streamdedup.kafka.records.wire import HEAD_BYTES

FORM = Form(120)
MODEL = parts(2000, 4, 0.2)
ENDS = [len(part.numbers) // 2 for part in MODEL]
AT = {"filler": -2, "key": 20, "length": 0}  # where a record gets another byte

Output = list[list[bytes]]


class _Kept:
    """An output in memory: the records of each partition, a batch for each."""

    topic = "out"

    def __init__(self, output: Output) -> None:
        self._output, self.partitions = output, len(output)

    async def committed(self, partition: int) -> AsyncIterator[Batch]:
        for offset, record in enumerate(self._output[partition]):
            yield Batch(offset, 1, record)


async def test_events_that_need_not_be_placed_may_stand_anywhere() -> None:
    """An output in other partitions and another order is exact if it is whole; for one that is placed it is wrong."""
    output = [records[::-1] for records in _exact()]
    output = [output[2], [], output[0] + output[3], output[1]]
    distinct = sum(len(records) for records in output)
    assert await _checked(output, placed=False) == Checked(distinct, 0)
    with pytest.raises(WrongOutputError, match="out of order"):
        await _checked(output, placed=True)


@pytest.mark.parametrize("placed", [True, False])
async def test_a_lost_event_is_missing(placed: bool) -> None:
    """Each that is expected and nowhere to be found is counted; the others are where they should be."""
    output = _exact()
    del output[1][3], output[2][-1]
    distinct = sum(len(records) for records in output)
    assert await _checked(output, placed=placed) == Checked(distinct, 2)


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize("wrong", ["doubled", "duplicate", "foreign", "too far", *AT])
async def test_a_wrong_event_ends_it(wrong: str, placed: bool) -> None:
    """Whatever is there twice, or not the first of its key, or from elsewhere, or has another byte, or is not due."""
    output, part = _exact(), MODEL[0]
    again = int(np.flatnonzero(~part.first[: ENDS[0]])[0])
    behind = int(part.expected(len(part.numbers), judged=True)[-1])
    last = int(part.expected(ENDS[0], judged=True)[-1])
    given = {
        "doubled": output[0][-1],
        "duplicate": _record(part, again),
        "foreign": encode(FORM, part.numbers[last : last + 1] + 4, last)[HEAD_BYTES:],
        "too far": _record(part, behind),
    }
    if wrong in AT:
        changed = bytearray(output[0].pop())
        changed[AT[wrong]] ^= 1 if AT[wrong] else 64
        given[wrong] = bytes(changed)
    output[0].append(given[wrong])
    with pytest.raises(WrongOutputError):
        await _checked(output, placed=placed)


@pytest.mark.parametrize("wrong", ["swapped", "in another partition"])
async def test_an_event_that_is_not_in_its_place_ends_it(wrong: str) -> None:
    """In order, and in the partition that it had."""
    output = _exact()
    output[1 if wrong == "swapped" else 0].insert(1, output[1].pop(0))
    assert (await _checked(output, placed=False)).missing == 0
    with pytest.raises(WrongOutputError, match="out of order"):
        await _checked(output, placed=True)


def _record(part: Part, at: int) -> bytes:
    return encode(FORM, part.numbers[at : at + 1], at)[HEAD_BYTES:]


def _exact() -> Output:
    return [
        [_record(part, int(at)) for at in part.expected(end, judged=True)]
        for part, end in zip(MODEL, ENDS, strict=True)
    ]


async def _checked(output: Output, *, placed: bool) -> Checked:
    return await checked(cast(Log, _Kept(output)), FORM, MODEL, ENDS, judged=True, placed=placed)
