"""What every rung of the ladder shares: the brokers' protocols, settings, ports and waiting.

A rung that cannot be used raises `Unavailable` with its reason, which ends up in front of the
developer: it says what was tried, what happened and what to do.
"""

import base64
import random
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "num.partitions": "4",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",  # asked for when a share group is deleted
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",  # take-over tests need short sessions
    # After a kill the controller lets the broker in again when its last session has ended.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "metadata.max.idle.interval.ms": "0",  # else it writes twice a second: a third of what an idle one takes
    "log.retention.hours": "-1",  # events with old timestamps must not vanish under a test
    "log.cleaner.dedupe.buffer.size": str(2 << 20),  # else it alone takes 128 MiB of the heap
    "log.cleaner.backoff.ms": "500",
}

# Below the ephemeral ports of Linux and macOS: a client that reconnects to a dead broker's
# ephemeral port can be given that very port, connect to itself, and keep the broker from it.
PORTS = range(20_000, 32_000)

# How long anything is waited for that comes, if all is well. Where compiled kernels are not found, a worker is busy for
# a minute first, and for some on a busy machine.
DEADLINE_S = 300.0

T = TypeVar("T")


class Unavailable(Exception):  # noqa: N818 (it is a state of the machine, not a fault)
    """A rung of the ladder gives no broker here; the message says why."""


class Broker(Protocol):
    """A Kafka cluster that tests may create topics on."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients."""

    @property
    def owned(self) -> bool:
        """Whether the tests started it, and so may do with it what they like."""

    def close(self) -> None:
        """Be done with it: one of ours ends and its data go. May be called twice."""


class OwnedBroker(Broker, Protocol):
    """A single broker of our own; port and data outlive stop and kill, until `close`."""

    def start(self) -> None:
        """Start it if it is down; returns when it answers."""

    def stop(self) -> None:
        """Shut it down as an operator would."""

    def kill(self) -> None:
        """Take it away without a chance to say goodbye (SIGKILL)."""

    def pause(self) -> None:
        """Freeze it: connections stay open, and nothing answers."""

    def resume(self) -> None:
        """Let it go on after `pause`."""


def free_ports(count: int) -> list[int]:
    """Choose `count` different ports that nobody listens on."""
    with ExitStack() as held:
        ports: list[int] = []
        for port in random.sample(PORTS, k=len(PORTS)):
            listener = held.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise Unavailable(f"no {count} free ports in {PORTS.start}-{PORTS.stop - 1}: end some servers")


def random_cluster_id() -> str:
    """Draw 128 bits in Kafka's base64; never one that looks like an option."""
    return "K" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


def client_config(bootstrap_servers: str) -> dict[str, Any]:
    """Return settings for a client whose broker may be down: it tries again soon, and logs nothing until then."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }


def admin_client(bootstrap_servers: str) -> AdminClient:
    """Make a client that looks at the cluster."""
    return AdminClient(client_config(bootstrap_servers))


def answers(client: AdminClient) -> bool:
    """Whether a broker is there and serves: in its own metadata it is listed as alive."""
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False


def wait_until(condition: Callable[[], T], deadline_s: float, otherwise: Callable[[], str]) -> T:
    """Return the first true value of `condition`; TimeoutError saying `otherwise()`."""
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{otherwise()} (waited {deadline_s:g} s)")
        time.sleep(0.05)
    return value
