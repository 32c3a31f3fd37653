"""Claims about exact stores: what they hold, to which list they belong, and that half a store is none.

They are built by `lists build --exact`, from real files, and lie beside the list.
"""

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from streamdedup.errors import ConfigError, SnapshotError, StreamdedupError
from streamdedup.keys.hashing import Digests
from streamdedup.lists import KeyList, load
from streamdedup.lists.build.builder import BuildRequest, build
from streamdedup.lists.build.proof import prove
from streamdedup.lists.build.rejects import Rejects
from streamdedup.lists.digest_blocks import BLOCK_ROWS
from streamdedup.lists.exact_store import ExactStore, Owner, place_of, versions_in
from streamdedup.lists.sorted_digests import BLOCK_BYTES, DIGESTS_AT_A_TIME, SortedDigests
from streamdedup.snapshot.format import pieces
from streamdedup.snapshot.header import Header
from tests.lists.tools import HASHES, PROVIDER, Commands, inputs, quiet, recipe, written

ADDRESSES = [f"user{n}@example.com" for n in range(500)]
KEYS = [*ADDRESSES, "@junk.example", "tree.example"]  # as the list holds them
ENTRIES = [*ADDRESSES, "@junk.example", ".tree.example", "User7@example.com"]
ABSENT = [f"nobody{n}@example.com" for n in range(2000)]
NO_CHANGES: Mapping[str, Any] = MappingProxyType({})
OWNER = Owner("version", "murmur3", "check", "none")
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
    held = b"".join(path.read_bytes() for path in [*files, tmp_path / "out.list"])
    assert not re.search(rb"user\d|example\.com|junk|tree", held)
    assert HASHES["siphash"].key not in held


@pytest.mark.parametrize("entries", [0, 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS - 1])
def test_the_last_block_may_be_of_any_length(entries: int, tmp_path: Path) -> None:
    """What fills it up is not taken for a digest, and no digest is lost between two blocks."""
    held = [f"user{n}@example.com" for n in range(entries)]
    listed = made(tmp_path, held, allow_empty=True)
    store, hash_ = opened(listed), listed.hash
    assert store.entries == entries
    assert store.holds(hash_.digests(held)).all()
    assert not store.holds(hash_.digests(ABSENT)).any()
    assert not store.holds(np.zeros((1, 2), dtype=np.uint64)).any()
    assert not store.holds(np.full((1, 2), np.iinfo(np.uint64).max, dtype=np.uint64)).any()


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


def test_a_store_that_is_removed_can_be_asked_until_it_is_closed(tmp_path: Path) -> None:
    """A batch that began with it ends with it."""
    listed = made(tmp_path, ENTRIES)
    store = opened(listed)
    shutil.rmtree(place_of(tmp_path / "out.list"))
    assert store.holds(listed.hash.digests([*KEYS, *ABSENT])).sum() == len(KEYS)


def test_the_store_of_another_list_is_refused(tmp_path: Path) -> None:
    """Under whatever name it was put: it says itself whose it is."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = made(tmp_path / "one", ENTRIES), made(tmp_path / "two", ENTRIES[3:])
    places = [place_of(path.path) for path in (one, two) if path.path]
    shutil.copy(places[0] / one.version, places[1] / two.version)
    with pytest.raises(ConfigError, match=f"it has version '{one.version}' instead of"):
        opened(two)


def test_a_list_that_hardly_errs_has_no_store() -> None:
    """Nothing would come of it."""
    with pytest.raises(ConfigError, match=r"--exact is for kinds with false positives"):
        exact(kind="exact")


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


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """To open one would wait until another process writes to it."""
    os.mkfifo(tmp_path / "store")
    with pytest.raises(SnapshotError, match=rf"cannot use {tmp_path}/store: .*; again"):
        SortedDigests(tmp_path / "store", "again")


def test_the_store_of_the_list_before_stays_until_the_next_build(tmp_path: Path) -> None:
    """Who has read that list just now still finds its store; the one before that is gone."""
    place = place_of(tmp_path / "out.list")
    first, second = made(tmp_path, ENTRIES), made(tmp_path, ENTRIES[1:])
    assert versions_in(place) == sorted([first.version, second.version])
    (place / "notes").mkdir()
    third = made(tmp_path, ENTRIES[2:])
    names = [path.name for path in place.iterdir()]
    assert sorted(names) == sorted([second.version, third.version, "notes"])  # which is not ours


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
