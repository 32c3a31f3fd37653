"""Claims about the benchmarks of the worker: what they publish is what they measured, of outputs that are exact."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from bench.worker import broker as measured_on
from bench.worker import (
    latency,
    log,
    page,
    plots,
    profile,
    repartition,
    restart,
    results,
    rounds,
)
from bench.worker.batches import CODECS, encode
from bench.worker.cases import BASE, CASES, Case
from bench.worker.checking import (
    OTHER_BYTES,
    UNEXPECTED,
    UNREADABLE,
    WrongOutputError,
    checked,
    forms,
    matched,
    missing_max,
)
from bench.worker.contenders import (
    BOTH,
    CONTENDERS,
    COPY,
    LOOP,
    OURS,
    REPARTITION,
    STAGE,
    Contender,
)
from bench.worker.events import Form, Part, parts
from bench.worker.log import HEAD
from bench.worker.measuring import Input, Run
from bench.worker.rounds import REPEATS_MAX, WARM_UPS_MAX, Rounds
from tests.broker.base import Broker
from tests.broker.topics import Event, create_topic, produce, unique_name

ROOT = Path(__file__).parents[2]
FORM = Form(120)
TINY = replace(BASE, name="base", events=5000, capacity=100_000, key="json", compression="lz4")
THROUGHPUT, FULL = results.read(page.THROUGHPUT), results.read(page.FULL)
STAGES = results.read(page.STAGES)


def test_the_page_is_what_the_results_give() -> None:
    """results/benchmarks.md is there if results are, and holds nothing that they do not give."""
    assert page.PAGE.exists() == bool(THROUGHPUT or FULL or STAGES)
    if page.PAGE.exists():
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
    there = set(results.DIRECTORY.glob("benchmarks-*.svg"))
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
    told = page.page(_results(found), {}, {})
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
    found = repartition.measure(broker.bootstrap_servers, "the broker of the tests", case, 1)
    (told,) = found["rounds"]
    assert told["runs"].keys() == REPARTITION.keys()
    distinct = sum(int(part.first.sum()) for part in _model(TINY.events))
    for name, run in told["runs"].items():
        assert run["events"] == TINY.events
        assert run["emitted"] + run["missing"] == (
            TINY.events if name in (STAGE, COPY) else distinct
        )
    for contender in REPARTITION.values():
        assert contender.what in page.page({}, {}, found)


def test_latency_is_measured_of_every_event(broker: Broker) -> None:
    """On a real broker every event that passes has its time, above 0, and percentiles rise."""
    found = latency.latency(broker.bootstrap_servers, 1000, 20, warm_s=0.5, measured_s=0.5)
    values = [*found["percentiles_ms"].values(), found["max_ms"]]
    late = sum(int(part.first[len(part.first) // 2 :].sum()) for part in _model(1000))
    assert abs(found["events"] - late) < 50
    assert values[0] > 0
    assert values == sorted(values)


def test_a_restart_is_measured_from_a_fold_and_from_a_snapshot(broker: Broker) -> None:
    """On a real broker the first new event comes out both ways, the output having been there before."""
    found = restart.restart(broker.bootstrap_servers, 2000, rounds=1)
    assert len(found["folded_s"]) == len(found["loaded_s"]) == 1
    assert found["loaded_median_s"] > 0
    assert found["folded_median_s"] > 0


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


async def test_an_output_that_lacks_its_end_lacks_events(broker: Broker) -> None:
    """What is not there at the end is missing, too; what is there beyond it is wrong."""
    (part,) = parts(1000, 1, 0.2)
    topic = unique_name("bench")
    create_topic(broker.bootstrap_servers, topic)
    async with log.opened(broker.bootstrap_servers, topic) as there:
        await there.append(0, [(0, encode(FORM, part.numbers[:900], 0))])
        found = await checked(there, FORM, [part], [1000], judged=False)
        assert (found.emitted, found.missing) == (900, 100)
        with pytest.raises(WrongOutputError, match="doubled, out of order"):
            await checked(there, FORM, [part], [899], judged=False)


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


def test_the_same_seed_gives_the_same_events() -> None:
    """All contenders, and all rounds, have the same input."""
    for one, other in zip(_model(1000), _model(1000), strict=True):
        assert (one.numbers == other.numbers).all()


def test_an_exact_output_matches() -> None:
    """The first occurrences in order, and nothing else, go to the end of what is expected."""
    (part,) = parts(500, 1, 0.2)
    expected = part.expected(500, judged=True)
    assert _matched(part, expected) == len(expected)


def test_a_dropped_event_is_passed_over() -> None:
    """One event less than expected leaves the others where they should be."""
    (part,) = parts(500, 1, 0.2)
    expected = part.expected(500, judged=True)
    assert _matched(part, np.delete(expected, 3)) == len(expected)


@pytest.mark.parametrize("wrong", ["doubled", "swapped", "duplicate", "foreign"])
def test_a_wrong_event_is_seen(wrong: str) -> None:
    """Whatever is there twice, in another order, not the first of its key, or from elsewhere."""
    (part,) = parts(500, 1, 0.2)
    expected = part.expected(500, judged=True)
    again = int(np.flatnonzero(~part.first)[0])
    given = {
        "doubled": np.insert(expected, 4, expected[3]),
        "swapped": np.concatenate((expected[:3], expected[[4, 3]], expected[5:])),
        "duplicate": np.sort(np.append(expected, again)),
        "foreign": expected,
    }[wrong]
    numbers = part.numbers + 1000 if wrong == "foreign" else part.numbers
    assert _matched(part, given, numbers) == UNEXPECTED


@pytest.mark.parametrize(
    ("at", "fault"),
    [(-2, OTHER_BYTES), (20, OTHER_BYTES), (0, UNREADABLE)],
    ids=["filler", "key", "length"],
)
def test_another_byte_is_seen(at: int, fault: int) -> None:
    """One bit in the value, in the key, or in a length."""
    (part,) = parts(1, 1, 0.0)
    records = bytearray(encode(FORM, part.numbers, 0)[HEAD.size :])
    records[at] ^= 1 if at else 64
    found = matched(
        np.frombuffer(records, dtype=np.uint8), 1, part.numbers, np.arange(1), 0, *forms(FORM)
    )
    assert found == fault


def test_as_much_may_be_missing_as_the_error_rate_explains() -> None:
    """Nothing where nothing may err; some more than expected, by chance; never much more."""
    assert missing_max(1_000_000, 0.0) == 0
    assert missing_max(1000, 1e-9) <= 1
    assert 4 <= missing_max(4_000_000, 1e-6) <= 20
    assert 1000 < missing_max(1_000_000, 1e-3) < 1200


@pytest.mark.parametrize(
    ("loads", "counted", "repeats"),
    [((0.05,), 0.05, 0), ((0.5, 0.02), 0.02, 1), ((0.5, 0.3, 0.4), 0.3, REPEATS_MAX)],
    ids=["quiet", "once", "never quiet"],
)
def test_a_disturbed_round_is_repeated(
    loads: tuple[float, ...], counted: float, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is quiet, a bounded number of times; the quietest counts."""
    playing = _stubbed(iter(loads), monkeypatch)
    playing.play([BASE], 1)
    (found,) = playing.found["base"]
    assert (found["other_load"], found["repeats"]) == (counted, repeats)


def test_the_broker_is_warm_once_an_event_takes_it_no_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The runs before the first round go on as long as its time falls, at most so many; none of them counts.

    Other contenders run once before.
    """
    for us, count in (
        ([4.0, 3.0, 2.0, 1.9, 1.95, 1.85, 9.0], 6),
        ([2.0] * 9, 4),
        ([9.0 / 2**n for n in range(20)], WARM_UPS_MAX),
    ):
        told: list[str] = []
        ran: list[str] = []
        playing = _stubbed(iter([]), monkeypatch, told=told, contenders=(OURS, COPY))

        def measured(_bootstrap: str, _case: Case, contender: Contender, _source: Input) -> Run:
            ran.append(contender.name)  # noqa: B023
            return replace(_run(1000), broker_cpu_s=us[ran.count(OURS) - 1] / 1000)  # noqa: B023

        monkeypatch.setattr(rounds, "measured", measured)
        assert playing.warm_up(BASE) == count
        assert ran == [COPY, *[OURS] * count]
        assert len(told) == count
        assert not playing.found


def test_a_broker_whose_time_is_not_known_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was given does."""
    loads = iter([0.0])
    assert _stubbed(loads, monkeypatch).warm_up(BASE) == 1
    assert not [*loads]


def test_data_is_in_memory_if_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where there is no such directory."""
    monkeypatch.setattr(measured_on, "IN_MEMORY", tmp_path)
    for room, where in ((0, tmp_path), (1 << 60, None)):
        monkeypatch.setattr(measured_on, "ROOM_BYTES", room)
        assert measured_on.in_memory() == where
    monkeypatch.setattr(measured_on, "IN_MEMORY", tmp_path / "none")
    assert measured_on.in_memory() is None


def test_no_round_begins_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time is over, nothing more is measured, and it is told."""
    told: list[str] = []
    playing = _stubbed(iter([0.0]), monkeypatch, until=0.0, told=told)
    playing.play([BASE], 1)
    assert not playing.found
    assert "left out" in told[0]


@pytest.mark.parametrize(("theirs", "met"), [(600, True), (601, False)])
def test_a_target_is_met_or_missed(theirs: int, met: bool) -> None:
    """Five times the copy is enough, less is not; of large events, three times."""
    runs = {name: _run(theirs).fields() for name in CONTENDERS}
    runs[OURS] = _run(3000).fields()
    rounds_ = [{"runs": runs, "other_load": 0.0, "repeats": 0}]
    assert [target["met"] for target in results.targets(rounds_)] == [False, met, True, True, True]
    assert results.large_target(rounds_)["met"]
    runs[OURS] = _run(3 * theirs - 1).fields()
    assert not results.large_target(rounds_)["met"]


@pytest.mark.parametrize(("stage", "both", "met"), [(2500, 1300, True), (2499, 1299, False)])
def test_a_ratio_of_the_stages_is_met_or_missed(stage: int, both: int, met: bool) -> None:
    """2.5 and 1.3 times the copy are enough; what the second stage loses is told, whatever it is."""
    runs = {name: _run(1000).fields() for name in REPARTITION}
    runs |= {STAGE: _run(stage).fields(), BOTH: _run(both).fields()}
    rounds_ = [{"runs": runs, "other_load": 0.0, "repeats": 0}]
    told = results.repartition_ratios(rounds_)
    assert [ratio["met"] for ratio in told] == [met, met, True]
    assert told[2]["measured"] == 1
    assert page.stages_ratios(rounds_).count("**missed**") == (0 if met else 2)


def test_every_case_differs_from_the_base_in_one_thing() -> None:
    """Or from another; but for its name, and for how many events it takes to measure it."""
    others = [case for case in CASES if case.name in {"base", "key-json", "size-1k"}]
    for case in CASES[1:]:
        fields = vars(case).keys() - {"name", "what", "events"}
        changed = [
            sum(vars(case)[name] != vars(other)[name] for name in fields) for other in others
        ]
        assert 1 in changed, case.name
    assert len({case.name for case in CASES}) == len(CASES)


def _model(events: int) -> list[Part]:
    return parts(events, BASE.partitions, BASE.duplicates)


def _matched(part: Part, given: Any, numbers: Any = None) -> int:
    """What the check says of an output that has the events at these positions."""
    written = part.numbers if numbers is None else numbers
    made = [encode(FORM, written[at : at + 1], int(at))[HEAD.size :] for at in given]
    expected = part.expected(len(part.numbers), judged=True)
    records = np.frombuffer(b"".join(made), dtype=np.uint8)
    return matched(records, len(given), part.numbers[expected], expected, 0, *forms(FORM))


def _run(rate: int, load: float | None = 0.0) -> Run:
    return Run(rate, 1.0, rate * 1e-7, 200_000_000, load, rate, 0, 50_000_000)


def _stubbed(
    loads: Iterator[float],
    monkeypatch: pytest.MonkeyPatch,
    until: float = math.inf,
    told: list[str] | None = None,
    contenders: Sequence[str] = (OURS,),
) -> Rounds:
    """Rounds of one contender that runs nothing, with these loads beside it."""
    monkeypatch.setattr(rounds, "filled", lambda *_: Input("topic", []))
    monkeypatch.setattr(rounds, "measured", lambda *_: _run(1000, next(loads)))
    tell = told.append if told is not None else print
    return Rounds("none", [CONTENDERS[name] for name in contenders], until, tell)


def _results(found: Any) -> dict[str, Any]:
    cases = {"base": {"case": vars(TINY), "rounds": [found]}}
    here = results.circumstances("the broker of the tests")
    return {**here, "command": "make bench", "minutes": 0.1, "cases": cases}


def test_a_sample_counts_for_the_part_where_it_stands() -> None:
    """By the innermost frame that is of one; what is before the loop runs, or in other threads, counts for none."""
    loop = "thread (7): MainThread;run_forever (asyncio/base_events.py:607)"
    counts = profile.parts_of(
        [
            f"{loop};decide (streamdedup/delivery/shard.py:7);add (streamdedup/filters/bloom/bloom.py:9) 5",
            f"{loop};run (streamdedup/delivery/shard.py:7);full (numpy/_core/numeric.py:386) 3",
            f"{loop};select (selectors.py:468) 2",
            "thread (7): MainThread;<module> (streamdedup/cli/__init__.py:1) 11",
            "thread (8): other;run_forever (asyncio/base_events.py:607) 13",
        ]
    )
    filter_, rest, waits = (
        "the filter: asked, and added to",
        "the rest of the worker",
        "the event loop",
    )
    assert counts == {filter_: 5, rest: 3, waits: 2}
    assert {filter_, rest, waits} <= profile.PARTS.keys()
