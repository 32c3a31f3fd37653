"""Claims about mapped snapshots: of the table only what was touched is read and verified, and nothing is changed."""

from pathlib import Path

import numpy as np
import pytest

from streamdedup import filters
from streamdedup.filters.base import Addable
from streamdedup.keys.hashing import Digests
from streamdedup.snapshot import Refusal, Store
from streamdedup.snapshot import touched as touched_module
from streamdedup.snapshot.format import CHUNK_BYTES
from streamdedup.snapshot.header import DamagedFileError
from streamdedup.snapshot.touched import MappedStore, TouchedReader
from tests.snapshot.shelf import IDENTITY

MANY = 6_000_000


def digests(numbers: range) -> Digests:
    """Digests that lie all over a table."""
    return np.random.default_rng(numbers.start).integers(
        0, 1 << 64, (len(numbers), 2), dtype=np.uint64
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A snapshot of some MB, with three keys."""
    filter_ = filters.build({"kind": "cuckoo", "capacity": MANY, "error_rate": 1e-6})
    assert isinstance(filter_, Addable)
    filter_.add_many(digests(range(3)))
    store = Store(tmp_path, group="g", topic="t", partition=0)
    return store.save(filter_, 5, lambda: 5, IDENTITY).path


def loaded(directory: Path, refusals: list[Refusal]) -> tuple[MappedStore, Addable | None]:
    """The store, and the filter of its newest snapshot."""
    store = MappedStore(directory, group="g", topic="t", partition=0)
    snapshot = store.load(IDENTITY, end=9, on_refusal=refusals.append)
    filter_ = snapshot.filter if snapshot else None
    assert filter_ is None or isinstance(filter_, Addable)
    return store, filter_


def damaged(path: Path, chunk: int) -> None:
    """Turn a byte in the middle of a chunk of the table."""
    with path.open("rb") as file:
        reader = TouchedReader(file.fileno(), path.stat().st_size)
        reader.contents()
        reader.close()
    content = bytearray(path.read_bytes())
    content[sum(reader._places[chunk]) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.skipif(not Path(touched_module.PAGEMAP).exists(), reason="no map of pages")
def test_few_chunks_are_verified_for_a_key(tmp_path: Path, saved: Path) -> None:
    """The answers are those of the filter; damage elsewhere is not looked for."""
    chunks = saved.stat().st_size // CHUNK_BYTES
    assert chunks >= 8
    store, filter_ = loaded(tmp_path, [])
    assert filter_ is not None
    assert filter_.contains_many(digests(range(1))).tolist() == [True]
    reader = store._mapped[saved]
    assert 1 <= reader.check() < chunks
    touched = set(reader._touched())
    store.close()
    left = next(at for at in range(1, chunks) if not {at - 1, at, at + 1} & touched)
    damaged(saved, left)
    store, filter_ = loaded(tmp_path, [])
    assert filter_ is not None
    assert filter_.contains_many(digests(range(1))).tolist() == [True]
    store.check(saved)
    store.close()
    damaged(saved, min(touched))
    store, filter_ = loaded(tmp_path, [])
    assert filter_ is not None
    filter_.contains_many(digests(range(1)))
    with pytest.raises(DamagedFileError, match=f"chunk {min(touched)} of"):
        store.check(saved)
    assert store.load(IDENTITY, end=9, on_refusal=lambda _: None) is None  # it is passed over
    store.close()


def test_without_a_map_of_pages_all_is_verified(
    tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a system that does not say which pages are in memory."""
    monkeypatch.setattr(touched_module, "PAGEMAP", str(tmp_path / "nowhere"))
    damaged(saved, 3)
    store, filter_ = loaded(tmp_path, [])
    assert filter_ is not None
    with pytest.raises(DamagedFileError, match="chunk 3 of"):
        store.check(saved)
    store.close()


def test_what_is_added_stays_private(tmp_path: Path, saved: Path) -> None:
    """The file is as before, and its checksums still hold."""
    before = saved.read_bytes()
    store, filter_ = loaded(tmp_path, [])
    assert filter_ is not None
    filter_.add_many(digests(range(3, 2_000)))
    assert filter_.contains_many(digests(range(3, 2_000))).all()
    store.check(saved)
    store.close()
    assert saved.read_bytes() == before


def test_a_damaged_header_is_refused_and_the_file_stays(tmp_path: Path, saved: Path) -> None:
    """A worker would set it aside; who only asks does not."""
    content = bytearray(saved.read_bytes())
    content[20] ^= 1
    saved.write_bytes(content)
    refusals: list[Refusal] = []
    store, filter_ = loaded(tmp_path, refusals)
    store.close()
    assert filter_ is None
    assert "this command changes nothing" in refusals[0].reason
    assert saved.exists()
    saved.write_bytes(b"")
    assert loaded(tmp_path, refusals)[1] is None
    assert "it is empty" in refusals[1].reason
