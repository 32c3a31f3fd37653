"""A loop by hand in Java: Kafka's own client and a HashSet, a transaction for each batch that a poll gives."""

from functools import partial

from bench.peers import jvm
from bench.peers.peer import Peer

JAVA_CLIENT = Peer(
    name="java-client",
    what="plain Java client and a HashSet",
    command=partial(jvm.command, ["PlainClient"]),
    seconds_max=20.0,
    warm_s=jvm.WARM_S,
    end_status=(jvm.SIGTERM_STATUS,),
    version=jvm.version("kafka-clients"),
    guarantee="exactly once; its set is gone after a restart",
    configured="a transaction for each poll of at most 20,000 events, batches of 128 KiB, a heap of 2 GiB",
    prepare=jvm.prepare,
)
