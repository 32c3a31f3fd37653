"""Additions go on while a snapshot is written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamdedup.filters.base import Filter
from streamdedup.snapshot.format import (
    CHUNK_BYTES,
    pieces,
)
from streamdedup.testing.files import WatchedFs
from tests.snapshot.shelf import HEADER, Shelf, bloom, digests, read, table


@pytest.mark.parametrize("keys", [0, 1000])
def test_what_is_written_is_what_was_summed(tmp_path: Path, keys: int) -> None:
    """Keys that come between a chunk's checksum and its write do not spoil it, and the last count is saved."""
    filter_ = bloom(keys=keys)
    before, counted = table(filter_), len(filter_)
    seeds = iter(range(100, 1000))

    class BusyFs(WatchedFs):
        def write(self, fd: int, data: bytes | memoryview, /) -> int:
            filter_.add_many(digests(20, next(seeds)))
            return super().write(fd, data)

    shelf = Shelf(tmp_path, fs=BusyFs())
    shelf.save(filter_, 1)
    loaded = shelf.load()
    assert loaded is not None
    assert not shelf.refusals
    assert counted < len(loaded.filter) < len(filter_)
    assert table(filter_) != before
    assert holds_all(loaded.filter, before)
    assert holds_all(filter_, table(loaded.filter))


def test_the_end_label_is_asked_after_the_last_chunk_was_copied() -> None:
    """What comes before the last copy may be in the file, what comes after asking is not."""
    live = bytearray(2 * CHUNK_BYTES)
    written: list[bytes] = []

    def closing() -> tuple[dict[str, Any], int]:
        assert len(written) == 3
        live[:] = b"\xff" * len(live)
        return {}, 12

    header = replace(HEADER, buffer_sizes=(len(live),))
    for piece in pieces(header, [memoryview(live)], closing):
        written.append(bytes(piece))
        live[-1] = len(written)
    _, (found,), _ = read(b"".join(written))
    assert (found[-1], found.count(0)) == (2, len(live) - 1)


def holds_all(filter_: Filter, bits: bytes) -> bool:
    """Tell whether all bits that are set in `bits` are set in the filter."""
    wanted = np.frombuffer(bits, dtype=np.uint8)
    return not np.any(wanted & ~np.frombuffer(table(filter_), dtype=np.uint8))
