"""One filter in one file: replaced as a whole or not at all, read or mapped, and used only if it is intact.

`save` and `load` are for programs. `Store` keeps a worker's generations with the other functions. An error names the
path, what happened, and what to do. Nothing here logs.
"""

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from mmap import ACCESS_READ
from mmap import mmap as map_file
from pathlib import Path
from typing import Any, Protocol, TypeVar

from streamdedup import filters
from streamdedup.errors import ConfigError, SnapshotError, StreamdedupError
from streamdedup.filters.base import Filter, Parts
from streamdedup.keys.encoding import named
from streamdedup.keys.hashing import HASHES, Hash
from streamdedup.named_files import TO_READ, kind_of
from streamdedup.snapshot.format import pieces
from streamdedup.snapshot.header import (
    DamagedFileError,
    ForeignError,
    Header,
    Log,
)
from streamdedup.snapshot.read import (
    Contents,
    CopyingReader,
    MappedReader,
    SnapshotReader,
)
from streamdedup.units import can_be_path
from streamdedup.version import __version__

NO_FILE = "it is no regular file"
TEMPORARY = ".streamdedup-{}.tmp"

Content = Iterator[bytes | memoryview]
Made = TypeVar("Made")
E = TypeVar("E", bound=Exception)
Make = Callable[[Mapping[str, Any], list[memoryview], Hash], Made]

# The kinds of the files that `streamdedup lists build` writes. A list holds two filters, a store digests.
LIST, STORE = "list", "store"


class NoSpaceError(SnapshotError):
    """There is no space left for what was to be written: the disk or the quota is full."""


class NotRegularError(SnapshotError):
    """What has the name of a file is a pipe, a directory, a socket or a device."""


class OtherHashError(ConfigError):
    """A file of another hash, or another secret, than the caller's; `name` is that of the hash."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


class FileSystem(Protocol):
    """The functions of `os` that snapshots use. Tests pass one that fails, or that simulates a loss of power."""

    def open(self, path: Path, flags: int, mode: int = ...) -> int:
        """Open a file, like `os.open`; return its descriptor."""

    def readv(self, fd: int, buffers: list[memoryview], /) -> int:
        """Read into `buffers`, like `os.readv`; return the number of bytes, 0 at the end of the file."""

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        """Write `data` or the beginning of it, like `os.write`; return the number of bytes written."""

    def fsync(self, fd: int) -> None:
        """Make the file or directory durable, like `os.fsync`."""

    def close(self, fd: int) -> None:
        """Close a descriptor, like `os.close`."""

    def rename(self, src: Path, dst: Path) -> None:
        """Rename a file and replace `dst` if it exists, like `os.rename`."""

    def unlink(self, path: Path) -> None:
        """Delete a file, like `os.unlink`."""

    def mkdir(self, path: Path, mode: int = ...) -> None:
        """Make a directory, like `os.mkdir`."""

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory, like `os.listdir`."""


def save(
    filter_: Parts,
    path: str | os.PathLike[str],
    *,
    fs: FileSystem = os,
    wall_clock: Callable[[], float] = time.time,
) -> None:
    """Write `filter_` to `path`, and replace a file that is there. See `streamdedup.save` for the contract.

    `fs` and `wall_clock` replace the file system and the clock in tests.
    """
    if not isinstance(filter_, Parts):
        raise TypeError(f"save takes a filter, as `build` makes it, not {named(filter_)}")
    target = Path(path)
    check_target(target)
    # Each save has a temporary file of its own, so two saves to one path do not mix. The last one stays, intact.
    temporary = target.with_name(TEMPORARY.format(secrets.token_hex(8)))
    publish(fs, temporary, target, content_of(filter_, wall_clock()), "save it elsewhere")


def check_target(target: Path) -> None:
    """SnapshotError if no file can be written to `target`, as far as that is known in advance.

    A rename would replace anything but a directory, so what is there must be a regular file, or a link to one. A link
    like /dev/stdout leads to what is open in a process: it stays, even if that is a regular file.
    """
    _check_name(target)
    with (
        blaming("write", target, "name another file"),
        suppress(FileNotFoundError, NotADirectoryError),
    ):
        if kind := kind_of(target.stat().st_mode):
            instead = "name a file in it" if target.is_dir() else "name another file"
            raise SnapshotError(f"cannot write {target}: it is {kind}", remedy=instead)
        if target.is_symlink() and _is_of_process(target.parent.resolve() / target.readlink()):
            raise SnapshotError(
                f"cannot write {target}: it is a link to an open file", remedy="name another file"
            )
    if not target.parent.is_dir():
        raise SnapshotError(
            f"cannot write {target}: there is no directory {target.parent}",
            remedy="make it, or name another",
        )


def _is_of_process(path: Path) -> bool:
    """Return whether `path` names a descriptor of a process; the device of a terminal or a disk is none."""
    return os.path.normpath(path).startswith(("/proc/", "/dev/fd/", "/dev/std"))


def _check_name(path: Path) -> None:
    """SnapshotError if no file can have this name."""
    if not can_be_path(path):
        raise SnapshotError(
            f"cannot use {str(path)!r}: no file can have that name", remedy="write another one"
        )


def load(
    path: str | os.PathLike[str],
    *,
    mmap: bool = False,
    hash_key: bytes = b"",
    verify: bool = True,
    make: Make[Filter] = filters.from_parts,
    fs: FileSystem = os,
) -> Filter:
    """Return the filter that is saved at `path`. See `streamdedup.load` for the contract.

    `make` builds it from its parts. `fs` replaces the file system in tests.
    """
    if not (mmap or verify):
        raise ConfigError("verify=False needs mmap=True: a file that is read is always verified")
    source = Path(path)
    with reading(source, mmap=mmap, verify=verify, fs=fs) as reader:
        return filter_by(make, reader, hash_key, source)


def filter_by(
    make: Make[Filter], reader: SnapshotReader, hash_key: bytes, name: Path | str
) -> Filter:
    """Return the filter that `made_by` makes. ConfigError if it is a list."""
    if reader.header.filter.get("kind") == LIST:
        raise ConfigError(
            f"cannot use {name}: it is a list that `streamdedup lists build` wrote, with the normalization of"
            " its keys",
            remedy="load it by streamdedup.lists.load",
        )
    return made_by(make, reader, hash_key, name)


@contextmanager
def reading(
    path: Path, *, mmap: bool, verify: bool = True, fs: FileSystem = os
) -> Iterator[SnapshotReader]:
    """Open the file and read its header; the rest is read within the context.

    SnapshotError, with the path, if the file cannot be read or is not intact.
    """
    _check_name(path)
    try:
        with opened(fs, path) as (fd, size):
            yield _mapped(fd, verify=verify) if mmap else read_from(fs, fd, size)
    except (SnapshotError, OSError) as error:
        raise unusable(path, error) from _outside(error)


def unusable(name: Path | str, error: SnapshotError | OSError) -> SnapshotError:
    """Return the error of what cannot be read, with its name, and what to do."""
    if isinstance(error, OSError):
        return blamed("read", name, error, "copy it to where it may be read")
    remedy = "take a copy of it, or build and save it again"
    if isinstance(error, NotRegularError):
        remedy = "name a regular file, or a link to one"
    elif isinstance(error, ForeignError):
        remedy = "name a file that `save`, `lists build` or a worker wrote, or a copy of it"
    return SnapshotError(f"cannot use {name}: {error}", remedy=remedy)


def made_by(make: Make[Made], reader: SnapshotReader, hash_key: bytes, path: Path | str) -> Made:
    """Return what `make` builds from the parts that `reader` reads, and their hash, of which `hash_key` is the secret.

    ConfigError if `hash_key` is missing or wrong, which is checked first; SnapshotError if the parts do not fit
    together.
    """
    hash_ = _checked_hash(reader.header, hash_key, path)
    return _made(make, reader.contents(), hash_)


def content_of(
    filter_: Parts,
    saved_at: float,
    log: Log | None = None,
    end_label: Callable[[], int] = lambda: 0,
) -> Content:
    """Yield a file with `filter_` in pieces.

    `end_label()` is called after the last byte was copied. SnapshotError if the filter grew before that.
    """
    buffers = [buffer.cast("B") for buffer in filter_.buffers()]
    header = Header(
        filter=filter_.header(),
        buffer_sizes=tuple(len(buffer) for buffer in buffers),
        saved_at=float(saved_at),
        writer=writer(),
        log=log,
        secret=filter_.hash.key if filter_.hash.drawn else b"",
    )

    def closing() -> tuple[Mapping[str, Any], int]:
        of_filter, end = filter_.header(), end_label()
        if tuple(buffer.nbytes for buffer in filter_.buffers()) != header.buffer_sizes:
            raise SnapshotError("the filter grew while it was saved", remedy="save it again")
        return of_filter, end

    return pieces(header, buffers, closing)


def writer() -> str:
    """Return what a header says of the program that writes it."""
    return f"streamdedup {__version__}, pid {os.getpid()}"


def publish(fs: FileSystem, temporary: Path, path: Path, content: Content, instead: str) -> int:
    """Write `content` to `temporary`, rename that to `path`, and make both durable; return the size in bytes.

    SnapshotError if any step fails, a NoSpaceError if nothing was put in place for want of space; `instead` is what
    else the operator could do. The temporary file is then deleted.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with blaming("write", temporary, instead):
            fd = fs.open(temporary, flags, 0o600)
            try:
                size_bytes = sum(_write(fs, fd, piece) for piece in content)
                # A failed fsync is not repeated: a second one can succeed although the data is lost.
                fs.fsync(fd)
            finally:
                fs.close(fd)
        # From here on the new file may be in place, and not durable: a lack of space is no reason to give up others.
        with blaming("put in place", path, instead, SnapshotError):
            fs.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            fs.unlink(temporary)
        raise
    with blaming("make durable", path, instead, SnapshotError):
        sync_directory(fs, path.parent)
    return size_bytes


def _write(fs: FileSystem, fd: int, piece: bytes | memoryview) -> int:
    rest = memoryview(piece)
    while rest:
        rest = rest[fs.write(fd, rest) :]
    return len(piece)


def sync_directory(fs: FileSystem, directory: Path) -> None:
    """Make the names in `directory` survive a loss of power."""
    fd = fs.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fs.fsync(fd)
    finally:
        fs.close(fd)


@contextmanager
def opened(fs: FileSystem, path: Path, flags: int = 0) -> Iterator[tuple[int, int]]:
    """Open a file to read; yield its descriptor and its size in bytes. NotRegularError if it is no regular file."""
    fd = fs.open(path, TO_READ | flags)
    try:
        found = os.fstat(fd)
        if kind := kind_of(found.st_mode):
            raise NotRegularError(f"{NO_FILE}, but {kind}")
        yield fd, found.st_size
    finally:
        with suppress(OSError):
            fs.close(fd)


def read_from(fs: FileSystem, fd: int, size_bytes: int) -> CopyingReader:
    """Return a reader of the file.

    It reads in pieces of at most a chunk, so that no other thread waits longer than that for the interpreter.
    """
    return CopyingReader(next_bytes(fs, fd), size_bytes)


def next_bytes(fs: FileSystem, fd: int) -> Callable[[memoryview], None]:
    """Return a function that fills a whole view with the next bytes of the file. DamagedFileError at its end."""

    def read_into(view: memoryview) -> None:
        while view:
            count = fs.readv(fd, [view])
            if count == 0:
                raise DamagedFileError("it was cut short while it was read")
            view = view[count:]

    return read_into


def _mapped(fd: int, *, verify: bool) -> MappedReader:
    try:
        mapped = map_file(fd, 0, access=ACCESS_READ)
    except ValueError as error:
        raise DamagedFileError("it is cut short: it is empty") from error
    return MappedReader(memoryview(mapped), verify=verify)


def _hash_of(header: Header, hash_key: bytes = b"") -> Hash:
    """Return the hash of a file: its secret is the one in its header, and `hash_key` if there is none.

    SnapshotError if the hash is unknown; ConfigError if `hash_key` does not suit it. Whether it is the right one, the
    filter checks by `hash_check` when it is built.
    """
    name = header.filter.get("hash")
    if name not in HASHES:
        raise SnapshotError(f"its hash {name!r} is unknown to this streamdedup")
    if header.secret:
        return Hash("siphash", header.secret, drawn=True)
    return filters.hash_of(name, hash_key)


def _checked_hash(header: Header, hash_key: bytes, path: Path | str) -> Hash:
    name = header.filter.get("hash")
    if header.secret:
        if hash_key:
            raise ConfigError(
                f"cannot use {path}: the secret of its hash was drawn, and is in the file",
                remedy="leave hash_key out",
            )
        return _hash_of(header)
    if name == "siphash" and not hash_key:
        raise OtherHashError(
            f"cannot use {path}: its hash is siphash; give hash_key, the 16 bytes it was built with, which are in"
            " no file",
            name,
        )
    if name == "murmur3" and hash_key:
        raise OtherHashError(
            f"cannot use {path}: its hash, murmur3, has no hash_key: leave it out", name
        )
    try:
        hash_ = _hash_of(header, hash_key)
    except ConfigError as error:
        raise ConfigError(
            f"cannot use {path}: {error}", remedy="give the hash_key with which it was built"
        ) from error
    if hash_key and hash_.check != header.filter.get("hash_check"):
        raise OtherHashError(
            f"cannot use {path}: the hash_key is not the one with which it was built", hash_.name
        )
    return hash_


def built(header: Header, contents: Contents, hash_key: bytes = b"") -> Filter:
    """Return the filter of a file, over the buffers that were read or mapped.

    The secret of its hash is in the header if it was drawn, else it is `hash_key`. SnapshotError if its parts, or its
    hash, do not fit together.
    """
    try:
        hash_ = _hash_of(header, hash_key)
    except ConfigError as error:
        raise SnapshotError(f"its digests are of another hash: {error}") from error
    return _made(filters.from_parts, contents, hash_)


def _made(make: Make[Made], contents: Contents, hash_: Hash) -> Made:
    try:
        return make(contents.filter, contents.buffers, hash_)
    except (
        StreamdedupError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        MemoryError,
    ) as error:
        raise SnapshotError(
            f"its filter cannot be built ({type(error).__name__}: {error})"
        ) from error


@contextmanager
def blaming(
    doing: str, path: Path, instead: str, kind: type[SnapshotError] | None = None
) -> Iterator[None]:
    """Turn an OSError into a SnapshotError, or into `kind`. `instead` is what else the operator could do."""
    try:
        yield
    except OSError as error:
        raise blamed(doing, path, error, instead, kind) from _outside(error)


def blamed(
    doing: str,
    path: Path | str,
    error: OSError,
    instead: str,
    kind: type[SnapshotError] | None = None,
) -> SnapshotError:
    """Return the error of an action on what has this name. `instead` is what else the operator could do."""
    kind = kind or (NoSpaceError if error.errno in _FULL else SnapshotError)
    return kind(f"cannot {doing} {path}: {words(error)}; {_remedy(error, instead)}")


def _outside(error: E) -> E:
    """Return `error`, caught in the generator of a context manager, without the frame of that generator.

    From Python 3.12 on that frame leads back to the error. The error, and with it a table that was read or mapped,
    would then stay until the garbage collector runs.
    """
    place = error.__traceback__
    return error.with_traceback(place and place.tb_next)


def words(error: OSError) -> str:
    """Return the system's description of the error; if it is none of the system, its own."""
    if error.errno is None:
        return str(error) or type(error).__name__
    return f"{error.strerror} ({errno.errorcode.get(error.errno, error.errno)})"


_FULL = {errno.ENOSPC, errno.EDQUOT}
_WRONG_PATH = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}


def _remedy(error: OSError, instead: str) -> str:
    if error.errno is None:
        return instead
    if error.errno in _FULL:
        return f"free some space there, or {instead}"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"let user id {os.geteuid()} do so, or {instead}"
    if error.errno in _WRONG_PATH:
        return "see that the path is right"
    return "look into the system's log for disk errors; what was there before is untouched"
