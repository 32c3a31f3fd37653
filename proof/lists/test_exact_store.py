"""Claims about exact stores: what they hold, to which list they belong, and that half a store is none.

They are built by `lists build --exact`, from real files, and lie beside the list.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import ConfigError, SnapshotError, StreamdedupError
from streamdedup.lists import load, sorted_digests
from streamdedup.lists.build import needs as memory
from streamdedup.lists.build import spill_files
from streamdedup.lists.build.spill_files import Spill
from streamdedup.lists.build.store import StoreBuilder
from streamdedup.lists.digest_blocks import BLOCK_ROWS
from streamdedup.lists.exact_store import ExactStore, place_of, versions_in
from streamdedup.lists.sorted_digests import SortedDigests
from streamdedup.snapshot.format import pieces
from streamdedup.snapshot.header import Header
from tests.lists.test_exact_store import (
    ABSENT,
    ADDRESSES,
    ENTRIES,
    KEYS,
    OPTIONS,
    OWNER,
    made,
    opened,
    state,
    written_digests,
)
from tests.lists.tools import HASHES, PEAK, Commands, child, written

KILLED = """
import os, signal, sys
from streamdedup.cli import main
from streamdedup.lists.build import builder, store
from streamdedup.snapshot import files
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
where, *arguments = sys.argv[1:]
if where == "reading": builder._list_of = die
if where == "storing": store._content = die
if where == "naming": files.sync_directory = die
if where == "between": builder.files.save = die
main(["lists", "build", *arguments])
"""


@pytest.mark.parametrize("where", ["reading", "storing", "naming", "between"])
def test_a_build_that_is_killed_leaves_list_and_store_as_they_were(
    where: str, tmp_path: Path
) -> None:
    """The list that is there has its store at every moment; the next build takes away what lies about."""
    listed = made(tmp_path, ENTRIES)
    before, place = (tmp_path / "out.list").read_bytes(), place_of(tmp_path / "out.list")
    source, output = written(tmp_path / "other.txt", ABSENT), tmp_path / "out.list"
    command = [sys.executable, "-c", KILLED, where, str(source), "-o", str(output), *OPTIONS]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (tmp_path / "out.list").read_bytes() == before
    assert opened(listed).holds(listed.hash.digests([*KEYS, *ABSENT])).sum() == len(KEYS)
    again = made(tmp_path, ABSENT)
    assert opened(again).holds(again.hash.digests([*KEYS, *ABSENT])).sum() == len(ABSENT)
    assert sorted(path.name for path in place.iterdir()) == sorted([listed.version, again.version])


STATED = f"""{PEAK}
assert main(["lists", "build", "in.txt", "-o", "out.list", "--kind", "bloom", "--exact"]) == 0
print(peak())
"""


def test_a_store_takes_no_more_memory_and_disk_than_stated(tmp_path: Path) -> None:
    """Of the whole process, once the kernels are compiled; however many entries there are, hardly more."""
    for entries in (10, 2_000_000):  # the first build is there to compile
        with (tmp_path / "in.txt").open("wb") as file:
            file.write(b"".join(b"%d@example.com\n" % n for n in range(entries)))
        done = child(STATED, directory=tmp_path)
    stated = re.search(r"needs about ([\d.]+) MB of memory.*, and ([\d.]+) MB of disk", done.stderr)
    assert stated is not None
    assert int(done.stdout) < float(stated[1]) * 1e6
    listed = load(tmp_path / "out.list")
    store = opened(listed)
    assert store.entries == 2_000_000
    assert 2 * store.size_bytes < float(stated[2]) * 1e6


OLD = "2026-01-01T00:00:00Z-00000000"  # a version
WORDS = st.sampled_from([0, 1, 2, 3, 2**63, 2**64 - 2, 2**64 - 1])


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=60),
    shift=st.sampled_from([0, 30, 62]),
    most=st.integers(1, 20),
    step=st.integers(1, 9),
)
@settings(deadline=None, max_examples=60)
def test_spilled_digests_come_back_ascending_each_once(
    rows: list[tuple[int, int]], shift: int, most: int, step: int
) -> None:
    """In whatever pieces they came, and however few may be in memory; no file is left."""
    digests = np.array(rows, dtype=np.uint64).reshape(-1, 2) << np.uint64(shift)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill_files, "ROWS_MAX", most)
        spill = Spill(Path(name))
        for start in range(0, len(digests), step):
            spill.add(digests[start : start + step])
        pieces = list(spill.ascending())
        assert not list(Path(name).iterdir())
    found = [tuple(row) for piece in pieces for row in piece.tolist()]
    assert found == sorted(set(map(tuple, digests.tolist())))


@given(
    rows=st.sets(st.tuples(WORDS, WORDS), max_size=40),
    asked=st.lists(st.tuples(WORDS, WORDS), max_size=40),
    most=st.integers(1, 7),
)
@settings(deadline=None, max_examples=60)
def test_digests_of_any_values_are_found(
    rows: set[tuple[int, int]], asked: list[tuple[int, int]], most: int
) -> None:
    """Equal halves, zeros and ones in all bits: a lookup assumes nothing about how digests are distributed."""
    held = np.array(sorted(rows), dtype=np.uint64).reshape(-1, 2)
    digests = np.array([*asked, *rows], dtype=np.uint64).reshape(-1, 2)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_digests, "DIGESTS_AT_A_TIME", most)
        path = written_digests(Path(name) / "store", held)
        found = SortedDigests(path, "again").find(digests)
    assert found.tolist() == [tuple(row) in rows for row in digests.tolist()]


def test_nothing_is_written_where_it_lies(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several workers may ask it, also from a disk that is mounted read-only; nothing is left elsewhere."""
    listed, elsewhere = made(tmp_path, ENTRIES), tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    before = state(tmp_path)
    first, second = opened(listed), opened(listed)
    for store in (first, second):
        assert store.holds(listed.hash.digests(KEYS)).all()
    del first, second, store
    assert state(tmp_path) == before
    assert not list(elsewhere.iterdir())


def test_several_threads_may_ask_at_once(tmp_path: Path) -> None:
    """As those of several partitions do: each gets what it asked for."""
    listed = made(tmp_path, ENTRIES)
    store = opened(listed)

    def ask(thread: int) -> list[bool]:
        here, absent = KEYS[thread::4], ABSENT[thread::4]
        digests, expected = listed.hash.digests(here + absent), [True] * len(here)
        expected += [False] * len(absent)
        return [store.holds(digests).tolist() == expected for _ in range(20)]

    with ThreadPoolExecutor(4) as threads:
        assert all(all(right) for right in threads.map(ask, range(4)))


def test_several_buffers_are_none(tmp_path: Path) -> None:
    """Whatever they add up to: a store has one, so a header of thousands takes no memory."""
    of_store = OWNER.header(2)
    buffers = [memoryview(bytes(16)), memoryview(bytes(16)), *[memoryview(b"")] * 3000]
    sizes = tuple(len(buffer) for buffer in buffers)
    head = Header(filter=of_store, buffer_sizes=sizes, saved_at=0.0, writer="a test")
    (tmp_path / "store").write_bytes(
        b"".join(map(bytes, pieces(head, buffers, lambda: (of_store, 0))))
    )
    with pytest.raises(SnapshotError, match=r"its size is not that of its entries; again"):
        SortedDigests(tmp_path / "store", "again")


@pytest.mark.parametrize("last", [(1, 1), (1, 2)], ids=["smaller", "equal"])
@pytest.mark.parametrize("rows", [1, BLOCK_ROWS, 1 << 16], ids=["row", "block", "chunk"])
def test_digests_that_do_not_ascend_are_refused(
    rows: int, last: tuple[int, int], tmp_path: Path
) -> None:
    """Though all checksums hold: a lookup would miss some. Within a block, between blocks, between chunks."""
    held = np.stack((np.arange(rows), np.full(rows, 2)), axis=1).astype(np.uint64)
    more = np.array([[rows - last[0], last[1]]], dtype=np.uint64)
    path = written_digests(tmp_path / "store", np.vstack((held, more)))
    with pytest.raises(SnapshotError, match=r"digests are not in ascending order; again"):
        SortedDigests(path, "again")


def test_a_store_that_lies_where_a_directory_is_due_is_named(tmp_path: Path) -> None:
    """`blocklist.exact` names the directory, not the file of one version."""
    listed = made(tmp_path, ENTRIES)
    path = place_of(tmp_path / "out.list") / listed.version
    with pytest.raises(ConfigError, match=rf"{path} is no directory of stores; build"):
        ExactStore.open(path, listed)


def test_a_list_that_is_away_for_a_moment_keeps_its_store(tmp_path: Path) -> None:
    """Nobody knows then which store is in force, so none is removed; the build that knows it cleans up."""
    listed, output = made(tmp_path, ENTRIES), tmp_path / "out.list"
    output.rename(tmp_path / "away")
    second = made(tmp_path, ENTRIES[1:])
    assert opened(listed).holds(listed.hash.digests(KEYS)).all()
    os.truncate(output, 10)
    third = made(tmp_path, ENTRIES[2:])
    versions = sorted(made_.version for made_ in (listed, second, third))
    assert versions_in(place_of(output)) == versions
    fourth = made(tmp_path, ENTRIES[3:])
    assert versions_in(place_of(output)) == sorted([third.version, fourth.version])


def test_a_linked_store_goes_as_a_link(tmp_path: Path) -> None:
    """What it leads to is somebody else's, and stays."""
    made(tmp_path, ENTRIES)
    elsewhere, place = tmp_path / "elsewhere", place_of(tmp_path / "out.list")
    elsewhere.mkdir()
    written(elsewhere / "kept", ["x"])
    for name in (OLD, ".building"):
        (place / name).symlink_to(elsewhere)
    made(tmp_path, ENTRIES[1:])
    assert not any((place / name).is_symlink() for name in (OLD, ".building"))
    assert (elsewhere / "kept").exists()


def test_a_build_whose_directory_was_removed_meanwhile_does_not_go_on(tmp_path: Path) -> None:
    """The build before removed it when it failed; a third may have made it again, and holds the lock of that one."""
    builder = StoreBuilder(tmp_path / "out.list")
    flock = fcntl.flock

    def removed_first(fd: int, operation: int) -> None:
        shutil.rmtree(builder.place)
        builder.place.mkdir()
        flock(fd, operation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", removed_first)
        with pytest.raises(SnapshotError, match="another process is building"), builder:
            pass
    assert list(builder.place.iterdir()) == []


def test_room_is_looked_for_where_the_store_lies_after_the_clean_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the disk that a link leads to; what a build that was killed left there does not stop the next."""
    other_disk, usage = tmp_path / "disk", shutil.disk_usage(tmp_path)
    left = other_disk / ".building" / "000.digests"
    left.parent.mkdir(parents=True)
    written(left, ["x"])
    place_of(tmp_path / "out.list").symlink_to(other_disk)

    def found(path: Path) -> Any:
        is_there = path.samefile(other_disk) and not left.exists()
        return usage._replace(free=1 << 40 if is_there else 0)

    monkeypatch.setattr(memory, "disk_usage", found)
    listed = made(tmp_path, ENTRIES)
    assert opened(listed).holds(listed.hash.digests(KEYS)).all()
    assert versions_in(other_disk) == [listed.version]


def test_inspect_tells_of_the_store(lists: Commands) -> None:
    """How many keys it has, whether it is this list's, and whether its checksums hold."""
    listed = made(lists.directory, ENTRIES)
    row = r"^exact store  (.*)\nchecksums    (.*)\n"

    def told() -> tuple[int, str, str]:
        said = lists("inspect", "out.list")
        found = re.search(row, said.out.decode(), re.MULTILINE)
        assert found is not None
        return said.status, found[1], found[2]

    status, store, checksums = told()
    assert (status, checksums) == (0, "hold")
    assert re.fullmatch(r"502 keys, 1\d\.\d kB", store)
    path = place_of(lists.directory / "out.list") / listed.version
    path.write_bytes(path.read_bytes()[:-1])
    status, store, checksums = told()
    assert status == 1
    assert store == f"out.list.exact/{listed.version}"
    assert checksums.startswith("DO NOT HOLD: cannot use out.list.exact/")
    path.write_bytes(written_digests(path, np.zeros((0, 2), dtype=np.uint64)).read_bytes())
    status, _store, checksums = told()
    assert status == 1
    assert checksums.startswith("NOT OF THIS LIST: out.list.exact/")
    made(lists.directory, ENTRIES[1:], exact=False)
    assert told() == (0, "of another version of the list: it cannot be used", "hold")
    shutil.rmtree(lists.directory / "out.list.exact")
    assert told() == (0, "none", "hold")


@pytest.mark.parametrize(
    "header",
    [{"entries": 3}, {"entries": "2"}, {"kind": "bloom"}, {"version": None}, {"hash": 7}],
    ids=["entries", "no number", "a filter", "no version", "no hash"],
)
def test_a_header_that_does_not_fit_is_refused(header: dict[str, Any], tmp_path: Path) -> None:
    """Whoever wrote it, with whatever checksums."""
    listed = made(tmp_path, ENTRIES)
    path = place_of(tmp_path / "out.list") / listed.version
    written_digests(path, np.zeros((2, 2), dtype=np.uint64), header)
    with pytest.raises(StreamdedupError, match=re.escape(str(path))):
        opened(listed)


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_spilled_file_that_changes_ends_the_build(harm: str, tmp_path: Path) -> None:
    """Otherwise the store would lack entries, and nothing would say so."""
    spill = Spill(tmp_path)
    spill.add(HASHES["murmur3"].digests(KEYS))
    spill._spill()
    path = sorted(tmp_path.iterdir())[7]
    path.unlink() if harm == "gone" else os.truncate(path, 8)
    with pytest.raises(SnapshotError, match=rf"cannot \w+ {path}: "):
        list(spill.ascending())


def test_a_disk_that_is_too_small_is_told_beforehand(
    lists: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both figures, before anything is read."""
    written(lists.directory / "in.txt", ENTRIES)
    usage = shutil.disk_usage(lists.directory)
    monkeypatch.setattr(memory, "disk_usage", lambda _path: usage._replace(free=1000))
    said = lists("build", "in.txt", "-o", "out.list", *OPTIONS)
    assert said.status == 2
    assert "needs about 16.6 kB of disk while it is built, and 1.0 kB are free in" in said.errors
    assert not (lists.directory / "out.list").exists()


def test_lists_check_asks_the_store_where_it_is_told_to(lists: Commands) -> None:
    """Without, it says what a worker does that blocks all that the list matches."""
    made(lists.directory, ENTRIES)
    keys = "\n".join([*ADDRESSES[:3], "a@junk.example", "a@b.tree.example", *ABSENT]).encode()
    plain = lists("check", "out.list", stdin=keys).out.decode().splitlines()
    said = lists("check", "out.list", "--exact", stdin=keys).out.decode().splitlines()
    wrong = [row for row in range(5, len(plain)) if plain[row].startswith("blocked")]
    assert 200 < len(wrong) < 600
    assert all(line.startswith("blocked") for line in plain[:5])
    assert [line.split("\t")[:2] for line in said[:5]] == [
        *[["blocked", "address"]] * 3,
        *[["blocked", "domain"]] * 2,  # also where their addresses are matched, too: wrongly
    ]
    for row in range(5, len(plain)):
        rule = "false-positive" if row in wrong else "-"
        assert said[row] == f"pass\t{rule}\t{ABSENT[row - 5]}"
