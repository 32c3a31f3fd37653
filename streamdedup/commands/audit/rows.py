"""Rows of digests, sorted in bounded memory: runs in one temporary file, read back by ranges of digests.

Equal rows are joined wherever they meet, so a key that comes a million times takes no more room than any other.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from io import BufferedRandom
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from streamdedup.errors import StreamdedupError
from streamdedup.events import Integers
from streamdedup.keys.hashing import Digests

Rows = npt.NDArray[np.void]

# What an event is to the audit. The first five are compared by key, the others by the whole content of the event.
DUE, KNOWN, EMITTED, DROPPED, WITHHELD, DUE_UNJUDGED, EMITTED_UNJUDGED, UNLETTERED = range(8)
KINDS = 8

OFFSET_BITS = 48  # of an offset, if rows of several partitions are sorted together: the partition's number is above it

ROW = np.dtype(
    [
        ("high", np.uint64),
        ("low", np.uint64),
        ("first", np.int64),  # the least offset of the events that the row stands for
        ("last", np.int64),
        ("count", np.uint32),
        ("kind", np.uint8),
    ]
)
TIMED_ROW = np.dtype([*ROW.descr, ("generation", np.int64), ("reach", np.int64)])

RANGES = 1024  # ranges of digests, by their highest 10 bits
_RANGE_BITS = np.uint64(54)
SORTING = 3  # memory to sort rows, in multiples of them: themselves, their order, a sorted copy


def rows_of(timed: bool, kind: int, digests: Digests, offsets: Integers) -> Rows:
    """Return a row for each event. The caller sets the generation and reach of `timed` rows."""
    made: Rows = np.zeros(len(offsets), dtype=TIMED_ROW if timed else ROW)
    made["high"], made["low"] = digests[:, 0], digests[:, 1]
    made["first"] = made["last"] = offsets
    made["count"], made["kind"] = 1, kind
    return made


def unpacked(packed: int) -> tuple[int, int]:
    """Return the number of a partition and an offset."""
    return packed >> OFFSET_BITS, packed & (1 << OFFSET_BITS) - 1


class Sorter(AbstractContextManager["Sorter"]):
    """Takes rows, and returns them sorted by digest, kind and offset, within `size_bytes` of memory.

    Timed rows of emitted events stay apart, because each is judged by its own time. All other rows of one digest and
    kind become one row. The temporary file disappears with the process.
    """

    def __init__(self, *, timed: bool, size_bytes: int) -> None:
        self._dtype = TIMED_ROW if timed else ROW
        self._timed = timed
        self._room = max(2, size_bytes // SORTING // self._dtype.itemsize)
        self._waiting: list[Rows] = []
        self._rows = 0
        self._file: BufferedRandom | None = None
        self._written = 0  # rows in the file
        # For each run: the row in the file at which each range begins, and at which the last one ends.
        self._runs: list[Integers] = []

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: Rows) -> None:
        """Take rows. StreamdedupError if the temporary directory has no room."""
        self._waiting.append(rows)
        self._rows += len(rows)
        if self._rows >= self._room:
            joined = self._gather()
            if len(joined) > self._room // 2:
                self._spill(joined)
            else:
                self._waiting, self._rows = [joined], len(joined)

    def parts(self) -> Iterator[Rows]:
        """Yield all rows, in parts, with those of one digest in one part. May be called again, also after `add`."""
        if not self._runs:
            whole = self._gather()
            self._waiting, self._rows = [whole], len(whole)
            yield whole
            return
        if self._rows:
            self._spill(self._gather())
        sizes = np.sum([np.diff(run) for run in self._runs], axis=0)
        start = held = 0
        for at, size in enumerate(sizes.tolist()):
            if held and held + size > self._room:
                yield self._read(start, at)
                start, held = at, 0
            held += size
        yield self._read(start, RANGES)

    def _gather(self) -> Rows:
        """Return all waiting rows, joined. Then none waits."""
        whole = np.concatenate((np.empty(0, self._dtype), *self._waiting))
        self._waiting, self._rows = [], 0
        return self._joined(whole)

    def _spill(self, rows: Rows) -> None:
        try:
            file = self._opened()
            file.seek(self._written * self._dtype.itemsize)
            file.write(rows.view(np.uint8).data)
            file.flush()
        except OSError as error:
            raise StreamdedupError(
                f"the rows cannot be sorted in {tempfile.gettempdir()} ({error.strerror}), which needs about"
                f" {self._dtype.itemsize} bytes for each event of a partition; set TMPDIR to a directory with room"
            ) from None
        bounds = np.arange(1, RANGES, dtype=np.uint64) << _RANGE_BITS
        inner = np.searchsorted(rows["high"], bounds)
        self._runs.append(np.concatenate(([0], inner, [len(rows)])) + self._written)
        self._written += len(rows)

    def _opened(self) -> BufferedRandom:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="streamdedup-audit-")  # noqa: SIM115 - closed by __exit__
        return self._file

    def _read(self, start: int, stop: int) -> Rows:
        """Return the rows of all runs in the ranges from `start` up to, but not including, `stop`."""
        held: list[Rows] = []
        rows = 0
        for run in self._runs:
            held.append(self._stretch(int(run[start]), int(run[stop])))
            rows += len(held[-1])
            # Keys that come often can make one range larger than the memory. Joining their rows makes room.
            if rows > self._room:
                held = [self._joined(np.concatenate(held))]
                rows = len(held[0])
        return self._joined(np.concatenate(held))

    def _stretch(self, start: int, stop: int) -> Rows:
        rows: Rows = np.empty(stop - start, self._dtype)
        file = self._opened()
        file.seek(start * self._dtype.itemsize)
        if file.readinto(rows.view(np.uint8).data) != rows.nbytes:
            raise StreamdedupError("the temporary file of the audit was cut short; run it again")
        return rows

    def _joined(self, rows: Rows) -> Rows:
        """Return the rows sorted, with equal rows joined into one."""
        keys: tuple[Any, ...] = (rows["kind"], rows["low"], rows["high"])
        rows = rows[np.lexsort((rows["first"], *keys) if self._timed else keys)]
        begins = np.ones(len(rows), dtype=np.bool_)
        for name in ("high", "low", "kind"):
            column = rows[name]
            begins[1:] &= column[1:] == column[:-1]
        np.logical_not(begins[1:], out=begins[1:])
        if self._timed:
            begins |= rows["kind"] == EMITTED
        if begins.all():
            return rows
        at = np.flatnonzero(begins)
        joined = rows[at]
        joined["first"] = np.minimum.reduceat(rows["first"], at)
        joined["last"] = np.maximum.reduceat(rows["last"], at)
        joined["count"] = np.add.reduceat(rows["count"], at)
        return joined


def dated(parts: Iterable[Rows], generations: Mapping[int, int]) -> Iterator[Rows]:
    """Yield sorted rows, after what came before a first time got its generation from `WindowTime.generations`."""
    for rows in parts:
        for undated, generation in generations.items():
            rows["generation"][rows["generation"] == undated] = generation
        yield rows
