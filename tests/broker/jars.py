"""Jars of Kafka and of others: fetched once into a cache outside the repository, checked at every use.

The lock file names each jar and its SHA-256. A fetch goes to a directory of its own, which takes
the cache's place by a rename when every jar is right: a broken download is never used.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.broker.base import Unavailable
from tests.broker.versions import IMAGED, TOOLS_LOCK

CACHE = "STREAMDEDUP_CACHE"
FETCH_S = 600


@dataclass(frozen=True)
class Jar:
    """A line of the lock file: `group:artifact:version`, and `:type:classifier` of what is no plain jar."""

    group: str
    artifact: str
    version: str
    sha256: str
    type: str = "jar"
    classifier: str = ""

    @property
    def file_name(self) -> str:
        """The name that Maven gives it."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.{self.type}"

    @property
    def is_plain(self) -> bool:
        """Whether it is a jar as any other."""
        return self.type == "jar"


Fetcher = Callable[[Sequence[Jar], Path], None]
"""Puts the jars into a directory, or raises `Unavailable` (OSError, SubprocessError count too)."""


def locked_jars(lock: Path) -> list[Jar]:
    """Read a lock file."""
    jars = []
    for line in lock.read_text().splitlines():
        coordinate, sha256 = line.split()
        group, artifact, version, *kind = coordinate.split(":")
        jars.append(Jar(group, artifact, version, sha256, *kind))
    return jars


def cache_directory(lock: Path) -> Path:
    """Name the directory of a lock file's jars below `$STREAMDEDUP_CACHE` or the user's cache directory."""
    if given := os.environ.get(CACHE):
        root = Path(given)
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches" / "streamdedup"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamdedup"
    return root.absolute() / lock.stem


def jars_of(lock: Path) -> list[Path]:
    """Give the paths of a lock file's jars, after fetching those that are missing or wrong; raises `Unavailable`."""
    fetchers = (fetch_with_maven, fetch_with_jgo)
    return cached_jars(locked_jars(lock), cache_directory(lock), fetchers)


def cached_jars(jars: Sequence[Jar], cache: Path, fetchers: Sequence[Fetcher]) -> list[Path]:
    """Give the jars' paths in `cache`, after fetching if any is missing or wrong."""
    if not _all_right(jars, cache):
        try:
            cache.parent.mkdir(parents=True, exist_ok=True)
            staging = Path(tempfile.mkdtemp(prefix=".fetch-", dir=cache.parent))
        except OSError as error:
            raise Unavailable(
                f"Kafka's jars: no cache directory ({error}); set {CACHE} to one that can be made"
            ) from error
        try:
            _fetch(jars, staging / "jars", fetchers)
            _replace(jars, cache, staging)
        finally:
            shutil.rmtree(staging)
    return [cache / jar.file_name for jar in jars]


def _all_right(jars: Sequence[Jar], directory: Path) -> bool:
    return not any(_fault(jar, directory) for jar in jars)


def _fault(jar: Jar, directory: Path) -> str | None:
    path = directory / jar.file_name
    if not path.is_file():
        return f"{jar.file_name} is missing"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return None if digest == jar.sha256 else f"{jar.file_name} has the wrong checksum"


def _fetch(jars: Sequence[Jar], into: Path, fetchers: Sequence[Fetcher]) -> None:
    """Fill `into` by the first fetcher that brings every jar, each of them right."""
    reasons = []
    for fetch in fetchers:
        into.mkdir()
        try:
            fetch(jars, into)
        except (Unavailable, OSError, subprocess.SubprocessError) as error:
            reasons.append(str(error))
        else:
            faults = [fault for jar in jars if (fault := _fault(jar, into))]
            if not faults:
                return
            reasons.append(f"{faults[0]} after the download")
        shutil.rmtree(into)
    raise Unavailable(f"Kafka's jars: not fetched ({'; '.join(reasons)})")


def _replace(jars: Sequence[Jar], cache: Path, staging: Path) -> None:
    """Put the fetched directory in the cache's place, unless another session was quicker."""
    if cache.exists():
        cache.rename(staging / "broken")
    try:
        (staging / "jars").rename(cache)
    except OSError:
        if not _all_right(jars, cache):
            raise


def fetch_with_maven(jars: Sequence[Jar], into: Path) -> None:
    """By `mvn`, which knows the user's mirrors and proxies."""
    pom = into.with_name("pom.xml")
    plain = [jar for jar in jars if jar.is_plain]
    pom.write_text(POM.format(dependencies="".join(map(_dependency, plain))))
    if plain:
        run_maven(pom, ["dependency:copy-dependencies", f"-DoutputDirectory={into}"])
    for jar in (jar for jar in jars if not jar.is_plain):
        named = f"{jar.group}:{jar.artifact}:{jar.version}:{jar.type}:{jar.classifier}"
        run_maven(pom, ["dependency:copy", f"-Dartifact={named}", f"-DoutputDirectory={into}"])


def run_maven(pom: Path, goal: Sequence[str]) -> None:
    """Run a goal of `mvn` and its options; raises `Unavailable`."""
    maven = shutil.which("mvn")
    if not maven:
        raise Unavailable("no mvn on PATH")
    _run([maven, "-q", "-B", "-Dstyle.color=never", "-f", str(pom), *goal])


def fetch_with_jgo(jars: Sequence[Jar], into: Path) -> None:
    """By jgo from PyPI, which needs no Java; in a process of its own, so that it can be timed."""
    if others := [jar.file_name for jar in jars if not jar.is_plain]:
        raise Unavailable(f"jgo fetches jars only, and not {others[0]}: install Maven")
    coordinates = [f"{jar.group}:{jar.artifact}:{jar.version}" for jar in jars]
    _run([sys.executable, str(Path(__file__).with_name("jgo_fetch.py")), str(into), *coordinates])


def _run(command: Sequence[str]) -> None:
    run = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=FETCH_S,
    )
    if run.returncode:
        last_line = (run.stdout.strip().splitlines() or ["no output"])[-1]
        raise Unavailable(f"{Path(command[0]).name} failed: {last_line}")


POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>streamdedup</groupId><artifactId>test-broker</artifactId><version>1</version>
<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>
"""


def _dependency(jar: Jar) -> str:
    """Ask for the jar alone: the lock file lists what it needs, too."""
    return (
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version><exclusions><exclusion><groupId>*</groupId>"
        "<artifactId>*</artifactId></exclusion></exclusions></dependency>\n"
    )


def main(directory: Path) -> None:
    """Make a directory with all jars of which an image of a broker can be made."""
    directory.mkdir()
    for lock in (IMAGED.lock, TOOLS_LOCK):
        for jar in jars_of(lock):
            shutil.copy(jar, directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
