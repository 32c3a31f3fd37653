"""One filter in a file object, or in bytes: those that a file would have. Nothing is sought, nor read beyond its end.

An error names "the file object", or "the bytes".
"""

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from streamdedup.errors import SnapshotError
from streamdedup.filters.base import Filter, Parts
from streamdedup.keys.encoding import named
from streamdedup.snapshot.files import Make, blamed, content_of, filter_by, unusable
from streamdedup.snapshot.header import DamagedFileError
from streamdedup.snapshot.read import CopyingReader

FILE_OBJECT, BYTES = "the file object", "the bytes"
BINARY = "it takes text; open it for bytes, as by mode 'wb' or 'rb'"


class Readable(Protocol):
    """What a filter can be loaded from."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""


class Writable(Protocol):
    """What a filter can be saved to."""

    def write(self, data: bytes, /) -> object:
        """Write `data`; return how many bytes were written, unless it is all of them."""


def write(filter_: Parts, target: Writable) -> None:
    """Write `filter_` to a file object. It is neither flushed nor closed.

    SnapshotError: it failed. TypeError: it is no binary file object.
    """
    if isinstance(target, io.TextIOBase):
        raise TypeError(f"cannot write {FILE_OBJECT}: {BINARY}")
    for piece in content_of(filter_, time.time()):
        rest = bytes(piece)  # the piece changes, and a file object may keep what it is given
        while rest:
            with _naming_it("write"):
                done = target.write(rest)
                if done == 0 or (done is None and isinstance(target, io.RawIOBase)):
                    raise OSError("it takes no more now")
            rest = rest[done if isinstance(done, int) else len(rest) :]


def read(source: Readable, hash_key: bytes, make: Make[Filter]) -> Filter:
    """Return what `make` builds of the filter that begins here in a file object, and read no further.

    SnapshotError: it is no filter, damaged, or cannot be read. TypeError: it is no binary file object.
    """
    if isinstance(source, io.TextIOBase):
        raise TypeError(f"cannot read {FILE_OBJECT}: {BINARY}")

    def read_into(view: memoryview) -> None:
        while view:
            with _naming_it("read"):
                some = source.read(len(view))
            if not some:
                raise DamagedFileError("it is cut short: it ends within the filter")
            view[: len(some)] = some
            view = view[len(some) :]

    return _read(FILE_OBJECT, read_into, None, hash_key, make)


def read_bytes(data: bytes | bytearray | memoryview, hash_key: bytes, make: Make[Filter]) -> Filter:
    """Return what `make` builds of the filter that these bytes are, of which it copies all. SnapshotError as `read`."""
    try:
        left = memoryview(data).cast("B")
    except TypeError:
        raise TypeError(f"from_bytes takes bytes, not {named(data)}") from None

    def read_into(view: memoryview) -> None:
        nonlocal left
        view[:], left = left[: len(view)], left[len(view) :]

    return _read(BYTES, read_into, len(left), hash_key, make)


def _read(
    name: str,
    read_into: Callable[[memoryview], None],
    size_bytes: int | None,
    hash_key: bytes,
    make: Make[Filter],
) -> Filter:
    try:
        return filter_by(make, CopyingReader(read_into, size_bytes), hash_key, name)
    except FileObjectError:
        raise
    except SnapshotError as error:
        raise unusable(name, error) from error


class FileObjectError(SnapshotError):
    """A file object that cannot be written or read."""


@contextmanager
def _naming_it(doing: str) -> Iterator[None]:
    """Turn an error of a file object, such as that it is closed, into a SnapshotError."""
    try:
        yield
    except (OSError, ValueError) as error:
        known = error if isinstance(error, OSError) else OSError(f"{error}")
        raise blamed(doing, FILE_OBJECT, known, f"{doing} another", FileObjectError) from error
