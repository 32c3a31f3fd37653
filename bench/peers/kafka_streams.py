"""Kafka Streams with a store of the keys it has seen, in memory or in RocksDB, and the store's changelog."""

from collections.abc import Sequence
from functools import partial

from bench.peers import jvm
from bench.peers.peer import Peer

TUNED = "`max.poll.records` 10,000, batches of 128 KiB"


def _peer(options: Sequence[str], what: str, keeps: str, clients: str = TUNED) -> Peer:
    return Peer(
        name="-".join(("kafka-streams", *options)),
        what=what,
        command=partial(jvm.command, ["StreamsDedup", *options]),
        seconds_max=20.0,
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


MEMORY = _peer(["memory"], "Kafka Streams, store in memory", "an in-memory key-value store")
ROCKSDB = _peer(["rocksdb"], "Kafka Streams, store in RocksDB", "a persistent key-value store")
DEFAULTS = _peer(
    ["rocksdb", "defaults"],
    "Kafka Streams, store in RocksDB, clients as they come",
    "a persistent key-value store",
    "all else of its clients by default",
)
