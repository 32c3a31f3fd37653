"""Claims about the peers of the benchmarks: what is told of them was measured, of outputs that are exact."""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import psutil
import pytest

from bench.peers import jvm
from bench.peers.peers import PEERS, code_id
from bench.worker import full, full_page, measuring, page, progress, results
from bench.worker.batches import encode
from bench.worker.cases import BASE
from bench.worker.checking import Checked, WrongOutputError, checked_anywhere
from bench.worker.contenders import COPY, OURS, Clock, Topics
from bench.worker.events import Form, Part, parts
from bench.worker.load import Tree
from bench.worker.log import HEAD, Batch, Log
from bench.worker.measuring import Contending, Run
from bench.worker.progress import followed
from tests.broker.base import DEADLINE_S, Unavailable

FORM = Form(120)
MODEL = parts(2000, 4, 0.2)
ENDS = [len(part.numbers) // 2 for part in MODEL]
NAME = next(iter(PEERS))
TOPICS = Topics("nowhere", "group", "in", "out")

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


@pytest.mark.parametrize("placed", [True, False])
def test_an_output_tells_how_far_its_input_is(
    placed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many first occurrences are out, so far the input is: exactly, or in sum where they may stand anywhere."""
    counts = {0: 10, 1: 20, 2: 0, 3: 9999} if placed else {0: 800, 1: 0, 2: 0, 3: 0}
    monkeypatch.setattr(progress, "Consumer", lambda _: _Ends(counts))
    contender = replace(PEERS[NAME], clock=Clock.OUTPUT, placed=placed)
    with followed(TOPICS, contender, MODEL) as ends:
        found = ends()
    if placed:
        firsts = [np.flatnonzero(part.first) for part in MODEL]
        assert found == [firsts[0][9] + 1, firsts[1][19] + 1, 0, len(MODEL[3].numbers)]
    else:
        assert abs(sum(found) - 1000) < 50


def test_the_clock_begins_at_a_commit_once_it_is_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time to warm up, or half of the input; not before it commits; never without anything left."""
    assert _warmed([0, 10, 10, 30], 0.0, monkeypatch) == 30
    assert _warmed([0, 10, 600, 700], 99.0, monkeypatch) == 600
    with pytest.raises(SystemExit, match="over before it was warm"):
        _warmed([0, 1000], 99.0, monkeypatch)


def test_what_a_process_started_counts() -> None:
    """Memory and time of its children are its own, while they run and when they have ended."""
    burn = "import time\nwhile time.process_time() < 0.2:\n    pass\n"
    children = [[sys.executable, "-c", code] for code in (burn, burn + "time.sleep(60)")]
    took_s = 2 * 0.2 - 0.05  # it is told in hundredths, each cut off
    code = f"import subprocess\nfor child in {children!r}:\n    subprocess.run(child)"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        tree, end = Tree(psutil.Process(process.pid)), time.monotonic() + DEADLINE_S
        try:
            while tree.cpu_s() < took_s and time.monotonic() < end:
                time.sleep(0.05)
            assert tree.cpu_s() >= took_s
            assert tree.rss_bytes() > psutil.Process(process.pid).memory_info().rss
        finally:
            os.killpg(process.pid, 9)


def test_the_page_tells_of_each_peer() -> None:
    """Version, guarantee, rate and ratios of one that was measured; the reason of one that was not."""
    there, *others = PEERS.values()
    cells = {f"peers/{there.name}": _cell(there.name, 100_000)}
    cells |= {f"peers/{peer.name}": _absent(peer.name) for peer in others}
    told = page.page({}, _full(cells), {})
    row = next(line for line in told.splitlines() if line.startswith(f"| {there.what} "))
    assert f"| {there.version} | {there.guarantee} | 100 | **20.0** (20.0) | 0.25 |" in row
    assert told.count("left out: no such thing here") == len(others)
    assert all(f"- **{peer.what}**: {peer.configured}" in told for peer in PEERS.values())
    unmeasured = told.partition("## What is not measured")[2]
    assert [peer.what in unmeasured for peer in PEERS.values()] == [False] + [True] * len(others)


@pytest.mark.parametrize(("rates", "met"), [((100_000, 200_000), True), ((250_000, 1), False)])
def test_the_faster_store_counts(rates: tuple[int, int], met: bool) -> None:
    """The target is met by ten times the faster, and not told before both were measured."""
    cells = {
        f"peers/{name}": _cell(name, rate)
        for name, rate in zip(results.STREAMS, rates, strict=True)
    }
    told = results.streams_target(cells)
    assert told is not None
    assert told["met"] == met
    del cells[f"peers/{results.STREAMS[1]}"]
    assert results.streams_target(cells) is None


@pytest.mark.parametrize("missed", [True, False])
def test_a_target_that_is_missed_has_what_bounds_it(missed: bool) -> None:
    """At a microsecond each of streamdedup and of the broker, 2.5 million events a second need five processors."""
    rate = 250_000 if missed else 100_000
    cells = {f"peers/{name}": _cell(name, rate) for name in results.STREAMS}
    for cell in cells.values():
        run = cell["rounds"][0]["runs"][OURS]
        run |= {"cpu_s": 2.0, "broker_cpu_s": 2.0}  # for two million events
    text = "\n".join(full_page.sections(_full(cells)))
    assert ("would be 2,500 thousand events a second" in text) is missed
    assert ("need 5.0 processors" in text) is missed


def test_a_peer_that_cannot_be_had_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason is what is kept, in one line; nothing runs."""

    def prepare() -> None:
        raise Unavailable("no javac:\n  install one")

    monkeypatch.setitem(PEERS, NAME, replace(PEERS[NAME], prepare=prepare))
    found = full.beside(NAME, "nowhere")
    assert found["left_out"] == "no javac: install one"
    assert "rounds" not in found


def test_without_a_compiler_there_are_no_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has only a Java to run is told what to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match="install a JDK"):
        jvm.find_javac()


def test_what_was_left_out_or_has_changed_is_measured_again() -> None:
    """A cell holds until our code or the peers' changes."""
    cell = next(full.cells("peers"))
    assert code_id() in cell.code
    measured = _cell(NAME, 1) | {"code": cell.code}
    assert cell.is_in({cell.name: measured})
    assert not cell.is_in({})
    assert not cell.is_in({cell.name: measured | {"code": "other"}})
    assert not cell.is_in({cell.name: measured | {"left_out": "no network"}})


def test_versions_are_those_of_the_lock_files() -> None:
    """What runs is what the lock says, and the page tells of no other."""
    lines = jvm.LOCK.read_text("utf-8").splitlines()
    coordinates = [line.split()[0] for line in lines]
    assert f"org.apache.kafka:kafka-clients:{PEERS['java-client'].version}" in coordinates
    cells = results.read(page.FULL)["cells"]
    for name, peer in PEERS.items():
        assert cells.get(f"peers/{name}", {"version": peer.version})["version"] == peer.version


def test_every_peer_can_be_told_from_the_others() -> None:
    """Names are those of the table, and no two say the same of themselves."""
    assert all(name == peer.name for name, peer in PEERS.items())
    assert len({peer.what for peer in PEERS.values()}) == len(PEERS)
    assert not PEERS.keys() & {OURS, COPY}


class _Ends:
    """A client that knows where logs end."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        self._counts = counts

    def get_watermark_offsets(self, where: Any, _timeout_s: float) -> tuple[int, int]:
        return 0, self._counts[where.partition]

    def close(self) -> None:
        pass


class _Lives:
    """A contender that runs on."""

    def check(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise SystemExit(otherwise)


def _warmed(committed: Sequence[int], warm_s: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """What is consumed when the clock begins, of 1000 events."""
    monkeypatch.setattr(measuring, "LOOK_EVERY_S", 0)
    ends: Iterator[list[int]] = ([count] for count in committed)
    contender, case = replace(PEERS[NAME], warm_s=warm_s), replace(BASE, events=1000)
    return measuring._warmed(cast(Contending, _Lives()), contender, case, lambda: next(ends))


def _record(part: Part, at: int) -> bytes:
    return encode(FORM, part.numbers[at : at + 1], at)[HEAD.size :]


def _records(part: Part, end: int) -> list[bytes]:
    return [_record(part, int(at)) for at in part.expected(end, judged=True)]


def _exact() -> Output:
    return [_records(part, end) for part, end in zip(MODEL, ENDS, strict=True)]


async def _checked(output: Output, ends: Sequence[int] | None = ENDS) -> Checked:
    return await checked_anywhere(cast(Log, _Kept(output)), FORM, MODEL, ends, judged=True)


def _cell(name: str, rate: int) -> dict[str, Any]:
    """A round in which we have two million a second, and the copy 400,000."""
    rates = {OURS: 2_000_000, COPY: 400_000, name: rate}
    runs = {
        each: Run(of, 1.0, of * 1e-6, 200_000_000, 0.0, of, 0, None).fields()
        for each, of in rates.items()
    }
    return _about(name) | {"rounds": [{"runs": runs, "other_load": 0.0, "repeats": 0}]}


def _absent(name: str) -> dict[str, Any]:
    return _about(name) | {"left_out": "no such thing here"}


def _about(name: str) -> dict[str, Any]:
    peer = PEERS.get(name, PEERS[NAME])
    fields = ("what", "version", "guarantee", "configured", "seconds_max", "warm_s")
    return {field: getattr(peer, field) for field in fields} | {"commit": "0123456789ab"}


def _full(cells: Mapping[str, Any]) -> dict[str, Any]:
    return {**results.circumstances("the broker of the tests"), "cells": cells}
