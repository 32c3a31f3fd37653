"""Claims about the peers of the benchmarks: what is told of them was measured, of outputs that are exact."""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from bench.peers import jvm
from bench.peers.environment import Environment
from bench.peers.peers import BYTEWAX, PEERS, QUIX, TKATI
from bench.worker import full, page, results
from bench.worker.batches import encode
from bench.worker.checking import Checked, WrongOutputError, checked_anywhere
from bench.worker.events import Form, Part, parts
from bench.worker.log import HEAD, Batch, Log
from tests.broker.base import Unavailable

FORM = Form(120)
MODEL = parts(2000, 4, 0.2)
ENDS = [len(part.numbers) // 2 for part in MODEL]
NAME = next(iter(PEERS))

Output = list[list[bytes]]


class _Kept:
    """An output in memory: the records of each partition, a batch for each."""

    topic = "out"

    def __init__(self, output: Output) -> None:
        self._output, self.partitions = output, len(output)

    async def committed(self, partition: int) -> AsyncIterator[Batch]:
        for offset, record in enumerate(self._output[partition]):
            yield Batch(offset, 1, record)


async def test_events_may_stand_anywhere() -> None:
    """An output in other partitions and another order is exact if it is whole."""
    output = [list(reversed(_records(part, end))) for part, end in zip(MODEL, ENDS, strict=True)]
    output = [output[2], [], output[0] + output[3], output[1]]
    distinct = sum(len(records) for records in output)
    assert await _checked(output) == Checked(distinct, 0)


async def test_a_lost_event_is_missing() -> None:
    """Each that is expected and nowhere to be found is counted."""
    output = _exact()
    del output[1][3], output[2][-1]
    assert (await _checked(output)).missing == 2


@pytest.mark.parametrize("wrong", ["doubled", "duplicate", "foreign", "changed", "too far"])
async def test_a_wrong_event_ends_it(wrong: str) -> None:
    """Whatever is there twice, or not the first of its key, or from elsewhere, or has another byte, or is not due."""
    output, part = _exact(), MODEL[0]
    again = int(np.flatnonzero(~part.first[: ENDS[0]])[0])
    behind = int(part.expected(len(part.numbers), judged=True)[-1])
    last = int(part.expected(ENDS[0], judged=True)[-1])
    changed = bytearray(output[0].pop())
    changed[-2] ^= 1
    output[3].append(
        {
            "doubled": output[0][0],
            "duplicate": _record(part, again),
            "foreign": encode(FORM, part.numbers[last : last + 1] + 4, last)[HEAD.size :],
            "changed": bytes(changed),
            "too far": _record(part, behind),
        }[wrong]
    )
    with pytest.raises(WrongOutputError):
        await _checked(output)


async def test_an_output_that_says_itself_how_far_it_goes_has_no_gaps() -> None:
    """Without committed offsets it may end anywhere, but lacks nothing before its end."""
    output = [records[:30] for records in _exact()]
    assert await _checked(output, ends=None) == Checked(4 * 30, 0)
    del output[0][10:12]
    assert (await _checked(output, ends=None)).missing == 2


def test_a_peer_that_cannot_be_had_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason is what is kept, in one line; nothing runs."""

    def prepare() -> None:
        raise Unavailable("no javac:\n  install one")

    monkeypatch.setitem(PEERS, NAME, replace(PEERS[NAME], prepare=prepare))
    found = full.beside(NAME, "nowhere")
    assert found["left_out"] == "no javac: install one"
    assert "rounds" not in found


@pytest.mark.parametrize("there", [BYTEWAX, QUIX, TKATI], ids=lambda there: there.name)
def test_all_that_is_installed_is_locked_with_hashes(there: Environment) -> None:
    """One version of each distribution, the peer's own among them, and no other place to fetch them from."""
    text = re.sub(r"^#.*\n", "", there.lock.read_text("utf-8"), flags=re.MULTILINE)
    requirements = text.replace("\\\n", " ").splitlines()
    assert all(re.match(r"[\w-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", each) for each in requirements)
    assert f"{there.name}=={there.version()}" in {each.split()[0] for each in requirements}
    assert there.version() in {peer.version for peer in PEERS.values()}


def test_versions_are_those_of_the_lock_files() -> None:
    """What runs is what the lock says, and the page tells of no other."""
    lines = jvm.LOCK.read_text("utf-8").splitlines()
    coordinates = [line.split()[0] for line in lines]
    assert f"org.apache.kafka:kafka-clients:{PEERS['java-client'].version}" in coordinates
    cells = results.read(page.FULL)["cells"]
    for name, peer in PEERS.items():
        assert cells.get(f"peers/{name}", {"version": peer.version})["version"] == peer.version


def _record(part: Part, at: int) -> bytes:
    return encode(FORM, part.numbers[at : at + 1], at)[HEAD.size :]


def _records(part: Part, end: int) -> list[bytes]:
    return [_record(part, int(at)) for at in part.expected(end, judged=True)]


def _exact() -> Output:
    return [_records(part, end) for part, end in zip(MODEL, ENDS, strict=True)]


async def _checked(output: Output, ends: Sequence[int] | None = ENDS) -> Checked:
    return await checked_anywhere(cast(Log, _Kept(output)), FORM, MODEL, ends, judged=True)
