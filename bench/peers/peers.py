"""All peers side by side: the command of each, what it promises, and how its own documentation would configure it."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.peers import jvm
from bench.peers.environment import Environment
from bench.worker.cases import Case
from bench.worker.contenders import Clock, Contender, Topics


@dataclass(frozen=True, kw_only=True)
class Peer(Contender):
    """A contender that is fetched first. `guarantee` and `configured` are phrases for the page.

    `prepare` fetches, compiles or installs what is not there yet; it raises `tests.broker.base.Unavailable`.
    """

    judges: bool = True
    seconds_max: float = 20.0
    version: str
    guarantee: str
    configured: str
    prepare: Callable[[], None]


BYTEWAX = Environment("bytewax", ("3.11", "3.12"))
QUIX = Environment("quixstreams", ("3.11", "3.12", "3.13", "3.14"))
TKATI = Environment("tkati-node-dedup", ("3.13", "3.14"))


def _kafka_streams(
    options: Sequence[str],
    what: str,
    keeps: str,
    clients: str = "`max.poll.records` 10,000, batches of 128 KiB",
) -> Peer:
    """Return Kafka Streams with a store of the keys it has seen, and the store's changelog."""
    return Peer(
        name="-".join(("kafka-streams", *options)),
        what=what,
        command=partial(jvm.command, ["StreamsDedup", *options]),
        warm_s=jvm.WARM_S,
        placed=False,
        end_status=(jvm.SIGTERM_STATUS,),
        version=jvm.version("kafka-streams"),
        guarantee="exactly once",
        configured=(
            f"a processor with {keeps} and its changelog, `exactly_once_v2`, `commit.interval.ms` 100, 2 threads,"
            f" {clients}, a heap of 2 GiB"
        ),
        prepare=jvm.prepare,
    )


def _quix_at_least_once(case: Case, topics: Topics, directory: Path) -> list[str]:
    return QUIX.command("quix", replace(case, guarantee="at_least_once"), topics, directory)


_QUIX = Peer(
    name="quix-streams",
    what="Quix Streams, exactly once",
    command=partial(QUIX.command, "quix"),
    placed=False,
    version=QUIX.version(),
    guarantee="exactly once",
    configured="one process, a state by key in RocksDB with a changelog, a checkpoint every 100 ms",
    prepare=QUIX.prepare,
)
_ALL = (
    _kafka_streams(["memory"], "Kafka Streams, store in memory", "an in-memory key-value store"),
    _kafka_streams(["rocksdb"], "Kafka Streams, store in RocksDB", "a persistent key-value store"),
    _kafka_streams(
        ["rocksdb", "defaults"],
        "Kafka Streams, store in RocksDB, clients as they come",
        "a persistent key-value store",
        "all else of its clients by default",
    ),
    Peer(
        name="java-client",
        what="plain Java client and a HashSet",
        command=partial(jvm.command, ["PlainClient"]),
        warm_s=jvm.WARM_S,
        end_status=(jvm.SIGTERM_STATUS,),
        version=jvm.version("kafka-clients"),
        guarantee="exactly once; its set is gone after a restart",
        configured="a transaction for each poll of at most 20,000 events, batches of 128 KiB, a heap of 2 GiB",
        prepare=jvm.prepare,
    ),
    Peer(
        name="tkati-node-dedup",
        what="tkati-node-dedup",
        command=partial(TKATI.command, "tkati"),
        seconds_max=15.0,
        placed=False,
        version=TKATI.version(),
        guarantee="at least once; a key is forgotten after 3 to 4 hours, some at a kill",
        configured="batches of 20,000 events, a window of 3 hours; the key is the field of the JSON value, the only one"
        " that it knows, and it writes value and timestamp anew",
        prepare=TKATI.prepare,
    ),
    Peer(
        name="bytewax",
        what="Bytewax",
        command=partial(BYTEWAX.command, "bytewax_flow"),
        placed=False,
        clock=Clock.OUTPUT,
        version=BYTEWAX.version(),
        guarantee="none over a restart: it commits nothing, its sets are gone",
        configured="one worker, a set for each partition as the state of a step, batches of 1,000 events, no recovery;"
        " how far it is is taken from its output",
        prepare=BYTEWAX.prepare,
    ),
    _QUIX,
    replace(
        _QUIX,
        name="quix-streams-at-least-once",
        what="Quix Streams, at least once",
        command=_quix_at_least_once,
        guarantee="at least once",
    ),
)
PEERS: dict[str, Peer] = {peer.name: peer for peer in _ALL}


def code_id() -> str:
    """Return a digest of all files of this package: the peers are measured again if it changes."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(here.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(here)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
