"""A broker in a container: rung 2 of the ladder.

It listens twice: on the port that clients are given, and on one that it can reach itself. Without
the second, plain produce works and transactions hang, as the broker verifies them over it.
"""

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.broker.base import (
    DEADLINE_S,
    SETTINGS,
    Unavailable,
    admin_client,
    answers,
    free_ports,
    random_cluster_id,
    wait_until,
)
from tests.broker.versions import wanted

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

IMAGE = "STREAMDEDUP_TEST_IMAGE"
FIRST = "3.7"  # of which there is an image
PING = """
from testcontainers.core.docker_client import DockerClient
docker = DockerClient()
docker.client.ping()
print(docker.host())
"""
PING_S = 60
LOG_TAIL_LINES = 20


class ContainerBroker:
    """A started container; its port on the host is fixed, so that a restart keeps it."""

    owned = True

    def __init__(self, container: "DockerContainer", bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._container = container
        self._closed = False

    def start(self) -> None:
        """Start the container again, with the data of its last life."""
        self._inner.start()
        self.wait_until_answering()

    def stop(self) -> None:
        """SIGTERM and wait; Docker kills what outlasts the time."""
        self._inner.stop(timeout=int(DEADLINE_S))

    def kill(self) -> None:
        """SIGKILL."""
        self._inner.kill()
        self._inner.wait(timeout=int(DEADLINE_S))

    def pause(self) -> None:
        """Freeze it: connections stay open, and nothing answers."""
        self._inner.pause()

    def resume(self) -> None:
        """Let it go on."""
        self._inner.unpause()

    def close(self) -> None:
        """Remove the container with its data."""
        if not self._closed:
            self._closed = True
            self._container.stop()

    def wait_until_answering(self) -> None:
        """Return when clients are served; an error has the end of the container's log."""
        client = admin_client(self.bootstrap_servers)
        wait_until(
            lambda: self._runs() and answers(client),
            DEADLINE_S,
            lambda: f"the broker does not answer{self._log_tail()}",
        )

    @property
    def _inner(self) -> Any:
        return self._container.get_wrapped_container()

    def _runs(self) -> bool:
        self._inner.reload()
        if self._inner.status == "exited":
            raise Unavailable(f"the broker ended{self._log_tail()}")
        return True

    def _log_tail(self) -> str:
        log: bytes = self._inner.logs(tail=LOG_TAIL_LINES)
        return "; its log ends:\n" + log.decode(errors="replace")


def image() -> str:
    """Name the image of the wanted version, unless another is given; `Unavailable` if there is none."""
    kafka = wanted()
    if given := os.environ.get(IMAGE):
        return given
    if not kafka.is_from(FIRST) or kafka.transaction_version is not None:
        raise Unavailable(f"Docker: no image of Kafka {kafka}")
    return f"apache/kafka:{kafka}"


def container_broker() -> ContainerBroker:
    """Start a new broker by Docker; raises `Unavailable`."""
    name = image()
    host = _docker_host()
    (port,) = free_ports(1)
    container = _container(name, host, port)
    try:
        container.start()
        broker = ContainerBroker(container, f"{host}:{port}")
        broker.wait_until_answering()
    except Exception as error:  # of requests, docker, testcontainers: all mean "not here"
        container.stop()
        raise Unavailable(f"Docker: image {name} gave no broker ({error})") from error
    return broker


def _docker_host() -> str:
    """Find the host of the containers' ports, if a daemon answers.

    In a process of its own: it can be timed, and the client leaks sockets where nobody answers.
    """
    try:
        asked = subprocess.run(
            [sys.executable, "-c", PING],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PING_S,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Docker: no daemon answers within {PING_S} s") from None
    if asked.returncode:
        raise Unavailable(f"Docker: no daemon answers ({asked.stderr.strip().splitlines()[-1]})")
    return asked.stdout.strip()


def _container(name: str, host: str, port: int) -> "DockerContainer":
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(name).with_bind_ports(port, port)
    settings = {
        **SETTINGS,
        "listeners": f"PLAINTEXT://:{port},BROKER://localhost:9094,CONTROLLER://localhost:9093",
        "advertised.listeners": f"PLAINTEXT://{host}:{port},BROKER://localhost:9094",
        "listener.security.protocol.map": ",".join(
            f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "BROKER", "CONTROLLER")
        ),
        "inter.broker.listener.name": "BROKER",
        "controller.quorum.voters": "1@localhost:9093",
    }
    for setting, value in settings.items():
        container.with_env(f"KAFKA_{setting.upper().replace('.', '_')}", value)
    container.with_env("CLUSTER_ID", random_cluster_id())
    return container.with_env("KAFKA_HEAP_OPTS", "-Xmx1g")
