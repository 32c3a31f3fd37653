"""The one way to numba: every compiled function of this package goes through `kernel`.

numba caches a function by its own source file only, so a change in a module it calls leaves the cache stale: our
cache directory is named by a digest of all of the package's sources. Where no directory is writable there is no cache.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])

_config: Any = numba.config  # its settings are made at run time, so no type checker knows them

CACHE_ENV = "STREAMDEDUP_CACHE"


def kernel(function: _Function) -> _Function:
    """Compile `function` without the GIL, on its first call for the types it is called with."""
    cache = _CACHE_DIRECTORY is not None
    outer = _config.CACHE_DIR
    _config.CACHE_DIR = str(_CACHE_DIRECTORY or outer)
    try:
        return cast("_Function", numba.njit(nogil=True, cache=cache)(function))
    finally:
        _config.CACHE_DIR = outer  # other users of numba in this process keep theirs


def cache_root() -> Path:
    """Where compiled kernels are kept: `$STREAMDEDUP_CACHE`, or the platform's cache directory."""
    if given := os.environ.get(CACHE_ENV):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "streamdedup"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamdedup"


def _cache_directory() -> Path | None:
    """A writable directory for this very source, numba, Python and bounds checking; None where there is none."""
    sources = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        sources.update(path.read_bytes())
    build = f"{numba.__version__}-{sys.implementation.cache_tag}-{_config.BOUNDSCHECK or 0}"
    try:
        directory = cache_root() / "kernels" / f"{sources.hexdigest()}-{build}"
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except (OSError, RuntimeError):  # read-only or full; RuntimeError: there is no home directory
        return None


_CACHE_DIRECTORY = _cache_directory()
