"""The inputs of a list: files, plain or compressed, pipes and standard input, read in pieces in bounded memory.

The name's endings give the format and the compression. Each error names the input and the remedy.
"""

import gzip
import mmap
import os
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import cramjam

from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.keys.formats.texts import UTF_16, UTF_16_MARKS
from streamdedup.named_files import can_be_read_again, open_stream

CHUNK_BYTES = 1 << 20
STDIN = "-"

_FORMAT_OF = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_PACKING_OF = {".gz": "gzip", ".zst": "zstd"}
_TEXT_IS_NOT = {
    b"BZh": "is compressed by bzip2, which is not read; pipe it through: bzip2 -dc",
    b"\xfd7zXZ\x00": "is compressed by xz, which is not read; pipe it through: xz -dc",
    b"PK\x03\x04": "is a ZIP archive or a workbook of Excel, which are not read; for an archive, pipe it through:"
    " unzip -p",
    b"\x1f\x8b": "is compressed by gzip; give it a name that ends in .gz, or pipe it through: gzip -dc",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; give it a name that ends in .zst, or pipe it through: zstd -dc",
    **dict.fromkeys(UTF_16_MARKS, UTF_16),
}

Read = Callable[[int], bytes]


@dataclass(frozen=True)
class Input:
    """One input. The name "-" stands for the stream that `stdin` returns.

    `is_pipe`: the file is a pipe, as `<(...)` makes one. Such an input, and standard input, can be read only once.
    `column` and `separator` are set only for CSV, and `field` only for JSON lines; otherwise they are empty.
    """

    name: str
    format: str
    stdin: Callable[[], BinaryIO]
    packing: str = ""
    is_pipe: bool = False
    column: str = ""
    field: str = ""
    separator: str = ","

    @property
    def is_read_once(self) -> bool:
        """Whether the input cannot be read a second time."""
        return self.is_pipe or self.name == STDIN

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the whole input, decompressed, in pieces of CHUNK_BYTES; the last one is shorter.

        ConfigError or StreamdedupError if it cannot be read. No error quotes the contents.
        """
        try:
            with self._opened() as read:
                chunk = read(CHUNK_BYTES)
                for magic, why in _TEXT_IS_NOT.items():
                    if chunk.startswith(magic):
                        raise ConfigError(f"{self.name} {why}")
                while chunk:
                    yield chunk
                    chunk = read(CHUNK_BYTES)
        except EOFError:
            raise StreamdedupError(
                f"{self.name} is cut short: the {self.packing} data ends in the middle; copy it again"
            ) from None
        except (gzip.BadGzipFile, zlib.error, cramjam.DecompressionError):
            raise StreamdedupError(
                f"{self.name} is damaged, or not {self.packing}; copy it again, or give it the ending of its format"
            ) from None
        except TimeoutError as error:
            raise StreamdedupError(
                f"{self.name} cannot be read: {error.strerror}; see that its writer runs, then build again"
            ) from None
        except OSError as error:
            raise StreamdedupError(f"{self.name} cannot be read: {error.strerror}") from None

    @contextmanager
    def _opened(self) -> Iterator[Read]:
        if self.name == STDIN:
            yield self.stdin().read
            return
        try:
            file = open_stream(Path(self.name))
        except OSError as error:
            raise ConfigError(
                f"{self.name}: {error.strerror}; name a readable file, or - for standard input"
            ) from None
        with file:
            if self.packing == "gzip":
                yield gzip.GzipFile(fileobj=_begun(file)).read
            elif self.packing == "zstd":
                with _unpacked(_begun(file)) as read:
                    yield read
            else:
                yield file.read


def inputs_of(
    names: Sequence[str],
    stdin: Callable[[], BinaryIO],
    format_: str | None = None,
    column: str | None = None,
    field: str | None = None,
    *,
    separator: str | None = None,
) -> list[Input]:
    """Return the inputs with these names. If `format_` is None, each name's ending gives its format.

    `column` and `separator` are for CSV, `field` for JSON lines. ConfigError if one is missing, or if no input has its
    format.
    """
    if names.count(STDIN) > 1:
        raise ConfigError("standard input (-) can be read only once; name it once")
    found = [_input_of(name, stdin, format_) for name in names]
    formats = {given.format for given in found}
    tabs = not separator and any(_is_of_tabs(name) for name in names)
    if separator and "csv" not in formats:
        raise ConfigError(
            "--separator is for csv, and no input has that format; give --format csv, or delete the option"
        )
    as_csv = "csv --separator tab" if tabs else "csv"
    for option, value, of, how in (
        ("--column", column, "csv", as_csv),
        ("--field", field, "jsonl", "jsonl"),
    ):
        if value and of not in formats:
            raise ConfigError(
                f"{option} is for {of}, and no input has that format; give --format {how}, or delete the option"
            )
        if not value and of in formats:
            raise ConfigError(
                f"{option} is required for {of}: it names the place of the key in a line"
            )
    return [
        replace(
            given,
            column=column or "" if given.format == "csv" else "",
            field=field or "" if given.format == "jsonl" else "",
            separator=separator or ",",
        )
        for given in found
    ]


def _is_of_tabs(name: str) -> bool:
    return ".tsv" in (suffix.lower() for suffix in Path(name).suffixes[-2:])


def size_bytes(inputs: Sequence[Input]) -> int | None:
    """Return the bytes of all inputs together; None if one is compressed or is read once: its size is unknown."""
    if any(given.packing or given.is_read_once for given in inputs):
        return None
    return sum(Path(given.name).stat().st_size for given in inputs if Path(given.name).exists())


def _input_of(name: str, stdin: Callable[[], BinaryIO], format_: str | None) -> Input:
    path = Path(name)
    packing = _PACKING_OF.get(path.suffix.lower(), "")
    plain = path.with_suffix("") if packing else path
    read_as = format_ or _FORMAT_OF.get(plain.suffix.lower(), "text")
    is_pipe = name != STDIN and not can_be_read_again(path)
    if is_pipe and packing == "zstd":
        raise ConfigError(
            f"{name} is a pipe, and zstd is read from regular files only; let the pipe bring what it unpacks to, as in"
            " <(zstd -dc FILE)"
        )
    return Input(name, read_as, stdin, packing, is_pipe)


def _begun(file: BufferedReader) -> BufferedReader:
    """Return `file` itself. EOFError if it is empty: gzip and zstd write at least a header."""
    if not file.peek(1):
        raise EOFError
    return file


@contextmanager
def _unpacked(file: BinaryIO) -> Iterator[Read]:
    """Decompress a zstd file.

    The library can only write the whole result into a file, so a thread makes it write into a pipe, which is read here.
    The file is mapped, because the library would open a path for writing. Pages that have been read are given back on
    the way.
    """
    out, into = os.pipe()
    with (
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as packed,
        ThreadPoolExecutor(1) as thread,
        open(out, "rb") as unpacked,  # noqa: PTH123 - not a path; closed first, which ends a thread that still runs
    ):
        done = thread.submit(_unpack, packed, into)

        def read(size: int) -> bytes:
            chunk = unpacked.read(size)
            packed.madvise(mmap.MADV_DONTNEED)
            if len(chunk) < size:
                done.result()
            return chunk

        yield read


def _unpack(packed: mmap.mmap, into: int) -> None:
    try:
        pipe = cramjam.File(f"/dev/fd/{into}", read=False, write=True, truncate=False)
    finally:
        os.close(into)
    try:
        cramjam.zstd.decompress_into(packed, pipe)
    except cramjam.DecompressionError as error:
        if "incomplete" in str(error):
            raise EOFError from None
        raise
    finally:
        del (
            pipe
        )  # otherwise an error's traceback would keep it open, and the reader would wait forever
