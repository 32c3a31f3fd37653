"""Filters in files: each byte flipped, each call failed, many at a time."""

import errno
import gc
import itertools
import os
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import streamdedup
from streamdedup.errors import SnapshotError
from streamdedup.snapshot import Store, files
from tests.filters.cases import CASES, Case, state
from tests.rows import every
from tests.snapshot.shelf import IDENTITY, bloom, by_the_page, digests, fields_of, table
from tests.snapshot.test_files import both_ways
from tests.snapshot.test_files import path as path  # noqa: PLC0414 - a fixture
from tests.snapshot.test_files import whole as whole  # noqa: PLC0414 - a fixture


def test_a_map_goes_with_its_filter(path: Path) -> None:
    """No descriptor and no map is left behind by loads that ended, well or not."""
    streamdedup.save(bloom(), path)
    damaged = path.with_name("damaged")
    damaged.write_bytes(path.read_bytes()[:-1])
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208 - names are enough
    for _ in range(50):
        streamdedup.load(path, mmap=True)
        for mmap in (False, True):
            with suppress(SnapshotError):
                streamdedup.load(damaged, mmap=mmap)
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208 - as above


@both_ways
def test_a_failed_read_leaves_no_table(path: Path, mmap: bool) -> None:
    """What was read before the disk failed, or before damage was found, is freed without the garbage collector."""

    class Table:
        """What a frame of the reader holds."""

    tables: list[weakref.ref[Table]] = []

    def failing(*_: object) -> NoReturn:
        table = Table()
        tables.append(weakref.ref(table))
        raise OSError(errno.EIO, "no answer") if len(tables) == 1 else SnapshotError("damaged")

    streamdedup.save(bloom(), path)
    gc.disable()
    try:
        for said in ("EIO", "damaged"):
            with suppress(SnapshotError), files.reading(path, mmap=mmap) as reader:
                failing(reader)
            assert tables[-1]() is None, said
    finally:
        gc.enable()


def test_a_program_may_look_into_a_workers_snapshot(tmp_path: Path) -> None:
    """It gets a filter like any other; the worker's file is not touched."""
    store = Store(tmp_path, group="group", topic="unique", partition=0)
    saved = store.save(bloom(), 7, lambda: 9, IDENTITY).path
    before = saved.read_bytes()
    for mmap in (False, True):
        assert state(streamdedup.load(saved, mmap=mmap)) == state(bloom())
    assert saved.read_bytes() == before


def test_saves_to_one_path_do_not_meet(path: Path) -> None:
    """Many at the same time: the file is that of one of them, and nothing is left beside it."""
    made = [bloom(seed=seed) for seed in range(8)]
    savers = [threading.Thread(target=streamdedup.save, args=(one, path)) for one in made]
    for saver in savers:
        saver.start()
    for saver in savers:
        saver.join()
    assert table(streamdedup.load(path)) in [table(one) for one in made]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_importing_the_package_brings_nothing() -> None:
    """Neither numpy nor numba, nor more of ours than the version; below 50 ms of a processor, at the best of five."""
    code = (
        "import sys, time; before = set(sys.modules); begun = time.process_time(); import streamdedup;"
        " print(time.process_time() - begun, *sorted(set(sys.modules) - before))"
    )
    runs = [subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(5)]
    assert min(float(run.split()[0]) for run in runs) < 0.05
    brought = {name.partition(".")[0] for name in runs[0].split()[1:]}
    assert not brought & {"numpy", "numba", "mmh3", "pydantic", "crc32c"}
    ours = [name for name in runs[0].split() if name.startswith("streamdedup")]
    assert ours == ["streamdedup", "streamdedup.version"]


def test_a_mapped_file_may_be_replaced(path: Path) -> None:
    """Who mapped the old one keeps it; who loads anew has the new one."""
    old, new = bloom(seed=1), bloom(seed=2)
    streamdedup.save(old, path)
    loaded = streamdedup.load(path, mmap=True)
    streamdedup.save(new, path)
    assert table(loaded) == table(old)
    assert table(streamdedup.load(path, mmap=True)) == table(new)


def test_a_mapped_filter_can_be_saved(path: Path, tmp_path: Path) -> None:
    """Also over the file that it stands on."""
    saved = bloom()
    streamdedup.save(saved, path)
    loaded = streamdedup.load(path, mmap=True)
    for target in (path, tmp_path / "copy"):
        streamdedup.save(loaded, target)
        assert state(streamdedup.load(target)) == state(saved)


COUNTED = ("keys",)  # what may be another number, and still fit the table


def test_a_filter_header_that_is_one_off_is_refused_with_all_checksums_right(path: Path) -> None:
    """Whoever makes the file anew around it, at both places where it stands: no wrong filter comes of it."""

    def check(row: tuple[Case, bool]) -> None:
        case, mmap = row
        saved = case.build(100, case.error_rates[0])
        saved.add_many(digests(50, 1))
        streamdedup.save(saved, path)
        top, trailer = fields_of(path.read_bytes())
        buffers = [bytes(buffer) for buffer in saved.buffers()]
        hash_key = case.options.get("hash_key", b"")

        def write(change: dict[str, int]) -> None:
            fields = {"filter": saved.header() | change}
            path.write_bytes(by_the_page(top | fields, buffers, trailer | fields))

        write({})
        assert state(streamdedup.load(path, mmap=mmap, hash_key=hash_key)) == state(saved)
        numbers = [name for name, value in saved.header().items() if type(value) is int]
        for name in [name for name in numbers if name not in COUNTED]:
            for change in (-1, 1):
                write({name: saved.header()[name] + change})
                try:
                    loaded = streamdedup.load(path, mmap=mmap, hash_key=hash_key)
                except SnapshotError:
                    continue
                assert loaded.contains_many(digests(50, 1)).all(), name
                assert loaded.error_rate_now == saved.error_rate_now, name

    every(itertools.product(CASES, [False, True]), check)
