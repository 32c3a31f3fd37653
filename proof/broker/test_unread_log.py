"""A worker whose log nobody reads, on a real broker: its standard error is a full pipe, as of a stuck log driver."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.broker.base import DEADLINE_S, Broker, free_ports, wait_until
from tests.broker.topics import GroupOffsets, read_all
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.logs.pipes import Pipe


@contextmanager
def running(deployment: Deployment, pipe: Pipe) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker that logs to the pipe; killed at the end unless it has ended itself."""
    command = [sys.executable, "-m", "streamdedup", "run", "-c", str(deployment.write_config())]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=pipe.writing) as worker:
        try:
            yield worker
        finally:
            worker.kill()


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions; the worker serves pages, and has much to say: each stop and each start of a shard."""
    made = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    made.config["server"] = {"port": free_ports(1)[0]}
    return made


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """The log of a worker."""
    made = Pipe()
    yield made
    made.close()


def page(deployment: Deployment, path: str) -> str:
    """A page of the worker; empty if it does not listen yet, or answers that it is not ready."""
    url = f"http://127.0.0.1:{deployment.config['server']['port']}{path}"
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def catch_up(deployment: Deployment, worker: "subprocess.Popen[bytes]") -> None:
    """Wait until the group has committed the end of the input."""
    ends = deployment.input_ends()
    asked = GroupOffsets(deployment.bootstrap, deployment.group, deployment.source)
    with closing(asked) as offsets:

        def caught_up() -> bool:
            assert worker.poll() is None
            return offsets() == ends

        wait_until(caught_up, DEADLINE_S, lambda: f"not at {ends}: {page(deployment, '/readyz')}")


def test_a_worker_goes_on_though_nobody_reads_its_log(deployment: Deployment, pipe: Pipe) -> None:
    """It starts, answers probes, emits, commits, and logs what it did once the pipe is read; SIGTERM drains it."""
    pipe.fill()
    deployment.feed(keyed([*range(1000), *range(500)], 2))
    with running(deployment, pipe) as worker:
        wait_until(
            lambda: page(deployment, "/readyz"), DEADLINE_S, lambda: "the worker is not ready"
        )
        catch_up(deployment, worker)
        assert page(deployment, "/livez") == "alive\n"
        deployment.feed(keyed(range(1000, 2000), 2))
        catch_up(deployment, worker)
        assert "streamdedup_log_lines_dropped_total 0.0" in page(deployment, "/metrics")
        assert lost_and_doubled(deployment) == (0, 0, 0)
        assert len(read_all(deployment.bootstrap, deployment.sink)) == 2000
        heard = [json.loads(line)["event"] for line in pipe.read_until("shard_live")]
        assert heard[:2] == ["server_listens", "connecting"]
        worker.terminate()
        assert worker.wait(DEADLINE_S) == 0
        heard += [json.loads(line)["event"] for line in pipe.read_all()]
        assert heard[-1] == "stopped"
