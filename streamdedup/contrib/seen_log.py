"""A log of digests: what a filter was given since it was saved. A thread writes it, so its caller waits for no disk.

Little-endian. The header: magic (8 bytes), version (u32), the check of the digests' hash (16 bytes), and the
CRC-32C of all that (u32). Then frames, each of the number n of its digests (u32), the CRC-32C (u32)
of header's checksum (u32), the frame's number (u64), n (u32) and digests, and the digests, 16 bytes each. The log ends
before the first frame that is cut short or does not fit its checksum.
"""

import logging
import os
import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import BinaryIO

import numpy as np
from crc32c import crc32c

from streamdedup.keys.hashing import Digests, Hash

BEAT_S = 0.4  # between two writes; a kill loses what came since the last one
MAGIC = b"\x89SDSEEN\n"
VERSION = 1
DIGEST_BYTES = 16
ROWS_MAX = 1 << 12  # digests in a frame: 64 KiB
_HEADER = struct.Struct("<8sI16s")
_CHECKSUM = struct.Struct("<I")
_FRAME = struct.Struct("<II")
_CHECKED = struct.Struct("<IQI")

# Through a link, another file would be cut short.
_TO_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

_log = logging.getLogger(__name__)


class LogWriter:
    """A new log at `path`, which replaces an older one. `append` takes a key; it returns at once, and never fails."""

    def __init__(self, path: Path, hash_: Hash) -> None:
        self._path, self._hash = path, hash_
        self._waiting = deque[str | bytes]()
        self.append = self._waiting.append
        header = _HEADER.pack(MAGIC, VERSION, bytes.fromhex(hash_.check))
        self._checksum = crc32c(header)
        self._fd = os.open(path, _TO_WRITE, 0o600)
        try:
            self._size_bytes = self._write_at(0, header + _CHECKSUM.pack(self._checksum))
        except OSError:
            os.close(self._fd)
            raise
        self._frames, self._unwritten, self._fails = 0, b"", False
        self._ending = Event()
        self._thread = Thread(target=self._run, name="streamdedup-seen-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what waits, as far as the disk lets us, and end the thread. Blocking."""
        self._ending.set()
        self._thread.join()
        os.close(self._fd)

    def _run(self) -> None:
        while not self._ending.wait(BEAT_S):
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        """Write all that waits. What the disk refuses is kept, and written at the next beat to the same place."""
        while self._unwritten or self._waiting:
            self._unwritten = self._unwritten or self._next_frame()
            try:
                self._size_bytes += self._write_at(self._size_bytes, self._unwritten)
            except OSError as error:
                self._report(error)
                return
            self._unwritten, self._fails = b"", False

    def _next_frame(self) -> bytes:
        rows = min(len(self._waiting), ROWS_MAX)
        digests = self._hash.digests([self._waiting.popleft() for _ in range(rows)])
        data = digests.astype("<u8", copy=False).tobytes()
        checksum = _frame_checksum(self._checksum, self._frames, rows, data)
        self._frames += 1
        return _FRAME.pack(rows, checksum) + data

    def _write_at(self, offset: int, data: bytes) -> int:
        """Write all of `data` at `offset`; return its length."""
        view = memoryview(data)
        while view:
            done = os.pwrite(self._fd, view, offset)
            view, offset = view[done:], offset + done
        return len(data)

    def _report(self, error: OSError) -> None:
        """Log the first of a row of failures."""
        if not self._fails:
            self._fails = True
            _log.error(
                "cannot write %s: %s; this is tried again, and what waits is lost only if the process is killed; free"
                " some space there, or look into the system's log for disk errors",
                self._path,
                error.strerror,
            )


class LogReader:
    """A log in `file`: the `check` of its hash, empty if the header is not whole."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.check, self._checksum = "", 0
        header = file.read(_HEADER.size)
        checksum = file.read(_CHECKSUM.size)
        if len(header) == _HEADER.size and checksum == _CHECKSUM.pack(crc32c(header)):
            magic, version, check = _HEADER.unpack(header)
            if (magic, version) == (MAGIC, VERSION):
                self.check, self._checksum = check.hex(), crc32c(header)

    def frames(self) -> Iterator[Digests]:
        """Yield the digests of each frame, shape (n, 2), up to the first that is not whole."""
        number = 0
        while self.check and len(head := self._file.read(_FRAME.size)) == _FRAME.size:
            rows, checksum = _FRAME.unpack(head)
            if not 1 <= rows <= ROWS_MAX:
                return
            data = self._file.read(rows * DIGEST_BYTES)
            if len(data) < rows * DIGEST_BYTES:
                return
            if _frame_checksum(self._checksum, number, rows, data) != checksum:
                return
            yield np.frombuffer(data, dtype="<u8").reshape(-1, 2)
            number += 1


def _frame_checksum(header: int, number: int, rows: int, data: bytes) -> int:
    return crc32c(data, crc32c(_CHECKED.pack(header, number, rows)))
