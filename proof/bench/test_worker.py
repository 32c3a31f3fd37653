"""Claims about the benchmarks of the worker: what they publish is what they measured, of outputs that are exact."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from bench.harness import RESULTS, read
from bench.peers import streams
from bench.peers.streams import PEERS
from bench.worker import (
    full,
    log,
    page,
    plots,
    repartition,
    results,
    rounds,
)
from bench.worker.batches import encode
from bench.worker.cases import BASE, LARGE
from bench.worker.checking import missing_max
from bench.worker.contenders import (
    CONTENDERS,
    COPY,
    LOOP,
    OURS,
    REPARTITION,
    STAGE,
)
from bench.worker.events import Form, Part, parts
from bench.worker.rounds import Rounds
from streamdedup.kafka.records.codecs import CODECS
from tests.broker.base import Broker, Unavailable
from tests.broker.topics import Event, create_topic, produce, unique_name

ROOT = Path(__file__).parents[2]
FORM = Form(120)
TINY = replace(BASE, name="base", events=5000, capacity=100_000, key="json", compression="lz4")
THROUGHPUT, FULL = read(page.THROUGHPUT), read(page.FULL)
STAGES = read(page.STAGES)


def test_the_page_is_what_the_results_give() -> None:
    """results/benchmarks.md holds what they give, and nothing else."""
    assert page.PAGE.read_text("utf-8") == page.page(THROUGHPUT, FULL, STAGES)


def test_the_readme_says_what_was_measured() -> None:
    """Its rate and its two ratios are those of the base case."""
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    base = THROUGHPUT["cases"]["base"]["rounds"]
    assert f"{median(results.rates(base, OURS)) / 1e6:.1f} million events a second" in text
    assert f"{median(results.ratios(base, COPY)):.1f} times a plain copy" in text
    assert f"{median(results.ratios(base, LOOP)):.1f} times a loop" in text


def test_the_plots_were_drawn_from_the_results() -> None:
    """Each plot says which results it shows, and those are the ones that are kept."""
    there = set(RESULTS.glob("benchmarks-*.svg"))
    shown = plots.shown(THROUGHPUT, FULL)
    assert there == set(shown)
    for path, found in shown.items():
        assert plots.drawn_from(found) in path.read_text("utf-8")


def test_a_tiny_run_measures_every_contender(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real broker each contender consumes all, with an exact output, and the page tells of each."""
    monkeypatch.setattr(rounds, "OTHER_LOAD_MAX", math.inf)
    playing = Rounds(broker.bootstrap_servers, [*CONTENDERS.values()], math.inf, print)
    playing.play([TINY], 1)
    playing.close()
    (found,) = playing.found["base"]
    for name, run in found["runs"].items():
        assert run["events"] == TINY.events
        assert run["seconds"] > 0
        assert run["rss_bytes"] > 0
        distinct = sum(int(part.first.sum()) for part in _model(TINY.events))
        assert run["emitted"] + run["missing"] == (TINY.events if name == "copy" else distinct)
    told = page.page(_results(found), FULL, STAGES)
    for contender in CONTENDERS.values():
        assert contender.what in told
    assert len(results.targets([found])) == 5


def test_a_tiny_run_measures_the_stages_of_a_repartition(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real broker each contender is through with all, with an exact output, and the page tells of each."""
    monkeypatch.setattr(rounds, "OTHER_LOAD_MAX", math.inf)
    monkeypatch.setattr(Rounds, "warm_up", lambda *_: 1)
    case = replace(TINY, compression="none", key="key")
    found = repartition.staged(broker.bootstrap_servers, "the broker of the tests", case, 1)
    (told,) = found["rounds"]
    assert told["runs"].keys() == REPARTITION.keys()
    distinct = sum(int(part.first.sum()) for part in _model(TINY.events))
    for name, run in told["runs"].items():
        assert run["events"] == TINY.events
        assert run["emitted"] + run["missing"] == (
            TINY.events if name in (STAGE, COPY) else distinct
        )
    for contender in REPARTITION.values():
        assert contender.what in page.page(THROUGHPUT, FULL, found)


async def test_what_was_aborted_is_not_read(broker: Broker) -> None:
    """Events of an aborted transaction stand in the log between committed ones, and are left out."""
    topic = unique_name("bench")
    create_topic(broker.bootstrap_servers, topic)
    for value, abort in ((b"a", False), (b"b", True), (b"c", False)):
        events: list[Event] = [(0, b"k", value * 8, [], None)] * 3
        await asyncio.to_thread(
            produce, broker.bootstrap_servers, topic, events, f"{topic}-{value!r}", abort
        )
    async with log.opened(broker.bootstrap_servers, topic) as there:
        found = [batch async for batch in there.committed(0)]
    values = b"".join(batch.records for batch in found)
    assert (values.count(b"a" * 8), values.count(b"b" * 8), values.count(b"c" * 8)) == (3, 0, 3)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 64, 65, 1000])
def test_batches_are_those_of_the_format(codec: str, count: int) -> None:
    """A reader of another make finds our batches whole: checksum, offsets, keys and values are as they should be."""
    numbers = np.arange(7, 7 + count)
    batch = DefaultRecordBatch(encode(FORM, numbers, 5_000_000, codec))
    assert batch.validate_crc()
    records = list(batch)
    assert [record.offset for record in records] == list(range(count))
    assert [record.key for record in records] == [b"user%012d@example.com" % n for n in numbers]
    assert {len(record.key) + len(record.value) for record in records} == {FORM.size}
    last = records[-1].value
    assert last.startswith(b'{"email":"%b","n":"%012d"' % (records[-1].key, 5_000_000 + count - 1))


def test_first_occurrences_are_those_of_a_set() -> None:
    """The model says of each event whether its key was there before, and equal keys share a partition."""
    model = _model(5000)
    for partition, part in enumerate(model):
        seen: set[int] = set()
        for number, first in zip(part.numbers.tolist(), part.first.tolist(), strict=True):
            assert number % len(model) == partition
            assert first == (number not in seen)
            seen.add(number)
    assert 0.17 < 1 - sum(part.first.sum() for part in model) / 5000 < 0.23


def test_as_much_may_be_missing_as_the_error_rate_explains() -> None:
    """Nothing where nothing may err; some more than expected, by chance; never much more."""
    assert missing_max(1_000_000, 0.0) == 0
    assert missing_max(1000, 1e-9) <= 1
    assert 4 <= missing_max(4_000_000, 1e-6) <= 20
    assert 1000 < missing_max(1_000_000, 1e-3) < 1200


def test_a_peer_that_cannot_be_had_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason is what is kept, in one line; nothing runs."""

    def prepare() -> None:
        raise Unavailable("no javac:\n  install one")

    monkeypatch.setattr(streams, "prepare", prepare)
    found = full.beside(next(iter(PEERS)), "nowhere")
    assert found["left_out"] == "no javac: install one"
    assert "rounds" not in found


def test_versions_are_those_of_the_lock_files() -> None:
    """What runs is what the lock says, and the page tells of no other."""
    lines = streams.LOCK.read_text("utf-8").splitlines()
    coordinates = [line.split()[0] for line in lines]
    cells = FULL["cells"]
    for name, peer in PEERS.items():
        assert f"org.apache.kafka:kafka-streams:{peer.version}" in coordinates
        assert cells.get(f"peers/{name}", {"version": peer.version})["version"] == peer.version


def _model(events: int) -> list[Part]:
    return parts(events, BASE.partitions, BASE.duplicates)


def _results(found: Any) -> dict[str, Any]:
    told = {"case": vars(TINY), "rounds": [found]}
    here = results.circumstances("the broker of the tests")
    return {**THROUGHPUT, **here, "cases": {"base": told, LARGE.name: told}}
