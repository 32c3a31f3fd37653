"""A log of what became of a filter since it was saved: rows of words, in frames with checksums.

Little-endian. The header: magic (8 bytes), version (u32), the words of a row (u32), the number in the log's name (u64),
the check of the digests' hash (16 bytes), and the CRC-32C of all that (u32). Then frames, each of what was done (u32: 1
added, 2 removed, 3 cleared), the number n of its rows (u32), the CRC-32C (u32) of header's checksum (u32), the frame's
number (u64), what (u32), n (u32) and rows, and the rows: words of 8 bytes. The log ends before the first frame that is
cut short or does not fit its checksum.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from streamdedup.snapshot import files

Rows = npt.NDArray[np.uint64]

ADDED, REMOVED, CLEARED = 1, 2, 3
MAGIC = b"\x89SDKEPT\n"
VERSION = 1
WORD_BYTES = 8
WORDS_MAX = 3  # a digest and a time
ROWS_MAX = 1 << 12  # in a frame: 64 KiB of digests
PIECE_BYTES = 1 << 20  # written, and made durable, at once; the last frame may exceed them
_HEADER = struct.Struct("<8sIIQ16s")
_CHECKSUM = struct.Struct("<I")
_FRAME = struct.Struct("<III")
_CHECKED = struct.Struct("<IQII")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
# What a kill or a loss of power may leave without an fsync, at the end.
TORN_BYTES_MAX = PIECE_BYTES + _FRAME.size + ROWS_MAX * WORDS_MAX * WORD_BYTES

# Through a link, another file would be cut short.
_TO_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True)
class Label:
    """What a log's header states: its number, the `check` of its hash, in hex, and the words of a row."""

    number: int
    check: str
    words: int

    def packed(self) -> bytes:
        """The header, without its checksum."""
        return _HEADER.pack(MAGIC, VERSION, self.words, self.number, bytes.fromhex(self.check))


class LogReader:
    """A log in `file`, with its `label`, which is None if the header is not whole.

    `end_bytes` and `frames_read` are those of the whole frames that were read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.label: Label | None = None
        self.end_bytes, self.frames_read = 0, 0
        header, checksum = file.read(_HEADER.size), file.read(_CHECKSUM.size)
        if len(header) < _HEADER.size or checksum != _CHECKSUM.pack(crc32c(header)):
            return
        magic, version, words, number, check = _HEADER.unpack(header)
        if (magic, version) == (MAGIC, VERSION) and 1 <= words <= WORDS_MAX:
            self.label, self.end_bytes = Label(number, check.hex(), words), HEADER_BYTES
            self._checksum = crc32c(header)

    def frames(self) -> Iterator[tuple[int, Rows]]:
        """Yield what was done, and with which rows, shape (n, words), up to the first frame that is not whole."""
        while self.label and len(head := self._file.read(_FRAME.size)) == _FRAME.size:
            what, rows, checksum = _FRAME.unpack(head)
            if not ADDED <= what <= CLEARED or rows > ROWS_MAX:
                return
            data = self._file.read(rows * self.label.words * WORD_BYTES)
            if len(data) < rows * self.label.words * WORD_BYTES:
                return
            if _frame_checksum(self._checksum, self.frames_read, what, rows, data) != checksum:
                return
            self.frames_read += 1
            self.end_bytes += len(head) + len(data)
            yield what, np.frombuffer(data, dtype="<u8").reshape(rows, self.label.words)


class LogWriter:
    """The log at `path`, with `label`, from its end on: that of a `LogReader` that has read it, or else a new one.

    What follows that end is cut off. OSError if it cannot be written.
    """

    def __init__(self, path: Path, label: Label, end: LogReader | None = None) -> None:
        self.path, self.label = path, label
        self._fd = os.open(path, _TO_WRITE, 0o600)
        try:
            self.size_bytes, self._frames = (end.end_bytes, end.frames_read) if end else (0, 0)
            os.ftruncate(self._fd, self.size_bytes)
            header = label.packed()
            self._checksum = crc32c(header)
            self.write(b"" if self.size_bytes else header + _CHECKSUM.pack(self._checksum))
            files.sync_directory(os, path.parent)
        except BaseException:
            self.close()
            raise

    def frame(self, what: int, rows: Rows) -> bytes:
        """Return the next frame, of at most ROWS_MAX rows, shape (n, words). Each must be written, in order."""
        data = rows.astype("<u8", copy=False).tobytes()
        checksum = _frame_checksum(self._checksum, self._frames, what, len(rows), data)
        self._frames += 1
        return _FRAME.pack(what, len(rows), checksum) + data

    def write(self, data: bytes) -> None:
        """Write all of `data` at the end, and have it on the disk. OSError if that fails: then give the same again.

        So it is written anew, since after a failed fsync a second one may succeed although the data is lost.
        """
        view, offset = memoryview(data), self.size_bytes
        while view:
            done = os.pwrite(self._fd, view, offset)
            view, offset = view[done:], offset + done
        os.fsync(self._fd)
        self.size_bytes = offset

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _frame_checksum(header: int, number: int, what: int, rows: int, data: bytes) -> int:
    return crc32c(data, crc32c(_CHECKED.pack(header, number, what, rows)))
