"""ZooKeeper as a process, from the jars of a version of Kafka that needs one."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.broker.leash import on_leash

TICK_MS = 500
SESSION_MS = 10_000  # a broker that was killed is let in again when its session has ended


class ZooKeeper:
    """A single server at `port` of the loopback interface; brokers that start earlier wait for it."""

    def __init__(self, java: Sequence[str], port: int) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="streamdedup-broker-zookeeper-"))
        self._command = [
            *java[:1],
            "-Xmx128m",
            *java[1:],
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(self._directory / "zookeeper.properties"),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "dataDir": self._directory / "data",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": TICK_MS,
            "admin.enableServer": "false",
        }
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self._directory / "zookeeper.properties").write_text(lines)

    def start(self) -> None:
        """Start it if it is down."""
        if self._process is None:
            log = self._directory / "zookeeper.log"
            self._process = on_leash(self._directory, self._command, log)

    def close(self) -> None:
        """Let go of the leash, which kills it, and remove its data."""
        if self._process is not None:
            with self._process:
                pass
            self._process = None
        shutil.rmtree(self._directory, ignore_errors=True)
