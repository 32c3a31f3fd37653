"""The classes that a broker loads, in an archive that Java maps: a start takes half of the processor's time with it.

A broker that starts and stops makes the archive, once for each Java and set of jars, into the cache that has the jars.
Where none can be made, as with a Java that knows no such archives, that is noted, and brokers start without.
"""

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.broker.base import Unavailable


def shared_classes(java: str, jars: Sequence[Path], make: Callable[[Path], None]) -> list[str]:
    """Return Java's options for the archive; none if there is none. `make` makes one at a path."""
    archive = jars[0].parent / f"classes-{_digest([Path(java).resolve(), *jars])}.jsa"
    with suppress(OSError), archive.with_suffix(".lock").open("w") as lock:  # a read-only cache
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _made(archive, make)
    there = archive.exists() and archive.stat().st_size
    return [f"-XX:SharedArchiveFile={archive}"] if there else []


def _made(archive: Path, make: Callable[[Path], None]) -> None:
    """Leave an empty file where none can be made: nobody tries again."""
    part = archive.with_suffix(f".{os.getpid()}")
    with suppress(Unavailable, TimeoutError, subprocess.TimeoutExpired):
        make(part)
    part.touch()
    part.replace(archive)


def _digest(files: Sequence[Path]) -> str:
    """Tell files apart as Java does, which takes an archive only with what it was made with."""
    digest = hashlib.blake2b(digest_size=8)
    for path in files:
        digest.update(f"{path} {path.stat().st_mtime_ns} {path.stat().st_size}\n".encode())
    return digest.hexdigest()
