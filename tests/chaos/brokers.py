"""Brokers to be harmed: one with a second way in, that leads through a proxy, and three that replicate.

They are processes (rung 3 of the ladder): the oracle reads their log files, and the proxy's address is theirs to tell.
"""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tests.broker.base import (
    DEADLINE_S,
    Unavailable,
    admin_client,
    free_ports,
    random_cluster_id,
    wait_until,
)
from tests.broker.jars import (
    cache_directory,
    cached_jars,
    fetch_with_jgo,
    fetch_with_maven,
    locked_jars,
)
from tests.broker.java import find_java
from tests.broker.process import ProcessBroker

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

    @property
    def settings(self) -> dict[str, str]:
        """What is configured."""
        return dict(line.split("=", 1) for line in self._properties.read_text().splitlines())

    def configure(self, settings: Mapping[str, object]) -> None:
        """Take `settings` in place of all that is configured; before `format`."""
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

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

    def format_as(self, cluster_id: str) -> None:
        """Prepare the data directory of a voter that the settings name."""
        command = [*self._java, "kafka.tools.StorageTool", "format"]
        with self._log.open("ab") as log:
            status = subprocess.run(
                [*command, "-t", cluster_id, "-c", str(self._properties)],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=DEADLINE_S,
            ).returncode
        if status:
            raise Unavailable(f"Kafka's jars: formatting the data failed{self._log_tail()}")


class ProxiedBroker:
    """One node. Who bootstraps at `proxy_port` is told to stay there; a proxy has to lead from there to `way_in`."""

    def __init__(self) -> None:
        self.node = _node()
        self.nodes = [self.node]
        self.bootstrap_servers = self.node.bootstrap_servers
        self.proxy_port, self.way_in = free_ports(2)
        own = self.node.settings
        proxied = f"PROXIED://127.0.0.1:{self.proxy_port}"
        self.node.configure(
            {
                **own,
                **CHAOS_SETTINGS,
                "listeners": f"{own['listeners']},PROXIED://127.0.0.1:{self.way_in}",
                "advertised.listeners": f"{own['advertised.listeners']},{proxied}",
                "listener.security.protocol.map": (
                    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT"
                ),
            }
        )
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
        controllers = [node.settings["controller.quorum.bootstrap.servers"] for node in self.nodes]
        voters = ",".join(f"{number}@{at}" for number, at in enumerate(controllers, 1))
        cluster_id = random_cluster_id()
        try:
            for number, node in enumerate(self.nodes, 1):
                node.limit_heap("320m")
                settings = {**node.settings, **CHAOS_SETTINGS, **_REPLICATED, "node.id": number}
                del settings[
                    "controller.quorum.bootstrap.servers"
                ]  # it is for voters that join later
                node.configure({**settings, "controller.quorum.voters": voters})
                node.format_as(cluster_id)
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
    fetchers = (fetch_with_maven, fetch_with_jgo)
    return Node(find_java(), cached_jars(locked_jars(), cache_directory(), fetchers))
