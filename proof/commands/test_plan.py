"""Claims about `plan`: all sizes, statistics, measured speeds, samples in bounded memory, and a first run."""

import os
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from itertools import product, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamdedup import filters
from streamdedup.commands.lines import line_reader
from streamdedup.commands.plan import report, sample, speed
from streamdedup.commands.plan.compare import plan
from streamdedup.commands.plan.job import Asked, job_of
from streamdedup.commands.plan.sample import Sample
from streamdedup.commands.plan.sizes import size_of
from streamdedup.filters.base import Addable
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.sizing import false_positive_table
from streamdedup.kernel import COMPILING
from tests.commands.test_pipe import Chunks
from tests.commands.test_plan import (
    _built,
    _flat,
    _planned,
    check_size,
)
from tests.filters.cases import band, random_digests
from tests.rows import every


def test_a_first_run_says_that_it_compiles(tmp_path: Path) -> None:
    """One line on standard error where nothing is compiled yet, and none on the next run."""
    environment = os.environ | {"STREAMDEDUP_CACHE": str(tmp_path)}
    asked = ["--keys", "1k", "--error-rate", "1e-15", "--window", "7d"]
    command = [sys.executable, "-m", "streamdedup", "plan", *asked]
    told = [
        subprocess.run(command, env=environment, capture_output=True, check=True).stderr
        for _ in range(2)
    ]
    assert told == [f"streamdedup: {COMPILING}\n".encode(), b""]


class TestSizes:
    """What is computed is what a filter would be."""

    @pytest.mark.parametrize("kind", filters.KINDS)
    def test_a_filter_is_of_the_size_that_was_computed_at_every_rate(self, kind: str) -> None:
        """From the highest to the lowest, and from one key to many."""
        rates = [0.5, 0.2, 1e-2, 1e-3, 1e-5, 1e-9, 1e-12, 1e-15]
        every(product([kind], rates, [1, 2, 7, 100, 1000, 12_345, 200_000]), check_size)

    def test_a_list_of_several_parts_is_of_the_size_that_was_computed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A long list is planned in the parts in which it is built, which are nearly of one size."""
        monkeypatch.setattr("streamdedup.filters.fuse.fuse.PART_KEYS", 20_000)
        made = _built("fuse", 100_000, 1e-3)
        assert made.header()["parts"] == 5
        assert size_of("fuse", 100_000, 1e-3).size_bytes == pytest.approx(made.size_bytes, rel=0.02)

    @pytest.mark.parametrize(("ratio", "hashes"), [(3, 2), (8, 5), (10, 7), (12, 8), (16, 4)])
    def test_a_filter_errs_as_it_says(self, ratio: int, hashes: int) -> None:
        """A Bloom filter with that many hashes, filled to m/n, meets its cell of the table."""
        error = {row: errors for row, _, errors in false_positive_table()}[ratio][hashes - 1]
        seen = Bloom(100_000, 2.0**-hashes)  # the error rate for which so many hashes are best
        assert seen.hashes == hashes
        seen.add_many(random_digests(ratio, seen.bits // ratio))
        probes = random_digests(99, 1 << 20)
        low, high = band(error * len(probes))
        assert low <= int(seen.contains_many(probes).sum()) <= high


class TestFigures:
    """What else is in a row."""

    def test_what_takes_many_times_the_memory_is_no_alternative(self) -> None:
        """For few keys a list takes more than a stream's filter; `exact` is told of whatever it takes."""
        made = _planned(Asked(keys=10, error_rate=0.01))
        sizes = {row.kind: row.size.size_bytes for row in made.rows}
        assert sizes["fuse"] > 3 * sizes[made.pick.kind]
        assert "fuse" not in made.pick.instead
        assert "exact" in _planned(Asked(keys=10**8, error_rate=0.01)).pick.instead

    def test_the_speeds_are_measured_in_about_a_second(self) -> None:
        """Every kind has speeds above 0, and where all is compiled they take about a second."""
        for kind in filters.KINDS:
            speed.measured(kind, 100, 0.01)
        started = time.thread_time()
        for kind in filters.KINDS:
            measured = speed.measured(kind, 10**8, 0.01)
            assert 0 < measured.contains_ns < 1e5, kind
            assert 0 < measured.add_ns < 1e5, kind
        assert time.thread_time() - started < 4

    @pytest.mark.parametrize("error_rate", [0.5, 1e-6])
    @pytest.mark.parametrize("keys", [1, 10**3, 10**9])
    def test_a_measurement_takes_bounded_memory(
        self, keys: int, error_rate: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No table to measure with is larger than the bound, however large the planned one."""
        built: list[Addable] = []

        def building(config: dict[str, Any]) -> Addable:
            built.append(filters.build(config))
            return built[-1]

        monkeypatch.setattr(speed, "build", building)
        for kind in ("bitmap", "blocked", "exact"):
            if keys <= 10**3 or (kind, error_rate) != ("bitmap", 1e-6):  # which is too large
                speed.measured(kind, keys, error_rate)
        sizes = [made.size_bytes for made in built]
        assert 0 < max(sizes) <= speed.TABLE_BYTES_MAX * 1.001

    def test_a_few_of_anything_is_told_in_words(self) -> None:
        """One is no plural, nothing is rounded to a number of many digits, and an exact count has no bounds."""
        given = Sample(2, malformed=0, distinct=1, distinct_low=1, distinct_high=1, most_frequent=2)
        made = plan(job_of(Asked(partitions=2, error_rate=1e-15), given), given, _flat)
        text = report.as_text(made)
        assert (
            "sample of 2 lines: 1 distinct key, 1 duplicate (50.0%), 0 malformed\n100.0% of the"
            " lines with a key have the most frequent one, 0.0% an empty one\n1 key (" in text
        )
        assert "2 partitions: a filter of 1 key each, with headroom" in text
        [memory, disk] = re.findall(
            r"\n  a worker with all partitions needs (\d+) bytes for its filters, and (\d+) bytes of disk for their"
            r" snapshots: 3 of each \(snapshot\.keep\), and the one that is being written\n",
            text,
        )[0]
        assert int(disk) == 4 * int(memory)
        assert made.rows[0].size.size_bytes * 8 == made.snapshot_disk_bytes(made.rows[0])
        assert "<1 ms" in text
        assert "e-" not in text.split("contains ns")[0].replace("1e-15", "").replace("them", "")


class TestSample:
    """A sample of the stream."""

    @pytest.fixture(autouse=True)
    def sketches(self) -> None:
        """Skip where there is no wheel of the library."""
        pytest.importorskip("datasketches")

    @pytest.mark.parametrize("size", [1 << 12, 1 << 20])
    def test_the_most_frequent_key_and_empty_ones_are_counted(self, size: int) -> None:
        """Among 20,000 keys that come once; empty keys are one key."""
        data = b"".join(b"%d\n" % i + (b"often\n" if i % 4 == 0 else b"") for i in range(20_000))
        told = sample.read(Chunks(data + 100 * b"\n", repeat(size)), line_reader(["line"]))
        assert 5000 - told.lines / 1024 <= told.most_frequent <= 5000
        assert told.empty == 100

    @pytest.mark.parametrize("distinct", [1, 30_000, 400_000])
    def test_distinct_keys_lie_within_the_bounds(self, distinct: int) -> None:
        """The estimate is within half a percent, and the truth within the bounds that are told."""
        data = b"".join(b"key-%d\n" % (i % distinct) for i in range(distinct + distinct // 2))
        told = sample.read(Chunks(data, repeat(1 << 20)), line_reader(["line"]))
        assert told.distinct == pytest.approx(distinct, rel=0.005)
        assert told.distinct_low <= distinct <= told.distinct_high
        assert told.distinct_low <= told.distinct <= told.distinct_high
        assert told.lines == told.distinct + told.duplicates

    def test_there_are_no_more_keys_than_lines(self) -> None:
        """An estimate above what was read is cut to it: no duplicates below 0."""
        for seed in range(20):
            keys = np.random.default_rng(seed).integers(0, 1 << 62, 20_000).tolist()
            told = sample.read(
                Chunks(b"".join(b"%d\n" % key for key in keys), repeat(1 << 20)),
                line_reader(["line"]),
            )
            assert told.distinct <= told.distinct_high <= 20_000
            assert told.duplicates >= 0

    def test_memory_does_not_grow_with_the_sample(self) -> None:
        """While 300,000 lines are read, never more than some chunks of them are held."""

        def lines() -> Iterator[bytes]:
            tracemalloc.reset_peak()  # a block was there before, and not used, for what `_keep_memory` says
            for start in range(0, 300_000, 5000):
                yield b"".join(b"%09d\n" % i for i in range(start, start + 5000))

        class Generated:
            """A reader of `lines`."""

            pieces = lines()

            def read1(self, _size: int, /) -> bytes:
                return next(self.pieces, b"")

        tracemalloc.start()
        told = sample.read(Generated(), line_reader(["line"]))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert told.lines == 300_000
        assert peak < 3 << 20  # all lines are 3 MB, as objects 13 MB
