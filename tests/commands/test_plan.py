"""Claims about `plan`: its sizes are those of the filters, its figures those of the theory, its advice follows."""

import io
import json
import math
import re
import sys
import time
from collections.abc import Callable
from itertools import product, repeat
from pathlib import Path
from typing import Any

import pytest

from streamdedup import filters
from streamdedup.cli import main
from streamdedup.commands.lines import line_reader
from streamdedup.commands.plan import report, sample, speed
from streamdedup.commands.plan.compare import Comparison, plan
from streamdedup.commands.plan.job import Asked, job_of
from streamdedup.commands.plan.sample import Sample
from streamdedup.commands.plan.sizes import size_of
from streamdedup.commands.plan.speed import Speed
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable, Filter, Removable, Static, Unionable
from streamdedup.filters.sizing import false_positive_table
from tests.commands.test_pipe import Chunks
from tests.filters.cases import random_digests
from tests.rows import every

ROOT = Path(__file__).parents[2]
DAY_S = 86_400
TABLE_BYTES_MAX = 50_000_000  # what a test may allocate

# Bits a key at 1 %, 0.1 % and 0.01 %, of a hundred million keys, as publications and measurements have them.
PUBLISHED = {
    "bitmap": (99.5, 999.5, 9999.5),
    "blocked": (9.9, 15.5, 21.9),
    "bloom": (9.59, 14.38, 19.17),
    "counting": (38.3, 57.5, 76.7),
    "cuckoo": (10.5, 13.7, 17.9),
    "dlcbf": (18.7, 22.7, 26.7),
    "dleft": (16.0, 20.0, 24.0),
    "exact": (80.0, 80.0, 80.0),
    "window": (17.89, 21.05, 25.26),
    "fuse": (1.13 * 7, 1.13 * 10, 1.13 * 14),
}


def _flat(_kind: str, _capacity: int, _error_rate: float) -> Speed:
    """As if all kinds took the same time."""
    return Speed(10.0, 10.0)


def _planned(asked: Asked, measure: Callable[[str, int, float], Speed] = _flat) -> Comparison:
    return plan(job_of(asked), measure=measure)


def _built(kind: str, capacity: int, error_rate: float, **options: int) -> Filter:
    if filters.KINDS[kind].static:
        digests = random_digests(capacity, capacity)
        made: Filter = filters.kind_of(kind).from_digests(digests, error_rate)
        return made
    if "window" in filters.KINDS[kind].abilities:
        options["retention"] = 7 * DAY_S * 1000
    return filters.build({"kind": kind, "capacity": capacity, "error_rate": error_rate, **options})


def check_size(row: tuple[str, float, int]) -> None:
    """Check that a filter of this kind, error rate and capacity is of the size that is computed, or refused."""
    kind, error_rate, capacity = row
    try:
        size = size_of(kind, capacity, error_rate)
    except ConfigError:
        with pytest.raises(ConfigError):
            _built(kind, capacity, error_rate)
        return
    if size.size_bytes > TABLE_BYTES_MAX:
        return
    made = _built(kind, capacity, error_rate, **size.options)
    assert made.size_bytes == size.size_bytes
    assert made.expected_error(capacity) == pytest.approx(size.error)
    assert getattr(made, "hashes", size.hashes) == size.hashes
    assert size.error <= error_rate * (1 + 1e-9)


class TestSizes:
    """What is computed is what a filter would be."""

    @pytest.mark.parametrize("kind", filters.KINDS)
    def test_a_filter_is_of_the_size_that_was_computed(self, kind: str) -> None:
        """Bytes, hashes and error are those of the filter that is built, and what it refuses is refused."""
        every(product([kind], [1e-2, 1e-9], [1, 100, 12_345]), check_size)

    @pytest.mark.parametrize("kind", filters.KINDS)
    def test_the_bits_a_key_are_the_published_ones(self, kind: str) -> None:
        """At 1 %, 0.1 % and 0.01 % each kind takes what publications and measurements say."""
        sizes = [size_of(kind, 10**8, rate).size_bytes * 8e-8 for rate in (1e-2, 1e-3, 1e-4)]
        assert sizes == pytest.approx(PUBLISHED[kind], rel=0.006)

    @pytest.mark.parametrize("kind", filters.KINDS)
    def test_the_abilities_are_those_of_the_kind(self, kind: str) -> None:
        """The Protocols that a filter meets are the abilities that are told, and so are its bits only set."""
        made, described = _built(kind, 10, 0.01), filters.KINDS[kind]
        protocols = {"add": Addable, "remove": Removable, "union": Unionable, "static": Static}
        met = {name for name, protocol in protocols.items() if isinstance(made, protocol)}
        assert set(described.abilities) - {"window"} == met
        assert described.only_sets_bits == made.only_sets_bits

    def test_nothing_is_allocated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ten billion keys are planned at once: their tables would be a hundred gigabytes."""

        def fail(*_: object) -> None:
            raise AssertionError("a table was made")

        monkeypatch.setattr("streamdedup.filters.memory._aligned", fail)
        started = time.thread_time()
        made = _planned(Asked(keys=10**10, error_rate=0.01))
        assert len(made.rows) == len(filters.KINDS)
        assert time.thread_time() - started < 1  # the first sum over the loads of blocks included


class TestTable:
    """The false-positive table of the literature."""

    def test_the_command_prints_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Titles, rows, columns and blank cells are those of the publication, each number within half a percent."""
        lines = (ROOT / "tests" / "data" / "false_positive_table.tsv").read_text().splitlines()
        published = [line.split("\t") for line in lines if not line.startswith("#")]
        assert main(["plan", "--table"]) == 0
        printed = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        assert printed[0] == published[0]
        errors = 0
        for ours, theirs in zip(printed[1:], published[1:], strict=True):
            assert ours[0] == theirs[0]
            assert len(ours) == len(theirs)
            assert [float(x) for x in ours] == pytest.approx([float(x) for x in theirs], rel=0.005)
            errors += len(ours) - 2
        assert errors == 225

    def test_it_is_told_as_json_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The same rows, as numbers of full precision."""
        assert main(["plan", "--table", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [list(row.values()) for row in rows] == [list(row) for row in false_positive_table()]


class TestJob:
    """What is asked for, from the options."""

    def test_the_keys_are_those_that_are_given(self) -> None:
        """--keys is taken as it is, also beside --rate and --window where it is below what they give."""
        assert job_of(Asked(keys=7)).keys == 7
        assert job_of(Asked(keys=7, rate=1.0, window_s=7.0)).keys == 7

    def test_a_window_and_a_rate_tell_the_keys(self) -> None:
        """Without --keys every event in the window may bring a new key."""
        job = job_of(Asked(window_s=7.0 * DAY_S, rate=2000.0))
        assert (job.keys, job.keys_from) == (1_209_600_000, "--rate times --window")
        assert job.new_keys_a_day == 172_800_000

    def test_a_sample_tells_keys_and_rate(self) -> None:
        """Without other options it is a day of the stream; with --window, one window of it."""
        given = Sample(lines=864, malformed=0, distinct=432, distinct_low=430, distinct_high=434)
        job = job_of(Asked(), given)
        assert (job.keys, job.keys_from) == (432, "the distinct keys of the sample")
        assert (job.rate, job.new_keys_a_day) == (0.01, 432)
        assert "events of a day" in job.rate_from
        job = job_of(Asked(window_s=86.4), given)
        assert (job.keys, job.rate, job.new_keys_a_day) == (432, 10, 432_000)

    def test_a_rate_stretches_the_sample(self) -> None:
        """With --rate and --window the sample tells only what share of the events is new."""
        given = Sample(lines=10, malformed=2, distinct=5, distinct_low=5, distinct_high=5)
        job = job_of(Asked(window_s=1000.0, rate=2.0), given)
        assert (job.keys, job.rate_from) == (1000, "--rate")
        assert job.keys_from == "--rate times --window times the share of new keys in the sample"
        assert job.new_keys_a_day == DAY_S

    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            (
                Asked(),
                "the number of keys is missing; give --keys, for example 100M, or --rate and",
            ),
            (Asked(rate=5.0), "the number of keys is missing"),
            (
                Asked(window_s=60.0),
                "--window alone does not give the number of keys in it; add --rate",
            ),
            (
                Asked(keys=121, window_s=60.0, rate=2.0),
                "--keys 121 contradicts --rate and --window",
            ),
            (Asked(keys=5, removable=True, window_s=60.0), "delete --removable or --window"),
            (
                Asked(window_s=1e6, rate=1e9),
                "by --rate times --window, are out of range; a filter is made for",
            ),
            (Asked(window_s=1.0, rate=1e-6), "0 keys, by --rate times --window, are out of range"),
        ],
    )
    def test_what_does_not_fit_is_named(self, asked: Asked, said: str) -> None:
        """The message names the options at fault."""
        with pytest.raises(ConfigError) as refusal:
            job_of(asked)
        assert said in str(refusal.value)

    def test_a_partition_has_its_share(self) -> None:
        """With partitions a filter has the worker's share with headroom, and the memory is that of all of them."""
        made = _planned(Asked(keys=10**8, error_rate=0.01, partitions=10))
        assert made.job.filter_keys == 12_000_000
        row = made.rows[0]
        assert row.size.size_bytes == size_of(row.kind, 12_000_000, 0.01).size_bytes
        assert made.memory_bytes(row) == 10 * row.size.size_bytes
        assert made.bits_a_key(row) == pytest.approx(row.size.size_bytes * 8 / 12e6)


class TestPick:
    """Which kind is advised, and that the reason is the rule."""

    def test_the_smallest_whose_snapshots_hold_up_nothing_for_long(self) -> None:
        """Where nothing else counts it is `cuckoo`; if a copy of it takes too long, it is `bloom`."""
        made = _planned(Asked(keys=10**8, error_rate=1e-6))
        assert made.pick.kind == "cuckoo"
        assert made.pick.because == ("it is the smallest to which keys can be added",)
        made = _planned(Asked(keys=10**11, error_rate=1e-6))
        assert made.pick.kind == "bloom"
        assert made.pick.because == (
            "its snapshots hold up commits for 0.4 s at most",
            "it is the smallest of those",
        )
        assert "each snapshot takes a copy of it" in made.pick.instead["cuckoo"]

    def test_a_quick_one_may_take_some_more_memory(self) -> None:
        """`blocked` wins where it takes half the time and a few percent more, not for less, nor for much more."""

        def quick(kind: str, _capacity: int, _error_rate: float) -> Speed:
            return Speed(5.0, 5.0) if kind == "blocked" else Speed(10.0, 10.0)

        picked = _planned(Asked(keys=10**8, error_rate=0.01), quick).pick
        assert picked.kind == "blocked"
        assert picked.because[0] == (
            "it takes 3% more memory than bloom, the smallest to which keys can be added, but 50% of its time"
        )
        assert picked.instead["bloom"] == "if memory counts most: 3% less"
        assert _planned(Asked(keys=10**8, error_rate=0.01)).pick.kind == "bloom"
        assert _planned(Asked(keys=10**8, error_rate=1e-6), quick).pick.kind == "cuckoo"

    def test_keys_to_be_taken_back(self) -> None:
        """Only kinds that can are told of, and of these the smallest is picked; the others say what they lack."""
        made = _planned(Asked(keys=10**8, error_rate=0.01, removable=True))
        assert {row.kind for row in made.rows} == {"counting", "cuckoo", "dleft", "dlcbf", "exact"}
        assert made.pick.kind == "cuckoo"
        assert made.pick.because[0] == "it can remove keys"
        assert "dlcbf" in made.pick.instead
        assert made.left_out["bloom"] == "keys cannot be removed"

    def test_a_list_is_pointed_to_fuse(self) -> None:
        """A kind that takes no keys later is never picked for a stream, but told of."""
        made = _planned(Asked(keys=10**8, error_rate=0.01))
        assert made.rows[0].kind == "fuse"
        assert made.pick.kind != "fuse"
        assert "a list that never changes" in made.pick.instead["fuse"]

    @pytest.mark.parametrize("removable", [False, True])
    @pytest.mark.parametrize("error_rate", [0.1, 1e-2, 1e-4, 1e-6, 1e-9, 1e-12])
    def test_there_is_always_a_pick_and_a_reason(self, error_rate: float, removable: bool) -> None:
        """The pick is one of the rows, and its reasons are not empty."""
        made = _planned(Asked(keys=10**8, error_rate=error_rate, removable=removable))
        assert made.pick.kind in {row.kind for row in made.rows}
        assert all(made.pick.because)
        assert made.pick.because

    def test_where_no_kind_can_the_reasons_are_told(self) -> None:
        """What each kind lacks is in the message."""
        with pytest.raises(ConfigError, match=r"no kind of filter can do this: .*exact: it takes"):
            _planned(Asked(keys=10**12, error_rate=1e-15))


class TestFigures:
    """What else is in a row."""

    def test_the_false_drops_of_a_day(self) -> None:
        """They are the day's new keys times the error; unknown without a rate."""
        made = _planned(Asked(keys=10**6, error_rate=0.01, rate=2000.0))
        for row in made.rows:
            assert made.false_drops_a_day(row) == pytest.approx(2000 * DAY_S * row.size.error)
        made = _planned(Asked(keys=10**6, error_rate=0.01))
        assert made.false_drops_a_day(made.rows[0]) is None

    def test_the_pause_of_a_snapshot(self) -> None:
        """Nothing for kinds that only set bits, a copy of the table for others, unknown where there is no snapshot."""
        made = _planned(Asked(keys=10**8, error_rate=0.01))
        pauses = {row.kind: row.pause_s for row in made.rows}
        assert {kind for kind, pause_s in pauses.items() if pause_s == 0} == {
            "bitmap",
            "blocked",
            "bloom",
        }
        assert pauses.pop("fuse") is None
        for row in made.rows:
            if pauses.get(row.kind):
                assert row.pause_s == row.size.size_bytes * speed.copy_s_a_byte()
        assert 1e-11 < speed.copy_s_a_byte() < 1e-7


class TestSample:
    """A sample of the stream."""

    @pytest.fixture(autouse=True)
    def sketches(self) -> None:
        """Skip where there is no wheel of the library."""
        pytest.importorskip("datasketches")

    @pytest.mark.parametrize("size", [7, 1 << 20])
    def test_lines_are_counted_by_what_they_are(self, size: int) -> None:
        """Distinct, duplicate and malformed lines, however they arrive; a few keys exactly."""
        lines = [b'{"id": %d}\n' % (i % 700) for i in range(1000)] + [b"{}\n", b'{"id": 1']
        told = sample.read(Chunks(b"".join(lines), repeat(size)), line_reader(["json:id"]))
        assert (told.lines, told.malformed, told.distinct, told.duplicates) == (1002, 2, 700, 300)
        assert told.new_share == 700 / 1002

    @pytest.mark.parametrize(
        ("data", "keys", "said"),
        [
            (b"", ["line"], "--sample has no lines"),
            (
                b"{}\n[]\n",
                ["json:id"],
                "no line had the key; in the first, the field id is missing",
            ),
            (b"a\n", ["csv:b"], "--key csv:b: the first line of the input has 0 columns"),
        ],
    )
    def test_a_sample_without_keys_is_refused(
        self, data: bytes, keys: list[str], said: str
    ) -> None:
        """The message says what is missing, and quotes no line."""
        with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
            sample.read(Chunks(data, [100]), line_reader(keys))

    def test_a_missing_library_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where it is not installed the message has the command that does it."""
        monkeypatch.setitem(sys.modules, "datasketches", None)
        with pytest.raises(ConfigError, match="run: pip install datasketches"):
            sample.read(Chunks(b"a\n"), line_reader(["line"]))

    def test_the_command_reads_a_sample(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Figures of the sample, and the false drops of a day for each kind, from a file as from standard input."""
        lines = b"".join(b'{"email": "u%d@example.com"}\n' % (i % 500) for i in range(1000))
        path = tmp_path / "sample.json"
        path.write_bytes(lines + b"{}\n")
        arguments = ["--key", "json:email", "--rate", "2000/s", "--error-rate", "0.01", "--json"]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        for source in (str(path), "-"):
            told = _told(capsys, "--sample", source, *arguments)
            assert told["sample"]["distinct"] == told["keys"] == 500
            assert (told["sample"]["duplicates"], told["sample"]["malformed"]) == (500, 1)
            for row in told["kinds"]:
                new_a_day = 2000 * DAY_S * 500 / 1001
                assert row["false_drops_per_day"] == pytest.approx(new_a_day * row["error"])


class TestCommand:
    """What is printed."""

    def test_the_table_has_every_kind_and_the_pick(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A line a kind, each with its figures below the titles, and one kind that is advised."""
        assert main(["plan", "--keys", "100M", "--error-rate", "0.01", "--rate", "2000/s"]) == 0
        out = capsys.readouterr().out
        head, table, foot = out.split("\n\n")
        assert head.startswith(
            "100,000,000 keys (--keys) at an error rate of 0.01: at least log2(1"
        )
        titles, *rows = table.splitlines()
        assert titles.split()[0] == "kind"
        assert {row.split()[0] for row in rows} == set(filters.KINDS)
        assert len({row.index(row.split("  ")[-1]) for row in [titles, *rows]}) == 1
        bloom = next(row for row in rows if row.startswith("bloom "))
        assert bloom.split()[1:7] == ["9.6", "120", "MB", "1.44", "7", "0.01"]
        assert foot.startswith("pick ")

    def test_json_has_the_same_figures(self, capsys: pytest.CaptureFixture[str]) -> None:
        """What the table rounds, and the names that docs/filters.md tells, no more and no fewer."""
        told = _told(capsys, "--keys", "1M", "--error-rate", "0.001", "--removable", "--json")
        assert told["keys"] == 1_000_000
        assert told["lower_bound_bits_per_key"] == pytest.approx(math.log2(1000))
        cuckoo = next(row for row in told["kinds"] if row["kind"] == "cuckoo")
        assert cuckoo["filter_bytes"] == size_of("cuckoo", 10**6, 1e-3).size_bytes
        assert cuckoo["times_lower_bound"] == pytest.approx(1.37, abs=0.01)
        assert cuckoo["abilities"] == ["add", "remove"]
        assert told["pick"] in {row["kind"] for row in told["kinds"]}

    def test_the_names_are_documented(self) -> None:
        """The table of docs/filters.md has each name of the JSON once, and no other."""
        given = Sample(lines=10, malformed=0, distinct=5, distinct_low=5, distinct_high=5)
        told = report.as_json(plan(job_of(Asked(), given), given, _flat))
        names = {*told, *told["kinds"][0], *told["sample"]}
        text = (ROOT / "docs" / "filters.md").read_text()
        table = text.split("### The figures of `--json`\n\n")[1].split("\n\n")[0]
        firsts = [line.split("|")[1] for line in table.splitlines()]
        assert sorted(re.findall(r"`(\w+)`", "".join(firsts))) == sorted(names)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "the number of keys is missing; give --keys"),
            (["--keys", "many"], "argument --keys: is not an integer; write one like"),
            (["--keys", "0"], "argument --keys: '0': out of range, must be 1 to 1000G keys"),
            (["--keys", "1", "--error-rate", "1"], "argument --error-rate: '1': must be a number"),
            (["--window", "7"], "argument --window: '7': has no unit; write one, as in 7d, 90s"),
            (["--window", "a week"], "argument --window: is not a duration; write one"),
            (["--rate", "2000/y"], "argument --rate: '2000/y': has the unknown unit '/y'"),
            (["--rate", "0"], "argument --rate: '0': out of range, must be "),
            (["--keys", "5", "--partitions", "0"], "argument --partitions: '0': out of range"),
            (["--keys", "5", "--key", "line"], "--key is for the keys of a sample"),
            (["--keys", "5", "--normalize", "trim"], "--normalize is for the keys of a sample"),
            (["--sample", "no-such-file"], "--sample no-such-file: No such file or directory"),
            (["--table", "--error-rate", "0.01"], "delete --error-rate or --table"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_wrong_options_end_in_2(
        self, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The option is named, and nothing is measured or printed."""
        try:
            status: object = main(["plan", *arguments])
        except SystemExit as end:
            status = end.code
        captured = capsys.readouterr()
        assert status == 2
        assert said in captured.err
        assert captured.out == ""


def _told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["plan", *arguments]) == 0
    return json.loads(capsys.readouterr().out)
