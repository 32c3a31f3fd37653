"""Claims about exact stores: what they hold, to which list they belong, and that half a store is none.

They are built by `lists build --exact`, from real files, and lie beside the list.
"""

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import ConfigError, SnapshotError, StreamdedupError
from streamdedup.keys.hashing import Digests
from streamdedup.lists import KeyList, load, sorted_digests
from streamdedup.lists.build import needs as memory
from streamdedup.lists.build import spill_files
from streamdedup.lists.build.builder import BuildRequest, build
from streamdedup.lists.build.proof import prove
from streamdedup.lists.build.rejects import Rejects
from streamdedup.lists.build.spill_files import Spill
from streamdedup.lists.build.store import StoreBuilder
from streamdedup.lists.digest_blocks import BLOCK_ROWS
from streamdedup.lists.exact_store import ExactStore, Owner, place_of, versions_in
from streamdedup.lists.sorted_digests import BLOCK_BYTES, DIGESTS_AT_A_TIME, SortedDigests
from streamdedup.snapshot.format import pieces
from streamdedup.snapshot.header import Header
from tests.lists.tools import (
    HASHES,
    PROVIDER,
    Commands,
    inputs,
    quiet,
    recipe,
    written,
)

ADDRESSES = [f"user{n}@example.com" for n in range(500)]


KEYS = [*ADDRESSES, "@junk.example", "tree.example"]  # as the list holds them


ENTRIES = [*ADDRESSES, "@junk.example", ".tree.example", "User7@example.com"]


ABSENT = [f"nobody{n}@example.com" for n in range(2000)]


OLD = "2026-01-01T00:00:00Z-00000000"  # a version


NO_CHANGES: Mapping[str, Any] = MappingProxyType({})


OWNER = Owner("version", "murmur3", "check", "none")


WORDS = st.sampled_from([0, 1, 2, 3, 2**63, 2**64 - 2, 2**64 - 1])


OPTIONS = ("--kind", "bloom", "--error-rate", "0.2", "--normalize", "email", "--exact")


def exact(**given: Any) -> BuildRequest:
    """A recipe of a list that errs often, and of its store."""
    return recipe(
        **{"kind": "bloom", "error_rate": 0.2, "normalizing": PROVIDER, "exact": True, **given}
    )


def made(directory: Path, entries: list[str], **given: Any) -> KeyList:
    """The list of these entries, its store beside it."""
    source, output = written(directory / "in.txt", entries), directory / "out.list"
    build(exact(**given), inputs(source), output, Rejects(directory / "bad", 10), quiet())
    return load(output, hash_key=exact(**given).hash.key)


def opened(listed: KeyList) -> ExactStore:
    """The store that lies beside it."""
    assert listed.path is not None
    return ExactStore.open(place_of(listed.path), listed)


def written_digests(path: Path, digests: Digests, header: Mapping[str, Any] = NO_CHANGES) -> Path:
    """A whole store with these digests, in their order, and these changes of its header."""
    of_store = {**OWNER.header(len(digests)), **header}
    text = memoryview(digests.tobytes())
    head = Header(filter=of_store, buffer_sizes=(len(text),), saved_at=0.0, writer="a test")
    path.write_bytes(b"".join(map(bytes, pieces(head, [text], lambda: (of_store, 0)))))
    return path


def state(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file below, with its size and when it was written to."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
    }


@pytest.mark.parametrize("hash_", HASHES.values(), ids=HASHES.keys())
@pytest.mark.parametrize("kind", ["bloom", "fuse", "cuckoo"])
def test_it_holds_every_entry_once_and_nothing_else(kind: str, hash_: Any, tmp_path: Path) -> None:
    """Addresses and domains, whatever the list itself takes for present, in any order that is asked."""
    listed = made(tmp_path, ENTRIES, kind=kind, error_rate=0.05, hash=hash_)
    store = opened(listed)
    asked = [*ABSENT[:1000], *KEYS, *ABSENT[1000:]]
    found = store.holds(listed.hash.digests(asked))
    assert found.tolist() == [key in set(KEYS) for key in asked]
    assert store.entries == len(KEYS)
    assert store.holds(listed.hash.digests([])).tolist() == []
    positives = np.count_nonzero(listed.addresses.contains_many(listed.hash.digests(ABSENT)))
    assert positives > 20  # else nothing was claimed


def test_no_address_is_in_its_files(tmp_path: Path) -> None:
    """Nor any part of one that says anything: digests only, for their owner alone."""
    made(tmp_path, ENTRIES, hash=HASHES["siphash"])
    place = place_of(tmp_path / "out.list")
    files = [path for path in place.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert place.stat().st_mode & 0o777 == 0o700
    held = b"".join(path.read_bytes() for path in files)
    assert not re.search(rb"user\d|example\.com|junk|tree", held)
    assert HASHES["siphash"].key not in held


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


@pytest.mark.parametrize("entries", [1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS - 1])
def test_the_last_block_may_be_of_any_length(entries: int, tmp_path: Path) -> None:
    """What fills it up is not taken for a digest, and no digest is lost between two blocks."""
    listed = made(tmp_path, [f"user{n}@example.com" for n in range(entries)])
    store, hash_ = opened(listed), listed.hash
    assert store.entries == entries
    assert store.holds(hash_.digests([f"user{n}@example.com" for n in range(entries)])).all()
    assert not store.holds(hash_.digests(ABSENT)).any()
    assert not store.holds(np.zeros((1, 2), dtype=np.uint64)).any()
    assert not store.holds(np.full((1, 2), np.iinfo(np.uint64).max, dtype=np.uint64)).any()


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


def test_a_lookup_reads_one_block_for_each_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none twice for the digests that are looked up together."""
    listed = made(tmp_path, [f"user{n}@example.com" for n in range(20 * BLOCK_ROWS)])
    store, reads = opened(listed), list[int]()
    preadv = os.preadv

    def counted(fd: int, buffers: Any, at: int) -> int:
        reads.append(sum(len(buffer) for buffer in buffers))
        return preadv(fd, buffers, at)

    monkeypatch.setattr(os, "preadv", counted)
    store.holds(listed.hash.digests(["nobody@example.com"]))
    assert reads == [BLOCK_BYTES]
    store.holds(listed.hash.digests(ABSENT[:DIGESTS_AT_A_TIME]))
    assert len(reads) == 1 + 20


def test_an_empty_list_has_an_empty_store(tmp_path: Path) -> None:
    """It knows nobody."""
    store = opened(made(tmp_path, [], allow_empty=True))
    assert store.entries == 0
    assert not store.holds(HASHES["murmur3"].digests(["a@x.com"])).any()


def test_entries_of_standard_input_are_stored_too(lists: Commands) -> None:
    """It is read once only, and that is enough."""
    text = "\n".join(ENTRIES).encode()
    said = lists("build", "-", "-o", "out.list", "--normalize", "email", "--exact", stdin=text)
    assert said.status == 0, said.errors
    assert (
        "bytes of disk for the exact store; how many entries the inputs have is not known"
        in said.errors
    )
    listed = load(lists.directory / "out.list")
    assert opened(listed).holds(listed.hash.digests(KEYS)).all()


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


def test_a_store_that_is_removed_can_be_asked_until_it_is_closed(tmp_path: Path) -> None:
    """A batch that began with it ends with it."""
    listed = made(tmp_path, ENTRIES)
    store = opened(listed)
    shutil.rmtree(place_of(tmp_path / "out.list"))
    assert store.holds(listed.hash.digests([*KEYS, *ABSENT])).sum() == len(KEYS)


def test_several_threads_may_ask_at_once(tmp_path: Path) -> None:
    """As those of several partitions do: each gets what it asked for."""
    listed = made(tmp_path, ENTRIES)
    store = opened(listed)

    def ask(thread: int) -> list[bool]:
        keys = KEYS[thread::4] + ABSENT[thread::4]
        return [
            bool(
                store.holds(listed.hash.digests(keys)).tolist()
                == [key in set(KEYS) for key in keys]
            )
            for _ in range(20)
        ]

    with ThreadPoolExecutor(4) as threads:
        assert all(all(right) for right in threads.map(ask, range(4)))


def test_a_list_without_a_store_says_what_to_do(tmp_path: Path) -> None:
    """Whether there never was one, or the list was built again without."""
    listed = made(tmp_path, ENTRIES, exact=False)
    with pytest.raises(
        ConfigError, match=r"has no exact store: \S+\.exact does not exist; build .*--e"
    ):
        opened(listed)
    version = made(tmp_path, ENTRIES).version
    listed = made(tmp_path, ENTRIES[1:], exact=False)
    with pytest.raises(ConfigError, match=re.escape(f"holds only version {version}; build")):
        opened(listed)


def test_the_store_of_another_list_is_refused(tmp_path: Path) -> None:
    """Under whatever name it was put: it says itself whose it is."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = made(tmp_path / "one", ENTRIES), made(tmp_path / "two", ENTRIES[3:])
    places = [place_of(path.path) for path in (one, two) if path.path]
    shutil.copy(places[0] / one.version, places[1] / two.version)
    with pytest.raises(ConfigError, match=f"it has version '{one.version}' instead of"):
        opened(two)


def test_a_list_that_hardly_errs_has_no_store(tmp_path: Path) -> None:
    """Neither is one built nor asked: nothing would come of it."""
    with pytest.raises(ConfigError, match=r"--exact is for kinds with false positives"):
        exact(kind="exact")
    listed = made(tmp_path, ENTRIES, kind="exact", exact=False)
    with pytest.raises(ConfigError, match=r"of kind exact, whose error rate is n/2\^64 already"):
        opened(listed)


def test_a_place_that_cannot_be_read_is_no_missing_store(lists: Commands) -> None:
    """The path is to be looked at: to build the list again would not help."""
    listed = made(lists.directory, ENTRIES)
    place = place_of(lists.directory / "out.list")
    shutil.rmtree(place)
    assert versions_in(place) == []
    place.symlink_to(place.name)  # which leads nowhere, for ever
    with pytest.raises(SnapshotError, match=r"cannot read \S+\.exact: .*ELOOP.* path is right"):
        opened(listed)
    said = lists("inspect", "out.list")
    assert said.status == 1
    assert "DO NOT HOLD: cannot read out.list.exact" in said.out.decode()


@pytest.mark.parametrize("harm", ["flipped", "cut", "longer"])
def test_a_damaged_byte_anywhere_is_found(harm: str, tmp_path: Path) -> None:
    """Before anything is asked: in the header, in the digests, in the filler, in the checksums, at the end."""
    listed = made(tmp_path, ENTRIES)
    path = place_of(tmp_path / "out.list") / listed.version
    whole = path.read_bytes()
    for at in [*range(0, 40, 3), *range(40, len(whole), 97), len(whole) - 1]:
        if harm == "flipped":
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        elif harm == "cut":
            path.write_bytes(whole[:at])
        else:
            path.write_bytes(whole + whole[: at + 1])
        with pytest.raises(SnapshotError, match=r"cannot use \S+: .*; build the list again"):
            opened(listed)
    path.write_bytes(whole)
    assert opened(listed).holds(listed.hash.digests(KEYS)).all()


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


@pytest.mark.parametrize("harm", ["flipped", "cut", "unreadable"])
def test_a_block_that_changes_after_the_store_was_opened_is_not_trusted(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block is verified when it is read; the message says what to do, and holds no key."""
    listed = made(tmp_path, ENTRIES)
    path = place_of(tmp_path / "out.list") / listed.version
    store = opened(listed)
    if harm == "flipped":
        with path.open("r+b") as file:
            file.seek(-5000, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-5000, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
    elif harm == "cut":
        os.truncate(path, 5000)
    else:

        def failing(*_: object) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(
        SnapshotError, match=r"cannot \w+ \S+: .*(check its disk, or build the l|disk errors)"
    ):
        store.holds(listed.hash.digests(KEYS))


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


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """To open one would wait until another process writes to it."""
    os.mkfifo(tmp_path / "store")
    with pytest.raises(SnapshotError, match=rf"cannot use {tmp_path}/store: .*; again"):
        SortedDigests(tmp_path / "store", "again")


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


def test_a_store_that_lies_where_a_directory_is_due_is_named(tmp_path: Path) -> None:
    """`blocklist.exact` names the directory, not the file of one version."""
    listed = made(tmp_path, ENTRIES)
    path = place_of(tmp_path / "out.list") / listed.version
    with pytest.raises(ConfigError, match=rf"{path} is no directory of stores; build"):
        ExactStore.open(path, listed)


def test_a_store_of_an_earlier_version_is_none(tmp_path: Path) -> None:
    """It was a directory; the next build removes it, as it does any other version's."""
    listed = made(tmp_path, ENTRIES, exact=False)
    old = place_of(tmp_path / "out.list") / listed.version
    old.mkdir(parents=True)
    with pytest.raises(
        ConfigError, match=r"has no exact store: .* holds none; build the list again"
    ):
        opened(listed)


def test_the_store_of_the_list_before_stays_until_the_next_build(tmp_path: Path) -> None:
    """Who has read that list just now still finds its store; the one before that is gone."""
    place = place_of(tmp_path / "out.list")
    first, second = made(tmp_path, ENTRIES), made(tmp_path, ENTRIES[1:])
    assert versions_in(place) == sorted([first.version, second.version])
    (place / "notes").mkdir()
    third = made(tmp_path, ENTRIES[2:])
    names = [path.name for path in place.iterdir()]
    assert sorted(names) == sorted([second.version, third.version, "notes"])  # which is not ours


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


@pytest.mark.parametrize("bad", [0, 3])
def test_a_build_that_fails_leaves_nothing(bad: int, lists: Commands) -> None:
    """Neither a list nor a store, nor a directory for it; where there were a list and a store, these."""
    written(lists.directory / "bad.txt", ["nobody"] * bad)
    build_it = ("build", "bad.txt", "-o", "out.list", "--bad-max", "2", *OPTIONS)
    assert lists(*build_it).status == 1
    assert not place_of(lists.directory / "out.list").exists()
    listed = made(lists.directory, ENTRIES)
    assert lists(*build_it).status == 1
    assert opened(listed).holds(listed.hash.digests(KEYS)).all()


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


def test_two_builds_of_one_list_do_not_meet(tmp_path: Path) -> None:
    """The second is refused, and harms neither the first nor what is there."""
    listed = made(tmp_path, ENTRIES)
    place = place_of(tmp_path / "out.list")
    fd = os.open(place, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    before = state(tmp_path)
    with pytest.raises(SnapshotError, match="another process is building the list"):
        made(tmp_path, ENTRIES)
    os.close(fd)
    assert state(tmp_path).keys() == before.keys()
    assert opened(listed).holds(listed.hash.digests(KEYS)).all()


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


def test_check_proves_every_entry_in_the_store_too(lists: Commands) -> None:
    """And names the line of the first that is not there."""
    written(lists.directory / "in.txt", ENTRIES)
    said = lists("build", "in.txt", "-o", "out.list", "--check", *OPTIONS)
    assert said.status == 0, said.errors
    assert "all 503 entries are found in out.list and in out.list.exact\n" in said.errors
    listed = load(lists.directory / "out.list")
    assert f"out.list.exact/{listed.version} is its exact store\n" in said.errors
    present = [key for key in ABSENT if listed.addresses.contains_many(listed.hash.digests([key]))]
    source = written(lists.directory / "more.txt", [ENTRIES[0], present[0]])
    with pytest.raises(
        StreamdedupError, match=r"more\.txt line 2: its entry is not found in \S+\.exact/"
    ):
        bad = Rejects(lists.directory / "bad")
        prove(lists.directory / "out.list", exact(), inputs(source), bad, quiet())


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
