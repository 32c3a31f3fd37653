"""Kafka Streams with a store of the keys it has seen, in memory or in RocksDB, and the store's changelog."""

from functools import partial
from pathlib import Path

from bench.peers import jvm
from bench.peers.peer import Peer
from bench.worker.cases import Case
from bench.worker.contenders import Topics


def _command(store: str, case: Case, topics: Topics, directory: Path) -> list[str]:
    return jvm.command("StreamsDedup", case, topics, directory, store)


def _peer(store: str, what: str, keeps: str) -> Peer:
    return Peer(
        name=f"kafka-streams-{store}",
        what=what,
        command=partial(_command, store),
        judges=True,
        seconds_max=20.0,
        warm_s=jvm.WARM_S,
        placed=False,
        end_status=(jvm.SIGTERM_STATUS,),
        version=jvm.version("kafka-streams"),
        guarantee="exactly once",
        configured=(
            f"a processor with {keeps} and its changelog, `exactly_once_v2`, `commit.interval.ms` 100, 2 threads,"
            " `max.poll.records` 10,000, batches of 128 KiB, a heap of 2 GiB"
        ),
        prepare=jvm.prepare,
    )


MEMORY = _peer("memory", "Kafka Streams, store in memory", "an in-memory key-value store")
ROCKSDB = _peer("rocksdb", "Kafka Streams, store in RocksDB", "a persistent key-value store")
