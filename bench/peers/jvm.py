"""What the peers on a JVM share: jars of a lock file, classes that `javac` makes once, and how they are started."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.worker.cases import Case
from bench.worker.contenders import Topics, asked_file
from tests.broker.base import Unavailable
from tests.broker.jars import (
    cache_directory,
    cached_jars,
    fetch_with_jgo,
    fetch_with_maven,
    locked_jars,
)
from tests.broker.java import OLDEST, find_java

LOCK = Path(__file__).with_name("kafka-streams-4.1.0.lock")
SOURCES = Path(__file__).with_name("java")
HEAP = "-Xmx2g"
WARM_S = 10.0
SIGTERM_STATUS = 143  # what a JVM ends with at SIGTERM, its hooks done
COMPILE_S_MAX = 120.0


def version(artifact: str) -> str:
    """What the lock file says."""
    (found,) = (jar.version for jar in locked_jars(LOCK) if jar.artifact == artifact)
    return found


def prepare() -> None:
    """Fetch the jars and compile the programs, where that is not done; raises `Unavailable`."""
    find_java()
    jars = cached_jars(locked_jars(LOCK), cache_directory(LOCK), (fetch_with_maven, fetch_with_jgo))
    if not (classes := _classes()).exists():
        _compile(jars, classes)


def command(main: str, case: Case, topics: Topics, directory: Path, *options: str) -> list[str]:
    """Start a class of `java/` with what it is asked to do, and with further arguments."""
    jars = cache_directory(LOCK)
    path = os.pathsep.join(map(str, (_classes(), jars / "*")))
    java = [find_java(), HEAP, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path]
    return [*java, main, asked_file(case, topics, directory), *options]


def _classes() -> Path:
    """Named by what they are made of."""
    digest = hashlib.sha256(LOCK.read_bytes())
    for source in sorted(SOURCES.glob("*.java")):
        digest.update(source.read_bytes())
    jars = cache_directory(LOCK)
    return jars.with_name(f"{jars.name}-classes-{digest.hexdigest()[:12]}")


def _compile(jars: list[Path], classes: Path) -> None:
    """In a directory of its own, which is renamed when all is compiled."""
    staging = Path(tempfile.mkdtemp(prefix=".compile-", dir=classes.parent))
    try:
        done = subprocess.run(
            [
                *(_javac(), "--release", str(OLDEST), "-Xlint:all,-processing", "-Werror"),
                *("-cp", os.pathsep.join(map(str, jars)), "-d", str(staging / "classes")),
                *map(str, sorted(SOURCES.glob("*.java"))),
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMPILE_S_MAX,
        )
        if done.returncode:
            raise SystemExit(f"bench/peers/java does not compile:\n{done.stdout}{done.stderr}")
        (staging / "classes").rename(classes)
    finally:
        shutil.rmtree(staging)


def _javac() -> str:
    """JAVA_HOME's, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=os.path.join(home, "bin")) if home else None  # noqa: PTH118 (a search path)
    if not (javac := found or shutil.which("javac")):
        raise Unavailable(
            f"no javac, neither JAVA_HOME's nor on PATH: install a JDK {OLDEST} or newer"
        )
    return javac
