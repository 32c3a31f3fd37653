"""A broker as a process, Kafka's jars on a Java: rung 3 of the ladder.

It runs in a session of its own, so that Ctrl-C reaches pytest alone, and on a leash (see `leash`),
so that it ends with pytest however that ends. Data and log are in a temporary directory. A version
that needs ZooKeeper has one of its own beside it, which the broker's stops and kills do not touch.
"""

import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

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
from tests.broker.classes import shared_classes
from tests.broker.jars import jars_of
from tests.broker.java import find_java
from tests.broker.leash import accounted, on_leash
from tests.broker.versions import FEATURE, Kafka, wanted
from tests.broker.zookeeper import SESSION_MS, ZooKeeper

LOG4J = Path(__file__).with_name("log4j.properties")
LOG_TAIL_LINES = 20
QUICK_TO_START = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
)  # with 60 % of the processor's time
NODE = 1
_TOPIC = re.compile(r"(.+)-\d+")
# What brokers do not know that have a ZooKeeper in the place of controllers.
OF_CONTROLLERS = ("process.roles", "node.id", "controller.listener.names", "broker.", "metadata.")


class ProcessBroker:
    """One node, broker and controller where the version has those; made by `process_broker`, down until `start`.

    Its data and its log are below `directory`, or where temporary files are.
    """

    owned = True

    def __init__(
        self,
        kafka: Kafka,
        options: Sequence[str] = QUICK_TO_START,
        directory: Path | None = None,
    ) -> None:
        java, paths = find_java(), jars_of(kafka.lock)
        jars = ":".join(map(str, paths))
        if options == QUICK_TO_START and kafka.has_controllers:
            options = (*options, *shared_classes(java, paths, partial(_archive_classes, kafka)))
        port, self._controller_port = free_ports(2)
        self.kafka = kafka
        self.bootstrap_servers = f"127.0.0.1:{port}"
        log4j = [f"-Dlog4j.configuration={LOG4J.as_uri()}", "-Dlog4j2.level=WARN"]
        self._java = [java, *options, "-Xmx1g", *log4j, "-cp", jars]
        self._directory = Path(tempfile.mkdtemp(prefix="streamdedup-broker-", dir=directory))
        self._properties = self._directory / "server.properties"
        self._log = self._directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._zookeeper: ZooKeeper | None = None
        if not kafka.has_controllers:
            self._zookeeper = ZooKeeper([java, *log4j, "-cp", jars], self._controller_port)
        self.configure(self._first_settings())

    @property
    def controller(self) -> str:
        """`host:port` of its controller, or of its ZooKeeper."""
        return f"127.0.0.1:{self._controller_port}"

    @property
    def settings(self) -> dict[str, str]:
        """What is configured."""
        return dict(line.split("=", 1) for line in self._properties.read_text().splitlines())

    def configure(self, settings: Mapping[str, object]) -> None:
        """Take `settings` in place of all that is configured; before `format`."""
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    @property
    def data_directory(self) -> Path:
        """The directory of its logs: to be copied, or put back, while it is down."""
        return self._directory / "data"

    def format(self, cluster_id: str | None = None) -> None:
        """Prepare the data directory; once, before the first start."""
        if self._zookeeper is not None:
            return
        command = [*self._java, "kafka.tools.StorageTool", "format"]
        command += ["-t", cluster_id or random_cluster_id(), "-c", str(self._properties)]
        if self.kafka.transaction_version is not None:
            command += ["--feature", f"{FEATURE}={self.kafka.transaction_version}"]
        with self._log.open("ab") as log, accounted():
            status = subprocess.run(
                command,
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
        wait_until(
            lambda: self._runs() and answers(client) and self._knows_its_topics(client),
            DEADLINE_S,
            self._silence,
        )

    def launch(self) -> None:
        """Start it if it is down, without waiting for it: a node may need others to answer."""
        if self._zookeeper is not None:
            self._zookeeper.start()
        if self._process is None:
            command = [*self._java, "kafka.Kafka", str(self._properties)]
            self._process = on_leash(self._directory, command, self._log)

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
        if self._zookeeper is not None:
            self._zookeeper.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            with self._process as process:
                process.send_signal(number)
                process.wait(DEADLINE_S)
            self._process = None

    def has_logged(self, text: str) -> bool:
        """Whether a line of its log has `text`."""
        return text in self._log.read_text(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the broker is down"
        self._process.send_signal(number)

    def _runs(self) -> bool:
        if self._process is None or self._process.poll() is None:
            return True
        tail = self._log_tail()
        if not self._is_remembered(tail):
            raise Unavailable(f"Kafka's jars: the broker ended{tail}")
        self._log.unlink()
        self._end(signal.SIGTERM)
        self.launch()
        return False

    def _knows_its_topics(self, client: AdminClient) -> bool:
        """Whether it leads what is in its data: with ZooKeeper it answers before it has been told so."""
        if self._zookeeper is None:
            return True
        found = (_TOPIC.fullmatch(path.name) for path in self.data_directory.iterdir())
        try:
            listed = client.list_topics(timeout=1).topics
        except KafkaException:
            return False
        led = {
            name
            for name, topic in listed.items()
            if all(partition.leader == NODE for partition in topic.partitions.values())
        }
        return {match[1] for match in found if match} <= led

    def _is_remembered(self, log: str) -> bool:
        """Whether ZooKeeper let it not in, since the session of a life before, which was killed, has not ended yet."""
        return self._zookeeper is not None and "KeeperErrorCode = NodeExists" in log

    def _first_settings(self) -> dict[str, object]:
        own = f"PLAINTEXT://{self.bootstrap_servers}"
        settings: dict[str, object] = {
            **SETTINGS,
            "listeners": own,
            "advertised.listeners": own,
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.data_directory,
        }
        if self._zookeeper is None:
            return settings | {
                "listeners": f"{own},CONTROLLER://{self.controller}",
                "controller.quorum.voters": f"{NODE}@{self.controller}",
            }
        known = {k: v for k, v in settings.items() if not k.startswith(OF_CONTROLLERS)}
        return known | {
            "broker.id": NODE,
            "zookeeper.connect": self.controller,
            "zookeeper.session.timeout.ms": SESSION_MS,
        }

    def _silence(self) -> str:
        return f"the broker does not answer{self._log_tail()}"

    def _log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "; its log ends:\n" + "\n".join(lines[-LOG_TAIL_LINES:])


def _archive_classes(kafka: Kafka, path: Path) -> None:
    """Make an archive of the classes that a broker loads until it answers."""
    broker = ProcessBroker(kafka, (*QUICK_TO_START, f"-XX:ArchiveClassesAtExit={path}"))
    with closing(broker):
        broker.format()
        path.unlink(missing_ok=True)  # of the classes that formatting takes
        broker.start()
        broker.stop()


def process_broker(
    options: Sequence[str] = QUICK_TO_START, directory: Path | None = None
) -> ProcessBroker:
    """Start a new broker of the wanted version, with these options of Java's; raises `Unavailable`."""
    broker = ProcessBroker(wanted(), options, directory)
    try:
        broker.format()
        broker.start()
    except BaseException as error:
        broker.close()
        if isinstance(error, TimeoutError | subprocess.TimeoutExpired):
            raise Unavailable(f"Kafka's jars: {error}") from error
        raise
    return broker
