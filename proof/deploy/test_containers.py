"""The image and the stack of deploy/, built and run: what they promise is asked of running containers.

`make test-containers` runs them, on whatever engine DOCKER_HOST names.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from proof.deploy.stack import IMAGE, STOP_S, Stack, engine, running_stack
from tests.broker.topics import Event, Record, produce, read_all

pytestmark = pytest.mark.container

UNPRIVILEGED = {
    "read_only": True,
    "network_mode": "none",
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}
RUN_S = 120
NOT_KEPT = "no directory for compiled kernels is writable"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Give the stack, its worker live."""
    with running_stack() as made:
        made.wait_for("shard_live", 4)
        yield made


def run(*command: str, entrypoint: str | None = None, **environment: str) -> str:
    """Run a command in a new container of the image, which may write nowhere; all that it printed."""
    options = {**UNPRIVILEGED, **({"entrypoint": entrypoint} if entrypoint else {})}
    status, printed = ended(command=list(command), environment=environment, **options)
    assert status == 0, printed
    return printed


def ended(**options: Any) -> tuple[int, str]:
    """The status and all output of a new container, once it has ended: a log that is followed may not end with it."""
    made = engine().containers.create(IMAGE, **options)
    try:
        made.start()
        status: int = made.wait(timeout=RUN_S)["StatusCode"]
        return status, made.logs().decode()
    finally:
        made.remove(force=True)


def numbered(numbers: range) -> Iterator[Event]:
    """Events whose key is in their JSON value; equal keys share a partition."""
    for number in numbers:
        value = b'{"id": "key-%d", "n": %d}' % (number % 3000, number)
        yield (
            number % 4,
            b"k%d" % number,
            value,
            [("h", b"%d" % number)],
            None,
        )


def first_of_each_key(stack: Stack) -> list[tuple[object, ...]]:
    """What the output must be: of the input, the first event of each key, as it is, in its order."""
    seen: set[str] = set()
    first: list[tuple[object, ...]] = []
    for record in read_all(stack.bootstrap, stack.source):
        assert record.value is not None
        key = record.value.decode().split('"')[3]
        if key not in seen:
            first.append((record.partition, *content(record)))
        seen.add(key)
    return first


def content(record: Record) -> tuple[object, ...]:
    """What the worker passes on as it is."""
    return record.key, record.value, record.headers, record.timestamp_ms


def feed(stack: Stack, numbers: range) -> None:
    """Append events to the input."""
    produce(stack.bootstrap, stack.source, numbered(numbers))


def terminated(stack: Stack) -> int:
    """Send SIGTERM, and wait for the end within the time that compose gives; the exit status."""
    worker, began = stack.worker, time.monotonic()
    worker.stop(timeout=STOP_S)
    assert time.monotonic() - began < STOP_S
    worker.reload()
    return int(worker.attrs["State"]["ExitCode"])


@pytest.mark.usefixtures("stack")
class TestImage:
    """A container of the image, with no right, no network and no place to write to."""

    def test_nothing_is_left_to_compile(self) -> None:
        """The machine code of all loops is in the image and is taken from there, by another user, read-only."""
        assert run("compile") == "all loops were compiled already\n"

    def test_another_processor_does_without(self) -> None:
        """Where the machine code is for another processor, the worker's loops compile at the start, and it says so."""
        lines = "printf 'a\\nb\\na\\n' | streamdedup pipe"
        there = run("-c", lines, entrypoint="sh")
        other = run("-c", lines, entrypoint="sh", NUMBA_CPU_NAME="")
        assert there.startswith("a\nb\n")
        assert NOT_KEPT not in there
        assert "a\nb\n" in other
        assert NOT_KEPT in other

    def test_it_is_nobody(self) -> None:
        """The user is not root, has no name, and cannot write to its own code."""
        assert run("-c", 'echo "$(id -u):$(id -g)"', entrypoint="sh") == "10001:10001\n"
        assert run("-c", "find /opt -writable", entrypoint="sh") == ""

    def test_it_asks_for_huge_pages(self) -> None:
        """By glibc's variable."""
        assert run("-c", "echo $GLIBC_TUNABLES", entrypoint="sh") == "glibc.malloc.hugetlb=1\n"

    def test_it_runs_the_worker_by_default(self) -> None:
        """Without a command it is the worker, which asks for its configuration by name."""
        status, said = ended(**UNPRIVILEGED)
        assert status == 2
        assert "/etc/streamdedup/dedup.yaml" in said


class TestStack:
    """The broker and the worker of deploy/compose.yaml."""

    def test_the_worker_has_no_rights(self, stack: Stack) -> None:
        """No root, no capability, no new privilege, a root file system that is read-only, bounded memory."""
        host = stack.worker.attrs["HostConfig"]
        assert host["ReadonlyRootfs"] is True
        assert host["Memory"] == 1 << 30
        status, printed = stack.worker.exec_run(["cat", "/proc/1/status"])
        assert status == 0
        told = dict(line.split(":\t", 1) for line in printed.decode().splitlines())
        assert told["Uid"].split() == ["10001"] * 4
        assert int(told["CapEff"], 16) == int(told["CapBnd"], 16) == 0
        assert told["NoNewPrivs"] == "1"
        status, _ = stack.worker.exec_run(["sh", "-c", "touch /etc/x || touch /opt/streamdedup/x"])
        assert status != 0

    @pytest.mark.parametrize("service", ["kafka", "worker"])
    def test_both_are_healthy(self, stack: Stack, service: str) -> None:
        """The command of the health check succeeds; who runs it, and when, is the engine's affair."""
        checked = stack.container(service)
        status, printed = checked.exec_run(checked.attrs["Config"]["Healthcheck"]["Test"][1:])
        assert status == 0, printed

    def test_events_pass_once_whatever_ends_the_worker(self, stack: Stack) -> None:
        """Over a SIGTERM and a kill the output is the first event of each key; memory comes from the volume."""
        feed(stack, range(4000))
        stack.catch_up()
        assert terminated(stack) == 0
        feed(stack, range(2000, 6000))
        stack.worker.start()
        stack.wait_for("snapshot_loaded", 4)
        stack.wait_for("shard_live", 8)
        feed(stack, range(6000, 7000))
        stack.worker.kill()
        feed(stack, range(5000, 9000))
        stack.worker.start()
        stack.wait_for("shard_live", 12)
        stack.catch_up()
        assert terminated(stack) == 0
        out = read_all(stack.bootstrap, stack.sink)
        assert [(r.partition, *content(r)) for r in out] == first_of_each_key(stack)
        assert len(out) == 3000
        assert NOT_KEPT not in stack.worker.logs().decode()
        assert stack.log("transactions_abandoned") == []
