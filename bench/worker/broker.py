"""The broker that is measured on: found as the tests find theirs, but with the settings of Java that users have.

For the heap and the collector, these are what Kafka's `kafka-server-start.sh`, and the `kafka-run-class.sh` that it
calls, set; in a container, the heap begins smaller. The tests' own broker starts quickly and runs slowly, since it is
compiled in one step.
"""

import os
from collections.abc import Callable
from functools import partial

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
RUNGS: dict[str, Callable[[], OwnedBroker]] = {
    "docker": container_broker,
    "jars": partial(process_broker, options=AS_KAFKA_STARTS_IT),
}


def found() -> tuple[Broker, str]:
    """The broker, and what the page says of it; raises `Unavailable`, or ConnectionError where a given one is away."""
    if given := os.environ.get(BOOTSTRAP):
        return given_broker(
            given
        ), f"the one at `{BOOTSTRAP}`, whose version and settings are its owner's"
    named = os.environ.get(RUNG)
    rungs = [rung for name, rung in RUNGS.items() if named in (None, "", name)]
    broker = own_broker(rungs or None)  # which says what is wrong with the name
    if isinstance(broker, ProcessBroker):
        options = "a heap of 1 GiB and the other options of Java that Kafka's start script gives"
        return broker, f"kafka-{broker.kafka}, from its jars, one node, {options}"
    return broker, f"{image()} in a container, one node"
