"""Lines of text as events: read them in chunks, take the key of each, and hash it.

Lines are bytes; nothing is decoded. Memory holds a chunk, and a line of at most LINE_BYTES_MAX.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.events import Column
from streamdedup.keys.extract import json_keys
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import Normalization
from streamdedup.units import quote

CHUNK_BYTES = 1 << 20
LINE_BYTES_MAX = 64 << 20

KeyReader = Callable[[Column], tuple[Column, dict[int, str]]]


class LineSource(Protocol):
    """The part of a binary file that reading needs."""

    def read1(self, size: int, /) -> bytes:
        """Return at most `size` bytes, as soon as there are any; empty at the end."""


class LineDigests(NamedTuple):
    """Digests (m, 2) of the lines that have a key; which lines these are, (n,); why the first other line has none."""

    digests: Digests
    rows: npt.NDArray[np.bool_]
    reason: str


def key_reader(keys: Sequence[str], normalize: Normalization = "none") -> KeyReader | None:
    """Return what takes the keys from lines; None if the key is the line as it is.

    Each of `keys` is "line" or "json:FIELD". FIELD is as in the configuration's `key.field`, and several are joined as
    there. ConfigError if the keys do not fit.
    """
    normal = normalizer(normalize)
    if set(keys) == {"line"}:
        return normal.of_column if normal else None
    if "line" in keys:
        raise ConfigError(
            "--key line is the whole line, so it cannot be combined with another key; delete one of them"
        )
    return partial(json_keys, [_field(key) for key in keys], normalizer=normal)


def texts(source: LineSource) -> Iterator[tuple[bytes, bool]]:
    """Yield whole lines, without the newline of the last. The flag is True if the input ends without a newline.

    StreamdedupError if `source` fails, or if a line is longer than LINE_BYTES_MAX.
    """
    pieces: list[bytes] = []
    held = 0
    while chunk := _read(source):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*pieces, head]), False
            pieces, held = [], 0
        if tail:
            pieces.append(tail)
            held += len(tail)
        if held > LINE_BYTES_MAX:
            raise StreamdedupError(f"a line is longer than {LINE_BYTES_MAX:,} bytes; is this text?")
    if pieces:
        yield b"".join(pieces), True


def digests_of_lines(text: bytes, take: KeyReader | None, hash_: Hash) -> LineDigests:
    """Return the digests of the keys that `take` takes from the lines of `text`; None takes the lines themselves."""
    lines = _lines(text)
    keys, malformed = (lines, {}) if take is None else take(lines)
    rows = np.ones(len(lines), dtype=np.bool_)
    rows[list(malformed)] = False
    digests = hash_.of_column(keys.take(np.flatnonzero(rows)))
    return LineDigests(digests, rows, next(iter(malformed.values()), ""))


def _lines(text: bytes) -> Column:
    newlines = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))
    starts = np.concatenate(([0], newlines + 1))
    return Column(text, starts, np.append(newlines, len(text)) - starts)


def _read(source: LineSource) -> bytes:
    try:
        return source.read1(CHUNK_BYTES)
    except OSError as error:
        raise StreamdedupError(f"the input cannot be read: {error.strerror}") from None


def _field(key: str) -> str:
    kind, _, name = key.partition(":")
    if kind == "json" and name:
        return name
    meant = "; write json: before the name of a field" if kind == key not in ("", "json") else ""
    given = quote(key, ("line", "json:"))
    which = "--key" if given is None else f"--key {given}"
    raise ConfigError(f"{which} is neither 'line' nor 'json:FIELD'{meant}")
