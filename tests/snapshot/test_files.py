"""What `streamdedup.save` and `streamdedup.load` promise to a program."""

import errno
import gc
import json
import os
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, assert_type, cast

import numpy as np
import pytest
from crc32c import crc32c

import streamdedup
from streamdedup import filters
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.filters import kinds
from streamdedup.filters.base import Addable, Filter, Static
from streamdedup.keys.hashing import Digests
from streamdedup.snapshot import Identity, Store, files
from streamdedup.testing.files import FailingFs, PowerFs, WatchedFs, restore
from tests.filters.cases import CASES, HASH_KEY, STATIC_KINDS, Case, state

every = pytest.mark.parametrize("case", CASES, ids=str)
both_ways = pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])


def bloom(seed: int = 1, keys: int = 500, capacity: int = 1000) -> Addable:
    """Build a small filter with some keys in it."""
    made = streamdedup.build({"kind": "bloom", "capacity": capacity, "error_rate": 0.01})
    made.add_many(digests(keys, seed))
    return made


def digests(count: int, seed: int) -> Digests:
    """Draw distinct digests for as many keys."""
    return np.random.default_rng(seed).integers(0, 1 << 64, size=(count, 2), dtype=np.uint64)


def table(filter_: Filter) -> list[bytes]:
    """Copy its buffers."""
    return [bytes(buffer) for buffer in filter_.buffers()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name a file that is not there."""
    return tmp_path / "list.filter"


# What is saved comes back


@every
@both_ways
def test_a_saved_filter_comes_back(case: Case, path: Path, mmap: bool) -> None:
    """Of every kind: the same to the bit, and the same answers."""
    saved = case.build(300, case.error_rates[0])
    saved.add_many(digests(300, 1))
    streamdedup.save(saved, path)
    hash_key = case.options.get("hash_key", b"")
    loaded = streamdedup.load(path, mmap=mmap, hash_key=hash_key)
    assert state(loaded) == state(saved)
    asked = np.concatenate([digests(300, 1), digests(5000, 2)])
    assert loaded.contains_many(asked).tolist() == saved.contains_many(asked).tolist()


@pytest.mark.parametrize("kind", sorted(STATIC_KINDS))
@pytest.mark.parametrize(
    "options",
    [{}, {"mmap": True}, {"mmap": True, "verify": False}],
    ids=["read", "mapped", "not verified"],
)
def test_a_saved_list_comes_back(kind: str, path: Path, options: dict[str, Any]) -> None:
    """Of the kinds that are built once, too."""
    saved: Static = filters.kind_of(kind).from_digests(digests(300, 1), 0.01)
    streamdedup.save(saved, path)
    loaded = streamdedup.load(path, **options)
    assert state(loaded) == state(saved)
    assert loaded.contains_many(digests(300, 1)).all()


@every
def test_what_was_read_goes_on_and_leaves_the_file_alone(case: Case, path: Path) -> None:
    """A filter that is not mapped is a copy: it takes keys, and what it is saved to next is up to the program."""
    saved = case.build(300)
    streamdedup.save(saved, path)
    before = path.read_bytes()
    loaded = streamdedup.load(path, hash_key=case.options.get("hash_key", b""))
    assert cast("Addable", loaded).add("more")
    assert "more" in loaded
    assert path.read_bytes() == before
    assert "more" not in streamdedup.load(path, hash_key=case.options.get("hash_key", b""))


@every
def test_a_mapped_filter_refuses_changes(case: Case, path: Path) -> None:
    """With what to do instead; and the file is as it was."""
    saved = case.build(300)
    saved.add("there")
    streamdedup.save(saved, path)
    before = path.read_bytes()
    loaded = cast(
        "Addable",
        streamdedup.load(path, mmap=True, hash_key=case.options.get("hash_key", b"")),
    )
    for change in (lambda: loaded.add("more"), lambda: loaded.add_many(digests(3, 1))):
        with pytest.raises(ConfigError, match="load it without mmap"):
            change()
    assert ("there" in loaded, "more" in loaded) == (True, False)
    assert path.read_bytes() == before


def test_a_mapped_filter_stands_on_the_file(path: Path) -> None:
    """Its table is the file's pages, with no copy: it begins on a page's border of a map of this very file."""
    streamdedup.save(bloom(), path)
    loaded = streamdedup.load(path, mmap=True)
    (buffer,) = loaded.buffers()
    start = int(np.frombuffer(buffer, np.uint8).ctypes.data)
    assert start % 4096 == 0
    maps = Path("/proc/self/maps")
    if maps.exists():  # on Linux it tells what is mapped where
        spans = re.findall(rf"^(\w+)-(\w+) r--s .* {re.escape(str(path))}$", maps.read_text(), re.M)
        assert any(int(low, 16) <= start < int(high, 16) for low, high in spans)


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


def test_a_path_may_be_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute, or from the working directory."""
    streamdedup.save(bloom(), str(path))
    assert state(streamdedup.load(str(path))) == state(bloom())
    monkeypatch.chdir(path.parent)
    streamdedup.save(bloom(seed=2), "list.filter")
    assert state(streamdedup.load(path)) == state(bloom(seed=2))


def test_a_program_may_look_into_a_workers_snapshot(tmp_path: Path) -> None:
    """It gets a filter like any other; the worker's file is not touched."""
    identity = Identity(
        hash="murmur3",
        hash_check="",
        key={},
        normalize="none",
        filter={},
        topic="unique",
        partition=0,
        partitions=1,
    )
    store = Store(tmp_path, group="group", topic="unique", partition=0)
    saved = store.save(bloom(), 7, lambda: 9, identity).path
    before = saved.read_bytes()
    for mmap in (False, True):
        assert state(streamdedup.load(saved, mmap=mmap)) == state(bloom())
    assert saved.read_bytes() == before


# Keys of hashes


def siphash(path: Path) -> None:
    """Save a filter of a keyed hash."""
    config = {"kind": "bloom", "capacity": 1000, "error_rate": 1e-6, "hash": "siphash"}
    made = streamdedup.build({**config, "hash_key": HASH_KEY})
    made.add("there")
    streamdedup.save(made, path)


@both_ways
def test_a_keyed_filter_comes_back_with_its_key(path: Path, mmap: bool) -> None:
    """The key is in no file; with it, all is as it was."""
    siphash(path)
    assert HASH_KEY not in path.read_bytes()
    assert HASH_KEY.hex() not in path.read_bytes().decode("latin-1")
    loaded = streamdedup.load(path, mmap=mmap, hash_key=HASH_KEY)
    assert "there" in loaded
    assert "absent" not in loaded


@both_ways
@pytest.mark.parametrize(
    ("key", "said"),
    [
        (b"", "its hash is siphash; give hash_key, the 16 bytes it was built with"),
        (b"short", "siphash takes 16 bytes"),
        (bytes(16), "the hash_key is not the one with which it was built"),
    ],
    ids=["none", "short", "another"],
)
def test_a_keyed_filter_does_not_come_back_without(
    path: Path, mmap: bool, key: bytes, said: str
) -> None:
    """No key, or a wrong one, is the caller's mistake, and told before the table is read."""
    siphash(path)
    with pytest.raises(ConfigError, match=f"cannot use {re.escape(str(path))}: .*{said}"):
        streamdedup.load(path, mmap=mmap, hash_key=key)


def test_a_key_for_a_filter_that_has_none_is_refused(path: Path) -> None:
    """It would else seem to protect."""
    streamdedup.save(bloom(), path)
    with pytest.raises(ConfigError, match="its hash, murmur3, has no hash_key: leave it out"):
        streamdedup.load(path, hash_key=HASH_KEY)


# A damaged byte is never trusted


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Give the bytes of a small file."""
    path = tmp_path_factory.mktemp("whole") / "file"
    streamdedup.save(bloom(keys=100, capacity=200), path)
    return path.read_bytes()


@both_ways
def test_every_flipped_byte_is_found(path: Path, whole: bytes, mmap: bool) -> None:
    """Each byte of the file in turn."""
    path.write_bytes(whole)
    with path.open("r+b", buffering=0) as file:
        for at in range(len(whole)):
            os.pwrite(file.fileno(), bytes([whole[at] ^ 1 << at % 8]), at)
            with pytest.raises(SnapshotError):
                streamdedup.load(path, mmap=mmap)
            os.pwrite(file.fileno(), whole[at : at + 1], at)
    assert len(streamdedup.load(path, mmap=mmap)) == 100


@pytest.mark.parametrize(
    "options",
    [{}, {"mmap": True}, {"mmap": True, "verify": False}],
    ids=["read", "mapped", "not verified"],
)
def test_a_file_cut_at_any_length_is_found(
    path: Path, whole: bytes, options: dict[str, Any]
) -> None:
    """Each length from one byte short to nothing."""
    path.write_bytes(whole)
    for length in reversed(range(len(whole))):
        os.truncate(path, length)
        with pytest.raises(SnapshotError):
            streamdedup.load(path, **options)


def test_what_is_not_verified_is_not_read(path: Path) -> None:
    """A damaged table is found unless it is asked not to look; all else is checked."""
    streamdedup.save(bloom(), path)
    data = bytearray(path.read_bytes())
    data[4096 + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match="chunk 0 of 1 is damaged"):
        streamdedup.load(path, mmap=True)
    assert table(streamdedup.load(path, mmap=True, verify=False)) != table(bloom())
    with pytest.raises(ConfigError, match="verify=False needs mmap=True"):
        streamdedup.load(path, verify=False)
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match="header is damaged"):
        streamdedup.load(path, mmap=True, verify=False)


COUNTED = ("keys",)  # what may be another number, and still fit the table


@every
@both_ways
def test_a_filter_header_that_is_one_off_is_refused_with_all_checksums_right(
    case: Case, path: Path, mmap: bool
) -> None:
    """Whoever makes the file anew around it, at both places where it stands: no wrong filter comes of it."""
    saved = case.build(100, case.error_rates[0])
    saved.add_many(digests(50, 1))
    streamdedup.save(saved, path)
    data = path.read_bytes()
    hash_key = case.options.get("hash_key", b"")
    path.write_bytes(sealed(data, {}))
    assert state(streamdedup.load(path, mmap=mmap, hash_key=hash_key)) == state(saved)
    numbers = [name for name, value in saved.header().items() if type(value) is int]
    for name in [name for name in numbers if name not in COUNTED]:
        for change in (-1, 1):
            path.write_bytes(sealed(data, {name: saved.header()[name] + change}))
            try:
                loaded = streamdedup.load(path, mmap=mmap, hash_key=hash_key)
            except SnapshotError:
                continue
            assert loaded.contains_many(digests(50, 1)).all(), name
            assert loaded.error_rate_now == saved.error_rate_now, name


def sealed(data: bytes, change: dict[str, int]) -> bytes:
    """Change the filter's header in the header and in the trailer, and make all checksums right."""
    length = int.from_bytes(data[12:16], "little")
    top, payload = json.loads(data[16 : 16 + length]), data[-(-(20 + length) // 4096) * 4096 :]
    trailer_at = payload.rindex(b'{"chunks":')
    trailer = json.loads(payload[trailer_at:-12])
    payload = payload[: trailer_at - 4 - 4 * trailer["chunks"]]
    chunks, at = [], 0
    for size in top["buffer_sizes"]:
        chunks += [payload[at + i : at + min(i + (1 << 20), size)] for i in range(0, size, 1 << 20)]
        at += size + -size % 4096
    text = json.dumps(top | {"filter": top["filter"] | change}).encode()
    head = data[:12] + len(text).to_bytes(4, "little") + text
    salt = crc32c(head).to_bytes(4, "little")
    sums = [crc32c(salt + i.to_bytes(8, "little") + chunk) for i, chunk in enumerate(chunks)]
    text = json.dumps(trailer | {"filter": trailer["filter"] | change}).encode()
    size = len(text).to_bytes(4, "little")
    tail = size + text + crc32c(salt + size + text).to_bytes(4, "little") + data[-8:]
    head += salt + bytes(-len(head + salt) % 4096)
    return head + payload + b"".join(value.to_bytes(4, "little") for value in sums) + tail


# Errors name the path and the remedy


def is_refused(path: Path, said: str, **options: Any) -> None:
    """Assert that loading says the path and `said`, in that order."""
    with pytest.raises(SnapshotError, match=f"{re.escape(str(path))}.*{said}"):
        streamdedup.load(path, **options)


@both_ways
def test_what_is_no_file_of_ours_is_named_with_its_remedy(path: Path, mmap: bool) -> None:
    """Missing, a directory, empty, foreign, cut, of a later version."""
    is_refused(path, "No such file.*ENOENT.*path is right", mmap=mmap)
    is_refused(path.parent, "", mmap=mmap)
    path.touch()
    is_refused(path, "cut short.*build and save it again", mmap=mmap)
    path.write_bytes(b"%PDF-1.7\n" * 1000)
    is_refused(path, "does not begin like a snapshot; name a file that `save`", mmap=mmap)
    streamdedup.save(bloom(), path)
    os.truncate(path, 5000)
    is_refused(path, "cut short", mmap=mmap)


def test_a_filter_that_cannot_be_built_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a later streamdedup has kinds that this one has not."""
    streamdedup.save(bloom(), path)
    monkeypatch.setattr(kinds, "KINDS", {})
    is_refused(path, "cannot be built .*'bloom' is unknown")


def test_a_directory_is_not_written_over(tmp_path: Path) -> None:
    """It is told before anything is written."""
    with pytest.raises(SnapshotError, match=f"{re.escape(str(tmp_path))}: it is a directory"):
        streamdedup.save(bloom(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    """None is made: it may be a mistake."""
    path = tmp_path / "nowhere" / "file"
    with pytest.raises(SnapshotError, match=f"cannot write {path}: there is no .*nowhere; make it"):
        streamdedup.save(bloom(), path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "\ud83e", "y" * 300 + "/file", "fifo"])
def test_a_name_that_no_file_can_have_is_our_error(name: str, tmp_path: Path) -> None:
    """To save and to load; and nothing is written. The same holds for a file that is not regular."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SnapshotError, match=r"cannot (use|write) .*; (write|see|name) "):
        streamdedup.save(bloom(), tmp_path / name)
    for mmap in (False, True):
        with pytest.raises(SnapshotError, match=r"cannot (use|read) .*; (write|see|name) "):
            streamdedup.load(tmp_path / name, mmap=mmap)
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


def test_what_is_no_filter_is_not_saved(path: Path) -> None:
    """Nor is the path, where the two were exchanged."""
    for wrong in ({"a"}, "file", streamdedup.ClassicBloom(8)):
        with pytest.raises(TypeError, match="save takes a filter, as `build` makes it, not"):
            streamdedup.save(cast("Any", wrong), path)
    assert not path.exists()


def test_a_full_disk_is_named_with_its_remedy(path: Path) -> None:
    """Which file, why, and what to do."""
    with pytest.raises(
        SnapshotError, match=r"\.tmp: No space left.*free some space there, or save"
    ):
        files.save(bloom(), path, fs=FailingFs(1, errno.ENOSPC))


# Replaced whole or not at all


@pytest.mark.parametrize(
    "mode",
    [{}, {"for_good": True}, {"lost_answer": True}, {"for_good": True, "lost_answer": True}],
    ids=["once", "for good", "once, answer lost", "for good, answers lost"],
)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_whichever_call_of_a_save_fails_the_old_or_the_new_is_there(
    tmp_path: Path, mode: dict[str, bool], error: int
) -> None:
    """Each call in turn: the typed error, nothing left open, and the file is whole."""
    old, new = bloom(seed=1), bloom(seed=2)
    for fail_at in range(1000):
        path = tmp_path / str(fail_at) / "file"
        path.parent.mkdir()
        streamdedup.save(old, path)
        fs = FailingFs(fail_at, error, **mode)
        failure = failure_of(lambda: files.save(new, path, fs=fs))  # noqa: B023 - called now
        if not fs.failed:
            break
        assert not fs.open_fds
        assert failure is None or str(path.parent) in failure
        if fs.failed[0] == "fsync":
            assert failure
            assert "fsync" not in fs.calls[fail_at + 1 :]
        found = table(streamdedup.load(path))
        assert found in (table(old), table(new))
        assert failure or found == table(new)
        if not mode.get("for_good"):
            assert not list(path.parent.glob(".streamdedup-*"))
    assert fail_at > 6


def failure_of(act: Callable[[], object]) -> str | None:
    """Return the message of the SnapshotError that `act` raises, None where it raises none."""
    try:
        act()
    except SnapshotError as error:
        return str(error)
    return None


def test_power_may_fail_after_any_call_and_the_old_or_the_new_is_there(tmp_path: Path) -> None:
    """With every subset of what was not synced; once a save has returned, only the new one."""
    fs = PowerFs()
    away = tmp_path / "before"
    away.mkdir()
    tables = [table(bloom(seed=seed)) for seed in (1, 2)]
    files.save(bloom(seed=1), away / "file", fs=fs)
    first = len(fs.log)
    files.save(bloom(seed=2), away / "file", fs=fs)
    met = set()
    for operations in range(len(fs.log) + 1):
        for number, power_off in enumerate(fs.states_after(operations)):
            directory = tmp_path / f"{operations}-{number}"
            directory.mkdir()
            restore(power_off, away, directory)
            found = after_power_loss(directory / "file", tables)
            assert found is not None or operations < first, fs.log[:operations]
            assert found == 1 or operations < len(fs.log), fs.log[:operations]
            met.add(found)
    assert met == {None, 0, 1}


def after_power_loss(path: Path, tables: list[list[bytes]]) -> int | None:
    """Tell which table is there, whole; None where there is no file."""
    return tables.index(table(streamdedup.load(path))) if path.exists() else None


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


def test_a_save_beside_a_thread_that_adds_holds_all_that_came_before(path: Path) -> None:
    """For kinds whose bits are only ever set: what was there when it began, and nothing that never was."""
    filter_ = bloom(keys=20_000, capacity=2_000_000)
    begun, stop = threading.Event(), threading.Event()

    def add() -> None:
        for seed in range(10, 1_000_000):
            filter_.add_many(digests(100, seed))
            begun.set()
            if stop.is_set():
                return

    adder = threading.Thread(target=add)
    adder.start()
    try:
        begun.wait()
        before = table(filter_)
        streamdedup.save(filter_, path)
    finally:
        stop.set()
        adder.join()
    (old,), (found,), (new,) = before, table(streamdedup.load(path)), table(filter_)
    assert not any(bits_beyond(old, found))
    assert not any(bits_beyond(found, new))


def bits_beyond(bits: bytes, others: bytes) -> Iterator[bool]:
    """Tell where a bit is set that is not set in the others."""
    yield bool(np.any(np.frombuffer(bits, np.uint8) & ~np.frombuffer(others, np.uint8)))


def test_a_file_is_private(path: Path) -> None:
    """0600, also where the umask would allow more, or the file before was open to all."""
    path.touch(0o666)
    umask = os.umask(0)
    try:
        streamdedup.save(bloom(), path)
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_load_reads_in_pieces(path: Path) -> None:
    """No call reads more than a mebibyte, so that no other thread waits long."""
    filter_ = bloom(capacity=2_000_000)
    streamdedup.save(filter_, path)
    read: list[int] = []

    class NotingFs(WatchedFs):
        def readv(self, fd: int, buffers: list[memoryview], /) -> int:
            read.append(len(buffers[0]))
            return super().readv(fd, buffers)

    assert state(files.load(path, fs=NotingFs())) == state(filter_)
    assert max(read) == 1 << 20


# The package


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


def test_the_package_has_types_for_programs(path: Path) -> None:
    """The type checker, which `make check` runs over this, knows what the three functions take and give."""
    made = streamdedup.build({"kind": "bloom", "capacity": 10})
    assert_type(made.add("key"), bool)
    streamdedup.save(made, path)
    assert_type(streamdedup.load(path, mmap=True, verify=False).error_rate, float)
    with pytest.raises(TypeError):
        streamdedup.save(made, b"path")  # type: ignore[arg-type] # as the claim is: it is an error
    with pytest.raises(TypeError):
        streamdedup.load(path, True)  # type: ignore[call-arg] # the same
