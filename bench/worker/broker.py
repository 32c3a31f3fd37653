"""The broker that is measured on: found as the tests find theirs, but as a user's is that has run for a while.

For the heap and the collector, these are what Kafka's `kafka-server-start.sh`, and the `kafka-run-class.sh` that it
calls, set; in a container, the heap begins smaller. The tests' own broker starts quickly and runs slowly, since it is
compiled in one step.

For `make bench`, its data is in memory, if there is room: a virtual machine may write to its disk at less than the
rates that are measured, and then all requests wait for it, half a second at a time.
"""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from tests.broker.base import Broker, OwnedBroker
from tests.broker.container import container_broker, image
from tests.broker.ladder import BOOTSTRAP, RUNG, given_broker, own_broker
from tests.broker.process import ProcessBroker, process_broker

AS_KAFKA_STARTS_IT = (
    "-Xms1g",  # beside -Xmx1g; in a heap that begins small, large requests cause several collections a second
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - Linux's file system in memory
ROOM_BYTES = 16 << 30  # `make bench` takes 10 GiB


def in_memory() -> Path | None:
    """Return the directory for its data in memory; None if there is none, or not enough room."""
    if not IN_MEMORY.is_dir():
        return None
    room = min(shutil.disk_usage(IN_MEMORY).free, psutil.virtual_memory().available)
    return IN_MEMORY if room >= ROOM_BYTES else None


def found(directory: Path | None = None) -> tuple[Broker, str]:
    """The broker, and what the page says of it; raises `Unavailable`, or ConnectionError where a given one is away.

    If it is a process of ours, its data is below `directory`, or where temporary files are.
    """
    if given := os.environ.get(BOOTSTRAP):
        return given_broker(
            given
        ), f"the one at `{BOOTSTRAP}`, whose version and settings are its owner's"
    named = os.environ.get(RUNG)
    process = partial(process_broker, AS_KAFKA_STARTS_IT, directory)
    known: dict[str, Callable[[], OwnedBroker]] = {"docker": container_broker, "jars": process}
    rungs = [rung for name, rung in known.items() if named in (None, "", name)]
    broker = own_broker(rungs or None)  # which says what is wrong with the name
    if isinstance(broker, ProcessBroker):
        options = "a heap of 1 GiB and the other options of Java that Kafka's start script gives"
        data = f"its data {'in memory' if broker.data_directory.is_relative_to(IN_MEMORY) else 'on disk'}"
        return broker, f"kafka-{broker.kafka}, from its jars, one node, {options}, {data}"
    return broker, f"{image()} in a container, one node"
