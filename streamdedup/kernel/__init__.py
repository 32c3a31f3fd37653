"""The only package that compiles with numba: it compiles every kernel, and lists it in `KERNELS`.

numba is imported when the first kernel is called, by `compiler`. It compiles for every type that it gets:
`keys.hashing` makes one type of each input, and tests check what each kernel inferred. What it compiled is kept
(`cache`); entries are kept as object code, too, which `objects` loads without numba.
"""

import ctypes
import mmap
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from streamdedup.kernel import objects
from streamdedup.kernel.cache import CACHE_ENV, cache_root, place, sources
from streamdedup.later import Later
from streamdedup.numba_settings import FILE

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

Words = npt.NDArray[np.uint64]  # what most kernels work on, such as the table of a filter

KERNELS: list[Later] = []  # every kernel: numba's dispatcher, once it is needed
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


def _compiler() -> ModuleType:
    from streamdedup.kernel import compiler  # it imports numba

    return compiler


def _unpacked(words: Words, count: int) -> tuple[Any, ...]:
    """Return the first fields of an array, of which a layout is made.

    One array is passed to a kernel faster than a dozen numbers, and in the kernel numbers are faster than an array.
    """
    raise NotImplementedError


unpacked: Callable[[Words, int], tuple[Any, ...]] = Later(
    _unpacked, lambda: _compiler().to_fixed_tuple
)


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
    return cast(
        "_Function", Later(function, lambda: _compiler().dispatcher(function, in_line=True))
    )


def _compiled(function: _Function, *, in_line: bool) -> _Function:
    made = Later(function, lambda: _compiler().kept_dispatcher(function, in_line=in_line))
    KERNELS.append(made)
    return cast("_Function", made)


class Entry:
    """A C function that calls `function` with so many addresses, and returns the address that it returns.

    It raises nothing, and counts no references. It is loaded, or compiled, when it is first asked for its address.
    Each has a `name` of its own, since several may be made of one function, with other kernels in its closure.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.name = name
        function.__name__ = function.__qualname__ = name  # in the cache, and to the linker
        self.function = function
        self.arguments = function.__code__.co_argcount
        self.is_compiled: bool | None = None
        """Whether this process compiled it, because the cache did not have it; None before it is asked for."""
        self._address, self._made = 0, list[Any]()
        ENTRIES.append(self)

    @property
    def address(self) -> int:
        """Where the C function is. Two threads may ask for it at once, and get what does the same."""
        if not self._address:
            kept = objects.load(place(0), self.name) if _does_without_numba() else 0
            if kept:
                self.is_compiled = False
            self._address = kept or self._made_by_numba()
        return self._address

    def _made_by_numba(self) -> int:
        made = _compiler().entry(self.function)
        self._made.append(made)  # its code is there as long as it
        self.is_compiled = not made.cache_hits
        return int(made.address)

    def empty(self) -> Any:
        """The same, which is not compiled yet, and has no cache."""
        return _compiler().empty_entry(self.function)


def compiling(on_compile: Callable[[], None]) -> AbstractContextManager[None]:
    """Within this context, call `on_compile` once before the first kernel that is not in the cache is compiled."""
    return cast("AbstractContextManager[None]", _compiler().compiling(on_compile))


def compiled() -> int:
    """Return how many kernels this process compiled, once for each type, because the cache did not have them."""
    entries = sum(bool(each.is_compiled) for each in ENTRIES)
    return entries + sum(sum(each.stats.cache_misses.values()) for each in _made())


def loaded() -> int:
    """Return how many kernels this process has, once for each type: those of the cache, and those that it compiled."""
    entries = sum(each.is_compiled is False for each in ENTRIES)
    return compiled() + entries + sum(sum(each.stats.cache_hits.values()) for each in _made())


def _made() -> Iterator[Any]:
    return (each.made for each in KERNELS if each.is_made)


def kept_in() -> Path | None:
    """Return the directory in which the next process finds the kernels of this one; None if there is none."""
    found = _compiler().PLACE
    return found.directory if found.is_writable else None


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


def _does_without_numba() -> bool:
    """Whether it is not there yet, and would be set up as by default: object code was made so."""
    return (
        "numba" not in sys.modules
        and not any(name.startswith("NUMBA_") for name in os.environ)
        and not Path(FILE).exists()
    )


if not _does_without_numba():
    _compiler()  # it refuses what makes kernels wrong
