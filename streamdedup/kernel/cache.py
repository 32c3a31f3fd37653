"""Where compiled kernels are kept.

To load a kernel is to run what its file holds: numba unpickles the index of a cache before it compares anything. So a
directory is used only if nobody but this user and root may write to it, or replace it (`others_may_write`). If several
processes lack a kernel, one compiles it, and the others wait until it is compiled, or until that process has ended.
"""

import fcntl
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from numba.core import caching as _untyped_caching
from typing_extensions import override

from streamdedup.named_files import make_directory, others_may_write
from streamdedup.units import escaped

CACHE_ENV = "STREAMDEDUP_CACHE"

_caching: Any = _untyped_caching
_log = logging.getLogger("streamdedup.kernel")


class CacheDirectory(NamedTuple):
    """Where compiled kernels are; without links. `directory` is None if there is no place, or none to be trusted.

    If it is not writable, as in an image, it may still hold all of them. `unused` says why the next process has to
    compile what this one does, and `ignored` which variable is not used; both are empty if all is well.
    """

    directory: Path | None
    is_writable: bool
    unused: str = ""
    ignored: str = ""


def cache_root() -> Path:
    """Return where compiled kernels are kept: `$STREAMDEDUP_CACHE`, or the platform's cache directory.

    A relative path would mean another directory, and perhaps another owner, wherever the process starts, so none is
    used. RuntimeError if there is no home directory.
    """
    for variable, below in ((CACHE_ENV, ""), ("XDG_CACHE_HOME", "streamdedup")):
        given = Path(os.environ.get(variable, ""))
        if given.is_absolute() and (variable == CACHE_ENV or sys.platform != "darwin"):
            return given / below
    home = Path.home()
    if not home.is_absolute():
        raise RuntimeError("the home directory is no absolute path")
    caches = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return caches / "streamdedup"


def cache_directory(name: str) -> CacheDirectory:
    """Return the place of the kernels that are known by `name`. It is made, mode 0700, if it is missing."""
    given = os.environ.get(CACHE_ENV, "")
    ignored = CACHE_ENV if given and not Path(given).is_absolute() else ""
    directory: Path | None = None
    try:
        found = (cache_root() / "kernels" / name).resolve()
        # Before anything is made there, and again after it was: meanwhile others may have made one of its parents.
        if not (refused := others_may_write(found)):
            directory = found
            make_directory(found)
            refused = others_may_write(found)
        if refused:
            return CacheDirectory(
                None,
                is_writable=False,
                unused=f"the directory for compiled kernels can be written to by {refused}; it is not used, since"
                " what it holds is run",
                ignored=ignored,
            )
        with tempfile.TemporaryFile(dir=found):
            return CacheDirectory(found, is_writable=True, ignored=ignored)
    except (OSError, RuntimeError) as error:  # read-only or full; RuntimeError: no home directory
        why = f"no directory for compiled kernels is writable ({type(error).__name__})"
        if directory is not None and not os.access(directory, os.R_OK | os.X_OK):
            directory = None
        return CacheDirectory(directory, is_writable=False, unused=why, ignored=ignored)


class _Locator(_caching.UserProvidedCacheLocator):
    """Locates the kernels of a function below numba's `CACHE_DIR`, which is a `CacheDirectory`."""

    @override
    def ensure_cache_path(self) -> None:
        """Make the directory; numba would do so with the rights that the umask leaves to others."""
        with suppress(OSError):  # of a place that is not writable, it is there
            make_directory(Path(self.get_cache_path()))


class _Impl(_caching.CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class KernelCache(_caching.FunctionCache):
    """Loads the kernels of one function from a place. It waits for a kernel that another process compiles."""

    _impl_class = _Impl

    def __init__(self, function: Callable[..., Any], place: CacheDirectory) -> None:
        super().__init__(function)
        self._place = place
        impl = self._impl
        self._cache_file = _Files(
            self._cache_path, impl.filename_base, impl.locator.get_source_stamp()
        )

    @override
    def load_overload(self, sig: object, target_context: object) -> object:
        """Return the kernel for these types; None if this process has to compile it, and now has the right to."""
        _REPORTS.ignored(self._place)
        found = super().load_overload(sig, target_context)
        directory = self._place.directory if self._place.is_writable else None
        if found is None and directory and LOCK.take(directory):
            found = super().load_overload(sig, target_context)  # another may have kept it since
        return found

    @override
    def save_overload(self, sig: object, data: object) -> None:
        """Keep the kernel, unless the place is not writable, or full."""
        if self._place.is_writable:
            try:
                super().save_overload(sig, data)
            except OSError as error:
                _REPORTS.unused(f"a compiled kernel cannot be kept ({error.strerror})")


class EntryCache(KernelCache):
    """The same for an entry, whose name alone tells it from others: numba cannot compare the kernels of a closure."""

    def _index_key(self, sig: object, codegen: Any) -> object:  # noqa: ANN401 - numba's
        return sig, codegen.magic_tuple()


class _Files(_caching.IndexDataCacheFile):
    """The files of one function's kernels. Those that another user could have written are not loaded.

    What cannot be unpickled counts as missing, and is written anew: a loss of power may have cut it short.
    """

    @override
    def _load_index(self) -> Any:
        if not _is_foreign(self._index_path):
            with suppress(Exception):  # pickle raises nearly any
                return super()._load_index()
        return {}

    @override
    def _load_data(self, name: str) -> Any:
        path = self._data_path(name)
        if not _is_foreign(path):
            with suppress(Exception):
                return super()._load_data(name)
        raise FileNotFoundError(path)

    @contextmanager
    @override
    def _open_for_write(self, filepath: str) -> Iterator[IO[bytes]]:
        made = tempfile.NamedTemporaryFile(dir=self._cache_path, delete=False)  # mode 0600  # noqa: SIM115
        try:
            with made:
                yield made
            Path(made.name).replace(filepath)
        except BaseException:
            with suppress(OSError):
                Path(made.name).unlink()
            raise


def _is_foreign(path: str) -> bool:
    return bool(others_may_write(Path(path), up_to=Path(path).parent))


class _Lock:
    """The right to compile for a directory, of one process at a time. The system takes it from one that ends.

    Its caller has numba's own lock, so it is of one thread at a time.
    """

    def __init__(self) -> None:
        self._is_taken, self._fd = False, -1

    @contextmanager
    def giving_back(self) -> Iterator[None]:
        """Give it back after this context, if it is taken within: a kernel compiles those that it calls."""
        was_taken = self._is_taken
        try:
            yield
        finally:
            if not was_taken:
                self._give_back()

    def take(self, directory: Path) -> bool:
        """Take it, or wait for it. Return whether it was not taken before.

        If the file system has no locks, no process waits for another.
        """
        if self._is_taken:
            return False
        self._is_taken = True
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError):
            self._fd = os.open(directory / "lock", flags, 0o600)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _REPORTS.waits(directory)
                fcntl.flock(self._fd, fcntl.LOCK_EX)
        return True

    def _give_back(self) -> None:
        self._is_taken = False
        if self._fd >= 0:
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)  # a child that was forked has it open, too
            os.close(self._fd)
            self._fd = -1


class _Reports:
    """What is logged about the cache, each once. It waits for the first kernel: logging is then set up."""

    def __init__(self) -> None:
        self._made = set[str]()

    def ignored(self, place: CacheDirectory) -> None:
        """Log which variable is not used."""
        if place.ignored:
            self._once(
                "%s is not an absolute path, and is ignored; compiled kernels are in %s",
                place.ignored,
                place.directory or "no directory",
            )

    def unused(self, why: str) -> None:
        """Log why the next process has to compile, too."""
        self._once(
            "%s; so every process compiles them again, which takes seconds; set %s to a writable directory that nobody"
            " else may write to",
            escaped(why),
            CACHE_ENV,
        )

    def waits(self, directory: Path) -> None:
        """Log that another process compiles."""
        self._once(
            "another process compiles inner loops, and holds %s; this one waits until they are compiled, or that"
            " process ends",
            directory / "lock",
        )

    def _once(self, text: str, *values: object) -> None:
        if text not in self._made:
            self._made.add(text)
            _log.warning(text, *values)


LOCK, _REPORTS = _Lock(), _Reports()


def report(place: CacheDirectory) -> None:
    """Log why the next process has to compile what this one does, too."""
    _REPORTS.ignored(place)
    _REPORTS.unused(place.unused)
