"""A broker as a process, Kafka's jars on a Java: rung 3 of the ladder.

It runs in a session of its own, so that Ctrl-C reaches pytest alone, and on a leash (see `leash`),
so that it ends with pytest however that ends. Data and log are in a temporary directory.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

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
from tests.broker.jars import (
    cache_directory,
    cached_jars,
    fetch_with_jgo,
    fetch_with_maven,
    locked_jars,
)
from tests.broker.java import find_java

LEASH = Path(__file__).with_name("leash.py")
LOG_TAIL_LINES = 20
QUICK_TO_START = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
)  # with 60 % of the processor's time


class ProcessBroker:
    """One node, broker and controller; made by `process_broker`, down until `start`."""

    owned = True

    def __init__(
        self, java: str, jars: Sequence[Path], options: Sequence[str] = QUICK_TO_START
    ) -> None:
        port, controller_port = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._java = [java, *options, "-Xmx1g", "-Dlog4j2.level=WARN"]
        self._java += ["-cp", ":".join(map(str, jars))]
        self._directory = Path(tempfile.mkdtemp(prefix="streamdedup-broker-"))
        self._properties = self._directory / "server.properties"
        self._log = self._directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            **SETTINGS,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "log.dirs": self.data_directory,
        }
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))

    @property
    def data_directory(self) -> Path:
        """The directory of its logs: to be copied, or put back, while it is down."""
        return self._directory / "data"

    def format(self) -> None:
        """Prepare the data directory; once, before the first start."""
        command = [*self._java, "kafka.tools.StorageTool", "format", "--standalone"]
        with self._log.open("ab") as log:
            status = subprocess.run(
                [*command, "-t", random_cluster_id(), "-c", str(self._properties)],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=DEADLINE_S,
            ).returncode
        if status:
            raise Unavailable(f"Kafka's jars: formatting the data failed{self._log_tail()}")

    def start(self) -> None:
        """Start it if it is down; `Unavailable` if it ends or does not answer in time."""
        self.launch()
        client = admin_client(self.bootstrap_servers)
        wait_until(lambda: self._runs() and answers(client), DEADLINE_S, self._silence)

    def launch(self) -> None:
        """Start it if it is down, without waiting for it: a node may need others to answer."""
        if self._process is None:
            command = [*self._java, "kafka.Kafka", str(self._properties)]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, str(LEASH), str(self._directory), *command],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def stop(self) -> None:
        """SIGTERM, and wait until it is down."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, which the leash gives it."""
        self._end(signal.SIGUSR1)

    def pause(self) -> None:
        """SIGSTOP, and wait until it stands still: the leash passes it on, and until then it answers."""
        self._signal(signal.SIGUSR2)
        if self._process is not None:
            leash = psutil.Process(self._process.pid)
            wait_until(
                lambda: all(each.status() == psutil.STATUS_STOPPED for each in leash.children()),
                DEADLINE_S,
                lambda: "the broker goes on",
            )

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Let go of the leash, which kills it, and remove its data."""
        if self._process is not None:
            with self._process:
                pass
            self._process = None
        shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            with self._process as process:
                process.send_signal(number)
                process.wait(DEADLINE_S)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the broker is down"
        self._process.send_signal(number)

    def _runs(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise Unavailable(f"Kafka's jars: the broker ended{self._log_tail()}")
        return True

    def _silence(self) -> str:
        return f"the broker does not answer{self._log_tail()}"

    def _log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "; its log ends:\n" + "\n".join(lines[-LOG_TAIL_LINES:])


def process_broker(options: Sequence[str] = QUICK_TO_START) -> ProcessBroker:
    """Start a new broker, with these options of Java's; raises `Unavailable`."""
    java = find_java()
    fetchers = (fetch_with_maven, fetch_with_jgo)
    jars = cached_jars(locked_jars(), cache_directory(), fetchers)
    broker = ProcessBroker(java, jars, options)
    try:
        broker.format()
        broker.start()
    except BaseException as error:
        broker.close()
        if isinstance(error, TimeoutError | subprocess.TimeoutExpired):
            raise Unavailable(f"Kafka's jars: {error}") from error
        raise
    return broker
