"""The stack of deploy/compose.yaml, built and started by whichever compose command is there, under a name of its own.

What compose does not tell of its containers, the engine at DOCKER_HOST does.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.broker.base import Unavailable, free_ports, wait_until
from tests.broker.topics import committed, read_all

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "deploy" / "compose.yaml"
IMAGE = "streamdedup:test"
BASE = "STREAMDEDUP_TEST_BASE"
HOW_TO_GET_COMPOSE = "install Docker's plugin `compose`, or `docker-compose`"
BUILD_S, COMMAND_S, WAIT_S = 900.0, 180.0, 60.0
STOP_S = 40  # as stop_grace_period


class Stack:
    """A broker and a worker; `worker` and `kafka` are the engine's containers."""

    source, sink, group = "events", "events-unique", "dedup"  # as deploy/dedup.yaml has them

    def __init__(self) -> None:
        port, metrics_port = free_ports(2)
        self.bootstrap = f"localhost:{port}"
        self._project = f"streamdedup-test-{uuid.uuid4().hex[:8]}"
        self._environ = {
            "KAFKA_PORT": str(port),
            "METRICS_PORT": str(metrics_port),
            "STREAMDEDUP_IMAGE": IMAGE,
        }
        self._engine = engine()

    def compose(self, *arguments: str, within_s: float = COMMAND_S) -> str:
        """Run the compose command on the stack; what it printed."""
        done = subprocess.run(
            [
                *compose_command(),
                "--project-name",
                self._project,
                "--file",
                COMPOSE_FILE,
                *arguments,
            ],
            env={**os.environ, **self._environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=within_s,
        )
        assert done.returncode == 0, f"compose {arguments[0]}: {done.stdout[-4000:]}"
        return done.stdout

    def container(self, service: str) -> Any:
        """The one container of a service, stopped ones included."""
        labels = [
            f"com.docker.compose.project={self._project}",
            f"com.docker.compose.service={service}",
        ]
        (found,) = self._engine.containers.list(all=True, filters={"label": labels})
        return found

    @property
    def worker(self) -> Any:
        """The container of the worker, as it is now."""
        return self.container("worker")

    def log(self, name: str) -> list[dict[str, Any]]:
        """The lines of one event in the worker's log, over all of its lives."""
        *lines, _ = self.worker.logs().decode().split("\n")  # the last may still be written
        parsed = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in parsed if line["event"] == name]

    def wait_for(self, name: str, count: int) -> None:
        """Wait until the worker's log has `count` lines of an event."""
        wait_until(
            lambda: len(self.log(name)) >= count,
            WAIT_S,
            lambda: f"no {count} {name} in: {self.worker.logs(tail=30).decode()}",
        )

    def catch_up(self) -> None:
        """Wait until the group has committed the end of the input."""
        ends = {r.partition: r.offset + 1 for r in read_all(self.bootstrap, self.source)}
        wait_until(
            lambda: committed(self.bootstrap, self.group, self.source).items() >= ends.items(),
            WAIT_S,
            lambda: f"not at {ends}; log: {self.worker.logs(tail=30).decode()}",
        )


@contextmanager
def running_stack() -> Iterator[Stack]:
    """Build the image, start broker and worker, and remove them, their network and their volumes."""
    stack = Stack()
    options = [f"--build-arg={name}={value}" for name, value in build_arguments().items()]
    stack.compose("build", *options, "worker", within_s=BUILD_S)
    try:
        stack.compose("up", "--detach")
        yield stack
    except AssertionError:
        print(stack.compose("logs"))  # pytest shows it with the failure
        raise
    finally:
        stack.compose("down", "--volumes", "--timeout", "0")


def build_arguments() -> Mapping[str, str]:
    """The base image that the environment names, and the index of packages that this Python's pip has."""
    asked = [sys.executable, "-m", "pip", "config", "list"]
    told = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout
    indexes = dict(re.findall(r"\.((?:extra-)?index-url)='(.+)'", told))
    arguments = {f"PIP_{name.upper().replace('-', '_')}": url for name, url in indexes.items()}
    return {**arguments, **({"BASE": base} if (base := os.environ.get(BASE)) else {})}


def compose_command() -> list[str]:
    """The compose command that runs here; raises `Unavailable`."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            asked = subprocess.run([*command, "version"], check=False, capture_output=True)
            if asked.returncode == 0:
                return command
    raise Unavailable(f"no compose command works here; {HOW_TO_GET_COMPOSE}")


def engine() -> Any:
    """The client of the engine at DOCKER_HOST, or of Docker's own on this machine."""
    from testcontainers.core.docker_client import DockerClient

    return DockerClient().client
