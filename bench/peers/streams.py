"""Kafka Streams as its own documentation has it: jars of a lock file, and a program that `javac` compiles."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.worker.cases import Case
from bench.worker.contenders import Contender, Topics
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
PROGRAM = Path(__file__).parent / "java" / "StreamsDedup.java"
HEAP = "-Xmx2g"
WARM_S = 10.0
SIGTERM_STATUS = 143  # what a JVM ends with at SIGTERM, its hooks done
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
    for path in (Path(__file__), LOCK, PROGRAM):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def prepare() -> None:
    """Fetch the jars, and compile the program; raises `Unavailable`."""
    find_java()
    jars = cached_jars(locked_jars(LOCK), cache_directory(LOCK), (fetch_with_maven, fetch_with_jgo))
    path = os.pathsep.join((f"{os.environ.get('JAVA_HOME', '')}/bin", os.environ["PATH"]))
    if not (javac := shutil.which("javac", path=path)):
        raise Unavailable(f"no javac of JAVA_HOME or PATH: install a JDK {OLDEST} or newer")
    command = [javac, "--release", str(OLDEST), "-d", str(_classes()), "-cp", _path(jars)]
    done = subprocess.run([*command, str(PROGRAM)], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"javac failed: {done.stderr.strip() or done.stdout.strip()}")


def _command(options: Sequence[str], case: Case, topics: Topics, directory: Path) -> list[str]:
    path = _path((_classes(), cache_directory(LOCK) / "*"))
    java = [find_java(), HEAP, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path]
    where = (topics.bootstrap, topics.group, topics.source, topics.sink)
    return [*java, "StreamsDedup", *where, case.written, str(directory / "state"), *options]


def _classes() -> Path:
    """Beside the jars."""
    jars = cache_directory(LOCK)
    return jars.with_name(f"{jars.name}-classes")


def _path(places: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, places))


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
