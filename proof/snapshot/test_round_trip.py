"""Snapshots are read and written in pieces, also by a disk that does less than it is asked."""

from pathlib import Path

import pytest

from streamdedup.snapshot import Store
from streamdedup.snapshot.format import CHUNK_BYTES
from streamdedup.testing.files import WatchedFs
from tests.snapshot.conftest import shelf as shelf  # noqa: PLC0414 - a fixture
from tests.snapshot.shelf import IDENTITY, Shelf, bloom, fields_of, flip, table
from tests.snapshot.test_round_trip import address


def test_a_load_reads_in_pieces_and_copies_none_of_them(shelf: Shelf) -> None:
    """No call reads more than a chunk, so none is long, and the filter stands on the memory that was read into."""
    saved = bloom(capacity=1_000_000)
    shelf.save(saved, 1)
    read_to: list[tuple[int, int]] = []

    class NotingFs(WatchedFs):
        def readv(self, fd: int, buffers: list[memoryview], /) -> int:
            read_to.append((address(buffers[0]), len(buffers[0])))
            return super().readv(fd, buffers)

    loaded = Shelf(shelf.store.path.parents[2], fs=NotingFs()).load()
    assert loaded is not None
    (buffer,) = loaded.filter.buffers()
    assert len(buffer) > CHUNK_BYTES
    assert max(size for _, size in read_to) == CHUNK_BYTES
    assert (address(buffer), CHUNK_BYTES) in read_to
    assert address(buffer) % 64 == 0
    assert table(loaded.filter) == table(saved)


def test_calls_that_do_less_than_asked_are_repeated(tmp_path: Path) -> None:
    """A write or read may stop early, as near the end of a disk's space or after a signal."""

    class SmallFs(WatchedFs):
        def readv(self, fd: int, buffers: list[memoryview], /) -> int:
            return super().readv(fd, [buffers[0][:1000]])

        def write(self, fd: int, data: bytes | memoryview, /) -> int:
            return super().write(fd, memoryview(data)[:1000])

    shelf = Shelf(tmp_path, fs=SmallFs())
    saved = bloom()
    shelf.save(saved, 1)
    loaded = shelf.load()
    assert loaded is not None
    assert table(loaded.filter) == table(saved)


@pytest.mark.parametrize("input_id", [None, "an-input"])
def test_the_newest_log_names_its_input_which_decides_nothing(
    shelf: Shelf, input_id: str | None
) -> None:
    """An input that was made again has the same output, so its snapshots are used; a damaged file is passed over."""
    assert shelf.store.newest_log() is None
    path = shelf.store.save(bloom(), 40, lambda: 40, IDENTITY, input_id=input_id).path
    flip(shelf.save(bloom(), 41), 30)
    log = shelf.store.newest_log()
    assert log is not None
    assert (log.label, log.input_id, log.identity) == (40, input_id, IDENTITY)
    assert ("input_id" in fields_of(path.read_bytes())[0]["log"]) == (input_id is not None)
    assert shelf.label() == 40


@pytest.mark.parametrize("count", [0, 1, 1_000])
def test_the_schemas_that_were_met_come_back(shelf: Shelf, count: int) -> None:
    """As many as there may be, with the longest ids; without any, the file is as before there were any."""
    schemas = {2**32 - 1 - number: f"{number:016x}" for number in range(count)}
    path = shelf.store.save(bloom(), 40, lambda: 40, IDENTITY, schemas=schemas).path
    loaded = shelf.load()
    assert loaded is not None
    assert loaded.schemas == schemas
    assert ("schemas" in fields_of(path.read_bytes())[0]["log"]) == bool(count)


def test_other_partitions_have_their_own_newest_log(tmp_path: Path) -> None:
    """Those of the same output in the same directory; what else lies there is none."""
    stores = [
        Store(tmp_path, group="group", topic=topic, partition=partition)
        for topic, partition in (("unique", 3), ("unique", 10), ("another", 4))
    ]
    assert list(stores[0].other_partitions()) == []
    for store in stores:
        store.save(bloom(), 5, lambda: 5, IDENTITY)
    (stores[0].path.parent / "lost+found").mkdir()
    assert [other.path for other in stores[0].other_partitions()] == [stores[1].path]
    assert [other.newest_log() is not None for other in stores[0].other_partitions()] == [True]
