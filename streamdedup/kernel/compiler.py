"""What numba makes of the functions that `kernel` lists. The module is imported when it makes the first.

numba caches a function by its own source file only; the directory of our cache follows all sources (`cache.place`).
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import numba
from numba.core import caching as _untyped_caching
from numba.core import ccallback as _untyped_ccallback
from numba.core import event as _untyped_event
from numba.core.compiler_lock import global_compiler_lock as _untyped_lock
from numba.np.unsafe.ndarray import to_fixed_tuple
from typing_extensions import override

from streamdedup import forks
from streamdedup.errors import ConfigError
from streamdedup.kernel import objects
from streamdedup.kernel.cache import (
    LOCK,
    REPORTS,
    CacheDirectory,
    is_foreign,
    place,
    replacing,
    report,
)
from streamdedup.named_files import make_directory

__all__ = [
    "PLACE",
    "compiling",
    "dispatcher",
    "empty_entry",
    "entry",
    "kept_dispatcher",
    "to_fixed_tuple",
]

_caching: Any = _untyped_caching
_ccallback: Any = _untyped_ccallback
_event: Any = _untyped_event
_types: Any = numba.types
_njit: Any = numba.njit  # its types leave out `_nrt`
_config: Any = numba.config  # its settings are made at run time, so no type checker knows them
_compiler_lock: Any = _untyped_lock

if _config.DISABLE_JIT:
    raise ConfigError(
        "NUMBA_DISABLE_JIT is set: kernels that run as Python give wrong answers; unset it for streamdedup"
    )

forks.take_first(_compiler_lock, forks.COMPILER)

_numba_log = logging.getLogger("numba")
# A program that logs at DEBUG, as Scrapy does, would get 5 MB a filter.
if _numba_log.level == logging.NOTSET:
    _numba_log.setLevel(logging.INFO)


def dispatcher(function: Callable[..., Any], *, in_line: bool) -> Any:
    """Return what compiles `function` for the types of each call. It is kept nowhere."""
    # All options are stated, since numba would take an option that is left out from the kernel that is
    # the first to call this one. With the error model "numpy", a division by 0 raises nothing: if a
    # function could raise, numba would count the references of its arrays for every row.
    return _njit(nogil=True, error_model="numpy", forceinline=in_line, _nrt=not in_line)(function)


def kept_dispatcher(function: Callable[..., Any], *, in_line: bool) -> Any:
    """The same, whose kernels are in the cache."""
    made = dispatcher(function, in_line=in_line)
    if PLACE.directory:
        _keep(made, KernelCache, function, PLACE.directory)
        made.compile = _giving_back(made.compile)
    return made


def entry(function: Callable[..., Any]) -> Any:
    """Return the C function that calls `function` with addresses, from the cache or compiled.

    Only a lock that `forks` knows is held meanwhile.
    """
    with _compiler_lock, LOCK.giving_back():
        made = empty_entry(function)
        if PLACE.directory:
            _keep(made, EntryCache, function, PLACE.directory)
        made._compile_uncached = _reported(made._compile_uncached)
        made.compile()
        if PLACE.directory:
            machine = made._library.codegen.magic_tuple()
            objects.keep(PLACE, function.__name__, machine, partial(made._cache.object_code, made))
    return made


def empty_entry(function: Callable[..., Any]) -> Any:
    """Return the same, which is not compiled yet, and has no cache."""
    address = _types.uint64
    signature = (address,) * function.__code__.co_argcount, address
    return _ccallback.CFunc(function, signature, {}, {"error_model": "numpy", "_nrt": False})


def _keep(
    made: Any,
    cache: "type[KernelCache]",
    function: Callable[..., Any],
    directory: Path,
) -> None:
    """Have `made` look into the cache before it compiles `function`, and keep there what it compiles."""
    with _locating(directory):
        made._cache = cache(function, PLACE)


def _reported(compiles: Callable[[], Any]) -> Callable[[], Any]:
    """Return `compiles`, which says what a kernel says when it is compiled."""

    def compiled() -> Any:
        with _event.trigger_event("numba:compile"):
            return compiles()

    return compiled


@contextmanager
def _locating(directory: Path) -> Iterator[None]:
    """Within this context, numba locates caches in `directory`; other users of numba in this process keep theirs."""
    outer = _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES
    _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = str(directory), ""
    try:
        yield
    finally:
        _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = outer


def _giving_back(compiles: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `compiles`, which gives the right to compile back once its kernel is kept, or cannot be compiled."""

    def compiled(types: Any) -> Any:
        with _compiler_lock, LOCK.giving_back():
            return compiles(types)

    return compiled


@contextmanager
def compiling(on_compile: Callable[[], None]) -> Iterator[None]:
    """Do what `kernel.compiling` documents."""
    listener = _First(on_compile)
    _event.register("numba:compile", listener)
    try:
        yield
    finally:
        listener.end()


class _First(_event.Listener):
    """Calls `on_compile` when the first kernel is compiled."""

    def __init__(self, on_compile: Callable[[], None]) -> None:
        self._on_compile = on_compile
        self._listens = True

    @override
    def on_start(self, _compiling: object) -> None:
        if self._listens:
            self.end()
            self._on_compile()

    @override
    def on_end(self, _compiled: object) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Stop listening."""
        if self._listens:
            self._listens = False
            _event.unregister("numba:compile", self)


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
        REPORTS.ignored(self._place)
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
                REPORTS.unused(f"a compiled kernel cannot be kept ({error.strerror})")


class EntryCache(KernelCache):
    """The same for an entry, whose name alone tells it from others: numba cannot compare the kernels of a closure."""

    def _index_key(self, sig: object, codegen: Any) -> object:
        return sig, codegen.magic_tuple()

    def object_code(self, made: Any) -> tuple[str, bytes] | None:
        """Return the name of an entry's C function, and its object code, as numba keeps them; None if it does not.

        An entry that is linked has its object code no more.
        """
        found = self._cache_file.load(self._index_key(made._sig, made._library.codegen))
        if found is None:
            return None
        (_, _, (code, _)), *_ = found
        return made.native_name, code


class _Files(_caching.IndexDataCacheFile):
    """The files of one function's kernels. Those that another user could have written are not loaded.

    What cannot be unpickled counts as missing, and is written anew: a loss of power may have cut it short.
    """

    @override
    def _load_index(self) -> Any:
        if not is_foreign(Path(self._index_path)):
            with suppress(Exception):  # pickle raises nearly any
                return super()._load_index()
        return {}

    @override
    def _load_data(self, name: str) -> Any:
        path = self._data_path(name)
        if not is_foreign(Path(path)):
            with suppress(Exception):
                return super()._load_data(name)
        raise FileNotFoundError(path)

    @override
    def _open_for_write(self, filepath: str) -> AbstractContextManager[IO[bytes]]:
        return replacing(Path(filepath))


PLACE = place(_config.BOUNDSCHECK or 0)
if PLACE.unused:
    _event.register("numba:compile", _First(partial(report, PLACE)))
