"""What the peers on a JVM share: jars of a lock file, classes that `javac` makes once, and how they are started."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
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
    """Return the version that the lock file names."""
    (found,) = (jar.version for jar in locked_jars(LOCK) if jar.artifact == artifact)
    return found


def prepare() -> None:
    """Fetch the jars and compile the programs, unless that is done; raises `Unavailable`."""
    find_java()
    jars = cached_jars(locked_jars(LOCK), cache_directory(LOCK), (fetch_with_maven, fetch_with_jgo))
    if not (classes := _classes()).exists():
        _compile(jars, classes)


def command(program: Sequence[str], case: Case, topics: Topics, directory: Path) -> list[str]:
    """Return the command that runs a class of `java/`, the first of `program`, on a case; the rest are its options."""
    main, *options = program
    jars = cache_directory(LOCK)
    path = os.pathsep.join(map(str, (_classes(), jars / "*")))
    java = [find_java(), HEAP, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path]
    return [*java, main, asked_file(case, topics, directory), *options]


def find_javac() -> str:
    """JAVA_HOME's compiler, else the PATH's; raises `Unavailable`."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=os.path.join(home, "bin")) if home else None  # noqa: PTH118 (a search path)
    if not (compiler := found or shutil.which("javac")):
        raise Unavailable(
            f"no javac, neither JAVA_HOME's nor on PATH: install a JDK {OLDEST} or newer"
        )
    return compiler


def _classes() -> Path:
    """Named by what they are made of."""
    digest = hashlib.sha256(LOCK.read_bytes())
    for source in sorted(SOURCES.glob("*.java")):
        digest.update(source.read_bytes())
    jars = cache_directory(LOCK)
    return jars.with_name(f"{jars.name}-classes-{digest.hexdigest()[:12]}")


def _compile(jars: Sequence[Path], classes: Path) -> None:
    """In a directory of its own, which is renamed when all is compiled."""
    javac, staging = find_javac(), Path(tempfile.mkdtemp(prefix=".compile-", dir=classes.parent))
    command = [
        *(javac, "--release", str(OLDEST), "-d", str(staging / "classes")),
        *("-cp", os.pathsep.join(map(str, jars))),
        *map(str, sorted(SOURCES.glob("*.java"))),
    ]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=COMPILE_S_MAX
        )
        if done.returncode:
            raise Unavailable(f"javac failed: {done.stderr.strip() or done.stdout.strip()}")
        (staging / "classes").rename(classes)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"javac took more than {COMPILE_S_MAX:g} s") from error
    finally:
        shutil.rmtree(staging)
