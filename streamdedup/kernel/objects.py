"""Entries as object code, which llvmlite links without numba.

A file has the digest of its own name and all that follows, the name of the C function, and the object as numba compiled
it; its own name follows from the machine. If it is missing, damaged, another's, or calls what this process does not
have, numba makes the entry: that is an error to the linker, which returns it, and no code is run.
"""

import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from streamdedup import forks
from streamdedup.kernel.cache import REPORTS, CacheDirectory, is_foreign, replacing
from streamdedup.native import STATE_AT, TYPE_AT

DIGEST_BYTES = 16
IS_TRIED = sys.platform == "linux"  # on macOS nobody has tried this

_lock = forks.lock(forks.COMPILER)
_linked: list[Any] = []  # code stays as long as these do
_numbers = count()  # to the linker, the name of each; it takes none twice


def load(place: CacheDirectory, name: str) -> int:
    """Return the address of an entry that is kept at the place; 0 if there is none to be trusted."""
    REPORTS.ignored(place)
    kept = _kept(_path(place.directory, name)) if place.directory and IS_TRIED else b""
    symbol, _, code = kept.partition(b"\n")
    return link(code, symbol.decode()) if code else 0


def keep(
    place: CacheDirectory,
    name: str,
    machine: tuple[str, str, str],
    made: Callable[[], tuple[str, bytes] | None],
) -> None:
    """Keep an entry, which numba made for `machine`, if the place can be written to and has none.

    `made` returns the name of its C function, and its object code, or None if it has none. Nothing is kept for another
    machine than this.
    """
    if place.directory and place.is_writable and IS_TRIED and machine == _target():
        path = _path(place.directory, name)
        if not _kept(path) and (found := made()):
            symbol, code = found
            content = symbol.encode() + b"\n" + code
            with suppress(OSError), replacing(path) as file:
                file.write(_digest(path, content) + content)


def _kept(path: Path) -> bytes:
    """Return the content of a file, without its digest; nothing if it is missing, damaged, or another user's."""
    with suppress(OSError):
        content = b"" if is_foreign(path) else path.read_bytes()
        if content[:DIGEST_BYTES] == _digest(path, content[DIGEST_BYTES:]):
            return content[DIGEST_BYTES:]
    return b""


def link(code: bytes, symbol: str) -> int:
    """Return the address of a function of an object; 0 if it cannot be linked."""
    from llvmlite.binding import JITLibraryBuilder

    made = JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(symbol)
    with _lock, suppress(RuntimeError):
        _linked.append(made.link(_linker(), str(next(_numbers))))
        return int(_linked[-1][symbol])
    return 0


def _digest(path: Path, content: bytes) -> bytes:
    """Return the digest of a file under its name: that of another entry is damage."""
    return hashlib.blake2b(path.name.encode() + b"\n" + content, digest_size=DIGEST_BYTES).digest()


def _path(directory: Path, name: str) -> Path:
    import llvmlite

    machine = repr((llvmlite.__version__, _target(), TYPE_AT, STATE_AT))
    return directory / f"{name}-{hashlib.blake2b(machine.encode(), digest_size=8).hexdigest()}.o"


@cache
def _target() -> tuple[str, str, str]:
    """Return the machine, as numba names it."""
    from llvmlite import binding

    features = binding.get_host_cpu_features().flatten()
    return binding.get_process_triple(), binding.get_host_cpu_name(), features


@cache
def _linker() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.create_lljit_compiler(suppress_errors=True)
