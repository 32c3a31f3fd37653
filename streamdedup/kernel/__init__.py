"""The only module that compiles with numba: it compiles every kernel of this package, and lists it in `KERNELS`.

numba caches a function by its own source file only, so after a change in a module that it calls, the cache
would be stale. Our cache directory (`cache.py`) therefore has in its name a digest of all sources that kernels
are made of. numba also compiles for every type that it gets: `keys.hashing` makes one type of each input, and tests
check what each kernel inferred.
"""

import ctypes
import hashlib
import logging
import mmap
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba.core import ccallback as _untyped_ccallback
from numba.core import event as _untyped_event
from numba.core.compiler_lock import global_compiler_lock as _untyped_lock
from numba.np.unsafe.ndarray import to_fixed_tuple as _untyped_tuple
from typing_extensions import override

from streamdedup import forks
from streamdedup.errors import ConfigError
from streamdedup.kernel.cache import (
    CACHE_ENV,
    LOCK,
    EntryCache,
    KernelCache,
    cache_directory,
    cache_root,
    report,
)

__all__ = [
    "CACHE_ENV",
    "COMPILING",
    "ENTRIES",
    "KERNELS",
    "Entry",
    "Words",
    "cache_root",
    "compiled",
    "compiling",
    "give_back_compiler",
    "in_entries",
    "inlined",
    "kept_in",
    "kernel",
    "loaded",
    "sources",
    "unwritten",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_config: Any = numba.config  # its settings are made at run time, so no type checker knows them
_compiler_lock: Any = _untyped_lock
_ccallback: Any = _untyped_ccallback
_event: Any = _untyped_event
forks.take_first(_compiler_lock, forks.COMPILER)
_types: Any = numba.types
_njit: Any = numba.njit  # its types leave out `_nrt`

if _config.DISABLE_JIT:
    raise ConfigError(
        "NUMBA_DISABLE_JIT is set: kernels that run as Python give wrong answers; unset it for streamdedup"
    )

Words = npt.NDArray[np.uint64]  # what most kernels work on, such as the table of a filter

# In a kernel only: the first fields of an array, of which a layout is made. One array is passed to a kernel faster than
# a dozen numbers, and in the kernel numbers are faster than an array.
unpacked = cast("Callable[[Words, int], tuple[Any, ...]]", _untyped_tuple)

KERNELS: list[Any] = []  # every kernel, as numba's dispatcher
ENTRIES: list["Entry"] = []

# What a command says meanwhile.
COMPILING = (
    "compiling inner loops that never ran here before; this takes some seconds, half a minute on a busy machine, and"
    " the result is kept"
)

_MAPPING = re.compile(
    rb"^(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) (?P<rights>\S+) .*/libllvmlite\S*$"
    rb"(?:\n\w+:.*)*?\nAnonymous: +(?P<anonymous>\d+) kB$"
    rb"(?:\n\w+:.*)*?\nSwap: +(?P<swap>\d+) kB$",
    re.MULTILINE,
)

_KERNEL = re.compile(rb"^@(kernel|inlined)\b", re.MULTILINE)
_IMPORTS = re.compile(rb"^[ \t]*from (streamdedup[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)

_numba_log = logging.getLogger("numba")
# A program that logs at DEBUG, as Scrapy does, would get 5 MB a filter.
if _numba_log.level == logging.NOTSET:
    _numba_log.setLevel(logging.INFO)


def kernel(function: _Function) -> _Function:
    """Compile `function`, without the GIL, on the first call for each combination of argument types."""
    return _compiled(function, in_line=False)


def inlined(function: _Function) -> _Function:
    """Compile and inline `function`, which kernels call for each row and which allocates nothing.

    It is inlined whatever its length, and it does not count references. Otherwise each call would count the
    references of all arrays that it is given, which takes longer than the work on most rows.
    """
    return _compiled(function, in_line=True)


def in_entries(function: _Function) -> _Function:
    """Inline `function` into each entry that calls it. It may take kernels as arguments; it is not kept by itself."""
    return cast("_Function", _dispatcher(function, in_line=True))


def _compiled(function: _Function, *, in_line: bool) -> _Function:
    made = _dispatcher(function, in_line=in_line)
    if _PLACE.directory:
        _keep(made, KernelCache, function, _PLACE.directory)
        made.compile = _giving_back(made.compile)
    KERNELS.append(made)
    return cast("_Function", made)


def _dispatcher(function: Callable[..., Any], *, in_line: bool) -> Any:  # noqa: ANN401 - numba's
    # All options are stated, since numba would take an option that is left out from the kernel that is
    # the first to call this one. With the error model "numpy", a division by 0 raises nothing: if a
    # function could raise, numba would count the references of its arrays for every row.
    return _njit(nogil=True, error_model="numpy", forceinline=in_line, _nrt=not in_line)(function)


def _keep(
    made: Any,  # noqa: ANN401 - numba's
    cache: type[KernelCache],
    function: Callable[..., Any],
    directory: Path,
) -> None:
    """Have `made` look into the cache before it compiles `function`, and keep there what it compiles."""
    with _locating(directory):
        made._cache = cache(function, _PLACE)


class Entry:
    """A C function that calls `function` with so many addresses, and returns the address that it returns.

    It raises nothing, and counts no references. It is compiled, or loaded from the cache, when it is first asked for
    its address. `name` tells it from others that were made of the same function, with other kernels in its closure.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        function.__name__ = function.__qualname__ = name  # in the cache, and to the linker
        self.function = function
        self.arguments = function.__code__.co_argcount
        self.is_compiled: bool | None = None
        """Whether this process compiled it, because the cache did not have it; None before it is asked for."""
        self._made: Any = None
        ENTRIES.append(self)

    @property
    def address(self) -> int:
        """Where the C function is. Only a lock that `forks` knows is held meanwhile."""
        if self._made is None:
            with _compiler_lock, LOCK.giving_back():
                if self._made is None:
                    self._made = self._compiled()
        return int(self._made.address)

    def _compiled(self) -> Any:  # noqa: ANN401 - numba's
        made = self.empty()
        if _PLACE.directory:
            _keep(made, EntryCache, self.function, _PLACE.directory)
        made._compile_uncached = _reported(made._compile_uncached)
        made.compile()
        self.is_compiled = not made.cache_hits
        return made

    def empty(self) -> Any:  # noqa: ANN401 - numba's
        """The same, which is not compiled yet, and has no cache."""
        address = _types.uint64
        options = {"error_model": "numpy", "_nrt": False}
        return _ccallback.CFunc(self.function, ((address,) * self.arguments, address), {}, options)


def _reported(compiles: Callable[[], Any]) -> Callable[[], Any]:
    """Return `compiles`, which says what a kernel says when it is compiled."""

    def compiled() -> Any:  # noqa: ANN401 - numba's
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

    def compiled(types: Any) -> Any:  # noqa: ANN401 - numba's
        with _compiler_lock, LOCK.giving_back():
            return compiles(types)

    return compiled


@contextmanager
def compiling(on_compile: Callable[[], None]) -> Iterator[None]:
    """Within this context, call `on_compile` once before the first kernel that is not in the cache is compiled."""
    listener = _First(on_compile)
    _event.register("numba:compile", listener)
    try:
        yield
    finally:
        listener.end()


def compiled() -> int:
    """Return how many kernels this process compiled, once for each type, because the cache did not have them."""
    entries = sum(bool(each.is_compiled) for each in ENTRIES)
    return entries + sum(sum(each.stats.cache_misses.values()) for each in KERNELS)


def loaded() -> int:
    """Return how many kernels this process has, once for each type: those of the cache, and those that it compiled."""
    entries = sum(each.is_compiled is False for each in ENTRIES)
    return compiled() + entries + sum(sum(each.stats.cache_hits.values()) for each in KERNELS)


def kept_in() -> Path | None:
    """Return the directory in which the next process finds the kernels of this one; None if there is none."""
    return _PLACE.directory if _PLACE.is_writable else None


def give_back_compiler() -> None:
    """Give the pages of the compiler's library, some 70 MB, back to the system.

    Loading a kernel from the cache reads these pages. If the compiler is needed again, the system reads them again from
    the library's file. If the system does not list its mappings, as macOS does not, this does nothing. To list those of
    a large process takes 100 ms.
    """
    try:
        listed = Path("/proc/self/smaps").read_bytes()
    except OSError:
        return
    system = ctypes.CDLL(None)
    system.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for start, end in unwritten(listed):
        system.madvise(start, end - start, mmap.MADV_DONTNEED)


def unwritten(listed: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the compiler's library is mapped, as `listed` by smaps, and nobody wrote or can write.

    Pages that the loader wrote are not in the file. They are anonymous, or in the swap space.
    """
    for mapping in _MAPPING.finditer(listed):
        is_in_file = mapping["anonymous"] == mapping["swap"] == b"0"
        if is_in_file and b"w" not in mapping["rights"]:
            yield int(mapping["start"], 16), int(mapping["end"], 16)


def sources(package: Path) -> dict[str, bytes]:
    """The modules below `package` that kernels are made of, by name: no other source can change a kernel.

    These are the modules that define a kernel, and all that they import, directly or not. A package is imported with
    each of its modules, but counts only if a name is taken from its own `__init__`.
    """
    texts = {_module(path, package): path.read_bytes() for path in package.rglob("*.py")}
    found: dict[str, bytes] = {}
    waiting = [name for name, text in texts.items() if _KERNEL.search(text)]
    while waiting:
        name = waiting.pop()
        if name in texts and name not in found:
            found[name] = texts[name]
            for module, names in _IMPORTS.findall(texts[name]):
                origin = module.decode()
                members = [f"{origin}.{member}" for member in re.findall(r"\w+", names.decode())]
                waiting += members if texts.keys() >= set(members) else [origin, *members]
    return found


def _module(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _name() -> str:
    """Return the name of these sources, numba's and Python's versions, and bounds checking."""
    digest = hashlib.blake2b(digest_size=8)
    for _, source in sorted(sources(Path(__file__).parents[1]).items()):
        digest.update(source)
    return f"{digest.hexdigest()}-{numba.__version__}-{sys.implementation.cache_tag}-{_config.BOUNDSCHECK or 0}"


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


_PLACE = cache_directory(_name())
if _PLACE.unused:
    _event.register("numba:compile", _First(partial(report, _PLACE)))
