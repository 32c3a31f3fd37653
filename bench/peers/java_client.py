"""A loop by hand in Java: Kafka's own client and a HashSet, a transaction for each batch that a poll gives."""

from pathlib import Path

from bench.peers import jvm
from bench.peers.peer import Peer
from bench.worker.cases import Case
from bench.worker.contenders import Topics


def _command(case: Case, topics: Topics, directory: Path) -> list[str]:
    return jvm.command("PlainClient", case, topics, directory)


JAVA_CLIENT = Peer(
    name="java-client",
    what="plain Java client and a HashSet",
    command=_command,
    judges=True,
    seconds_max=20.0,
    warm_s=jvm.WARM_S,
    end_status=(jvm.SIGTERM_STATUS,),
    version=jvm.version("kafka-clients"),
    guarantee="exactly once; its set is gone after a restart",
    configured="a transaction for each poll of at most 20,000 events, batches of 128 KiB, a heap of 2 GiB",
    prepare=jvm.prepare,
)
