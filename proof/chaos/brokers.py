"""Brokers to be harmed: one alone, and three that replicate.

They are processes (rung 3 of the ladder): the oracle reads their log files.
"""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.broker.base import (
    DEADLINE_S,
    admin_client,
    random_cluster_id,
    wait_until,
)
from tests.broker.process import ProcessBroker
from tests.broker.versions import wanted

NODES = 3
CHAOS_SETTINGS = {
    # Transactions that are past their time-out are looked for this often; 10 s by default.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.max.session.timeout.ms": "60000",
}


class Brokers(Protocol):
    """A cluster of ours: what the scenarios harm, and where the oracle looks."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of each, for clients."""

    @property
    def nodes(self) -> Sequence["Node"]:
        """The brokers one by one."""

    def close(self) -> None:
        """End it and remove its data."""


class Node(ProcessBroker):
    """A broker whose settings and log files can be reached."""

    def log_of(self, topic: str, partition: int) -> Path:
        """The directory of a partition's log."""
        return self._directory / "data" / f"{topic}-{partition}"

    def limit_heap(self, size: str) -> None:
        """Give the JVM a heap of `size`, as in 256m; before `format`."""
        self._java = [f"-Xmx{size}" if part.startswith("-Xmx") else part for part in self._java]

    def end(self, number: signal.Signals) -> None:
        """SIGTERM or SIGKILL, and wait until it is down."""
        if number == signal.SIGTERM:
            self.stop()
        else:
            self.kill()


class OneBroker:
    """One node."""

    def __init__(self) -> None:
        self.node = _node()
        self.nodes = [self.node]
        self.bootstrap_servers = self.node.bootstrap_servers
        self.node.configure({**self.node.settings, **CHAOS_SETTINGS})
        try:
            self.node.format()
            self.node.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it and remove its data."""
        self.node.close()


class ThreeBrokers:
    """Three nodes, each broker and controller; internal topics have three replicas, of which two must answer."""

    def __init__(self) -> None:
        self.nodes = [_node() for _ in range(NODES)]
        self.bootstrap_servers = ",".join(node.bootstrap_servers for node in self.nodes)
        voters = ",".join(
            f"{number}@{node.controller}" for number, node in enumerate(self.nodes, 1)
        )
        cluster_id = random_cluster_id()
        try:
            for number, node in enumerate(self.nodes, 1):
                node.limit_heap("320m")
                own = {"node.id": number, "controller.quorum.voters": voters}
                node.configure({**node.settings, **CHAOS_SETTINGS, **_REPLICATED, **own})
                node.format(cluster_id)
                node.launch()
            for node in self.nodes:
                node.start()
            client = admin_client(self.bootstrap_servers)
            wait_until(
                lambda: len(client.list_topics(timeout=5).brokers) == NODES,
                DEADLINE_S,
                lambda: "not every broker has joined",
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all and remove their data."""
        for node in self.nodes:
            node.close()


_REPLICATED = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "min.insync.replicas": 2,
    "controlled.shutdown.enable": "true",
}


def _node() -> Node:
    return Node(wanted())
