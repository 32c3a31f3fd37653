"""Kafka Streams as its own documentation has it: jars of a lock file, a program that `javac` compiles once."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.worker.cases import Case
from bench.worker.contenders import Contender, Topics, asked_file
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
TUNED = "`max.poll.records` 10,000, batches of 128 KiB"


@dataclass(frozen=True, kw_only=True)
class Peer(Contender):
    """A contender that is fetched first. `guarantee` and `configured` are phrases for the page."""

    judges: bool = True
    seconds_max: float = 20.0
    version: str
    guarantee: str
    configured: str


def code_id() -> str:
    """Return a digest of this module, the lock and the program: peers are measured again if it changes."""
    digest = hashlib.sha256()
    for path in (Path(__file__), LOCK, *sorted(SOURCES.glob("*.java"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def prepare() -> None:
    """Fetch the jars and compile the program, unless that is done; raises `Unavailable`."""
    find_java()
    jars = cached_jars(locked_jars(LOCK), cache_directory(LOCK), (fetch_with_maven, fetch_with_jgo))
    if not (classes := _classes()).exists():
        _compile(jars, classes)


def find_javac() -> str:
    """JAVA_HOME's compiler, else the PATH's; raises `Unavailable`."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=os.path.join(home, "bin")) if home else None  # noqa: PTH118 (a search path)
    if not (compiler := found or shutil.which("javac")):
        raise Unavailable(
            f"no javac, neither JAVA_HOME's nor on PATH: install a JDK {OLDEST} or newer"
        )
    return compiler


def _command(options: Sequence[str], case: Case, topics: Topics, directory: Path) -> list[str]:
    jars = cache_directory(LOCK)
    path = os.pathsep.join(map(str, (_classes(), jars / "*")))
    java = [find_java(), HEAP, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path]
    return [*java, "StreamsDedup", asked_file(case, topics, directory), *options]


def _classes() -> Path:
    """Named by what they are made of."""
    jars = cache_directory(LOCK)
    return jars.with_name(f"{jars.name}-classes-{code_id()}")


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


def _peer(options: Sequence[str], what: str, store: str, clients: str = TUNED) -> Peer:
    """Return Kafka Streams with a store of the keys it has seen, and the store's changelog."""
    (version,) = (jar.version for jar in locked_jars(LOCK) if jar.artifact == "kafka-streams")
    return Peer(
        name="-".join(("kafka-streams", *options)),
        what=f"Kafka Streams, store in {what}",
        command=partial(_command, options),
        warm_s=WARM_S,
        placed=False,
        end_status=(SIGTERM_STATUS,),
        version=version,
        guarantee="exactly once",
        configured=(
            f"a processor with {store} key-value store and its changelog, `exactly_once_v2`, `commit.interval.ms` 100,"
            f" 2 threads, {clients}, a heap of 2 GiB"
        ),
    )


PEERS = {
    peer.name: peer
    for peer in (
        _peer(["memory"], "memory", "an in-memory"),
        _peer(["rocksdb"], "RocksDB", "a persistent"),
        _peer(
            ["rocksdb", "defaults"],
            "RocksDB, clients as they come",
            "a persistent",
            "all else of its clients by default",
        ),
    )
}
