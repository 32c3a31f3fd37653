"""Text in lines, out of chunks of bytes. Nothing is decoded; a byte order mark before the first line stays in it.

Memory holds a chunk, and a line of at most LINE_BYTES_MAX.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from streamdedup.errors import ConfigError, StreamdedupError

LINE_BYTES_MAX = 64 << 20
NEWLINE, NUL = b"\n", b"\0"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # before UTF-8 of some editors; no part of the first key
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of the two byte orders
UTF_16 = "is UTF-16; convert it first, for example with: iconv -f UTF-16 -t UTF-8"


def refuse_utf16(first: bytes) -> None:
    """ConfigError if the `first` lines of an input are UTF-16: its mark alone may begin a line of any bytes."""
    if first.startswith(UTF_16_MARKS) and b"\x00" in first:
        raise ConfigError(f"the input {UTF_16}")


def texts(chunks: Iterable[bytes], end: bytes = NEWLINE) -> Iterator[bytes]:
    """Yield whole lines, each with the byte `end`, but for the last of the input if it has none.

    StreamdedupError if a line is longer than LINE_BYTES_MAX. ConfigError if the input is UTF-16, unless NUL ends lines.
    """
    found = _texts(chunks, end)
    for first in islice(found, 1):
        if end != NUL:
            refuse_utf16(first)
        yield first
    yield from found


def _texts(chunks: Iterable[bytes], end: bytes) -> Iterator[bytes]:
    pieces: list[memoryview] = []
    held = 0
    for chunk in chunks:
        cut, view = chunk.rfind(end) + 1, memoryview(chunk)
        if cut:
            yield b"".join([*pieces, view[:cut]])
            pieces, held = [], 0
        if cut < len(chunk):
            pieces.append(view[cut:])
            held += len(chunk) - cut
        if held > LINE_BYTES_MAX:
            raise StreamdedupError(f"a line is longer than {LINE_BYTES_MAX:,} bytes; is this text?")
    if pieces:
        yield b"".join(pieces)


class Lines(Iterator[bytes]):
    """The lines of `chunks`, without their newlines. `number` is that of the next one, from 1."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._texts, self._waiting = texts(chunks), deque[bytes]()
        self._ahead, self._ends_open, self.number = b"", False, 1

    def __next__(self) -> bytes:
        while not self._waiting:
            if not (text := self.ahead()):
                raise StopIteration
            self._waiting.extend(text.removesuffix(NEWLINE).split(NEWLINE))
            self._ahead = b""
        self.number += 1
        return self._waiting.popleft()

    def ahead(self) -> bytes:
        """Return the next lines as they lie in the input, of which none was read yet; empty if there are no more.

        No line may be waiting.
        """
        if not self._ahead:
            self._ahead = next(self._texts, b"")
            self._ends_open = bool(self._ahead) and not self._ahead.endswith(NEWLINE)
        return self._ahead

    def skip(self, count: int) -> None:
        """Pass over the lines that are `ahead`, which are so many."""
        self._ahead = b""
        self.number += count

    def put_back(self, lines: list[bytes]) -> None:
        """Let the last `lines` that were read be the next ones."""
        self._waiting.extendleft(reversed(lines))
        self.number -= len(lines)

    @property
    def are_waiting(self) -> bool:
        """Whether the next line is there already."""
        return bool(self._waiting)

    @property
    def ends_open(self) -> bool:
        """Whether all lines have been read, and the last has no newline."""
        return self._ends_open and not self._waiting
