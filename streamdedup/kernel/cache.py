"""Where compiled kernels are kept.

To load a kernel is to run what its file holds: numba unpickles the index of a cache before it compares anything. So a
directory is used only if nobody but this user and root may write to it, or replace it (`others_may_write`). If several
processes lack a kernel, one compiles it, and the others wait until it is compiled, or until that process has ended.
"""

import fcntl
import hashlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple

from streamdedup.named_files import make_directory, others_may_write
from streamdedup.units import escaped

CACHE_ENV = "STREAMDEDUP_CACHE"

_log = logging.getLogger("streamdedup.kernel")
_DECORATORS = b"\n@kernel\n", b"\n@inlined\n"
_IMPORTS = re.compile(rb"from (streamdedup[\w.]*) import (\([^)]*\)|[^\n]*)")


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


def is_foreign(path: Path) -> bool:
    """Whether another user could have written the file."""
    return bool(others_may_write(path, up_to=path.parent))


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes the place of the one at `path`, with mode 0600, when the context ends well."""
    made = tempfile.NamedTemporaryFile(dir=path.parent, delete=False)  # mode 0600  # noqa: SIM115
    try:
        with made:
            yield made
        Path(made.name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(made.name).unlink()
        raise


def sources(package: Path) -> dict[str, bytes]:
    """The modules below `package` that kernels are made of, by name: no other source can change a kernel.

    These are the modules that define a kernel, and all that they import, directly or not. A package is imported with
    each of its modules, but counts only if a name is taken from its own `__init__`.
    """
    texts = {_module(path, package): path.read_bytes() for path in package.rglob("*.py")}
    found: dict[str, bytes] = {}
    waiting = [name for name, text in texts.items() if any(map(text.__contains__, _DECORATORS))]
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


@cache
def place(bounds_checked: int) -> CacheDirectory:
    """Return the place for these sources, this numba and Python, and whether numba checks bounds."""
    digest = hashlib.blake2b(_version_of_numba(), digest_size=8)
    for _, source in sorted(sources(Path(__file__).parents[1]).items()):
        digest.update(source)
    return cache_directory(f"{digest.hexdigest()}-{sys.implementation.cache_tag}-{bounds_checked}")


def _version_of_numba() -> bytes:
    """Return what states it: to import numba, or Python's own look-up of versions, takes longer than all else here."""
    spec = find_spec("numba")
    with suppress(OSError):  # then numba's own index of a cache, which states it, too, must do
        return Path((spec and spec.origin) or "numba").with_name("_version.py").read_bytes()
    return b""


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
                REPORTS.waits(directory)
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


LOCK, REPORTS = _Lock(), _Reports()


def report(place: CacheDirectory) -> None:
    """Log why the next process has to compile what this one does, too."""
    REPORTS.ignored(place)
    REPORTS.unused(place.unused)
