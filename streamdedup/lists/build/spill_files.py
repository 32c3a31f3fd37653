"""Sort digests on disk, in bounded memory: divide them by their first byte into files, then sort one file at a time."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streamdedup.errors import SnapshotError
from streamdedup.keys.hashing import Digests
from streamdedup.snapshot.files import blaming

# Rows in memory before they are written out: 16 MB, and three times that while they are divided.
ROWS_MAX = 1 << 20
PARTS = 256
_FIRST_BYTE = np.uint64(56)
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
INSTEAD = "put the list elsewhere"


class Spill:
    """Takes digests in any order and returns them ascending, each once. Its files are in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: list[Digests] = []
        self._rows = 0
        self._written = np.zeros(PARTS, dtype=np.int64)  # rows in each file

    def add(self, digests: Digests) -> None:
        """Take the rows of `digests` (n, 2)."""
        if len(digests):
            self._held.append(digests)
            self._rows += len(digests)
        if self._rows >= ROWS_MAX:
            self._spill()

    def ascending(self) -> Iterator[Digests]:
        """Yield all digests, (n, 2), in pieces. One of the 256 files at a time is in memory, and is then deleted."""
        self._spill()
        for part in range(PARTS):
            if not self._written[part]:
                continue
            path = self._path(part)
            with blaming("read", path, INSTEAD):
                words = np.fromfile(path, dtype=np.uint64)
                path.unlink()
            if len(words) != 2 * self._written[part]:
                raise SnapshotError(
                    f"cannot use {path}: it has changed since it was written; check its disk, or {INSTEAD}"
                )
            rows = words.reshape(-1, 2)
            yield _distinct(rows[np.lexsort((rows[:, 1], rows[:, 0]))])

    def _spill(self) -> None:
        if not self._rows:
            return
        rows = np.concatenate(self._held)
        self._held, self._rows = [], 0
        parts = (rows[:, 0] >> _FIRST_BYTE).astype(np.int64)
        rows = rows[np.argsort(parts, kind="stable")]
        ends = np.bincount(parts, minlength=PARTS).cumsum().tolist()
        for part, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if start < end:
                self._append(self._path(part), rows[start:end].tobytes())
                self._written[part] += end - start

    def _append(self, path: Path, text: bytes) -> None:
        with blaming("write", path, INSTEAD), os.fdopen(os.open(path, _OPEN, 0o600), "wb") as file:
            file.write(text)

    def _path(self, part: int) -> Path:
        return self._directory / f"{part:03d}.digests"


def _distinct(ascending: Digests) -> Digests:
    is_new = np.ones(len(ascending), dtype=np.bool_)
    is_new[1:] = (ascending[1:] != ascending[:-1]).any(axis=1)
    return ascending[is_new]
