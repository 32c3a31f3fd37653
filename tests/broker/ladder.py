"""The ladder by which tests find a broker, from the one they are given to one they start.

1. STREAMDEDUP_TEST_BOOTSTRAP, 2. Docker, 3. Kafka's own jars on a Java; the first that works, or
the one that STREAMDEDUP_TEST_RUNG names, `docker` or `jars`.
A given broker is used, never stopped or emptied; what kills brokers begins at rung 2.
"""

import atexit
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.broker.base import Broker, OwnedBroker, Unavailable, admin_client, answers, wait_until
from tests.broker.container import container_broker
from tests.broker.process import process_broker

BOOTSTRAP = "STREAMDEDUP_TEST_BOOTSTRAP"

RUNG = "STREAMDEDUP_TEST_RUNG"

Rung = Callable[[], OwnedBroker]
RUNGS: dict[str, Rung] = {"docker": container_broker, "jars": process_broker}


@dataclass(frozen=True)
class GivenBroker:
    """The broker of STREAMDEDUP_TEST_BOOTSTRAP: not ours to stop."""

    bootstrap_servers: str
    owned: bool = False

    def close(self) -> None:
        """Leave it as it is."""


def find_broker() -> Broker:
    """Take the broker that was given, else one of our own; raises `Unavailable`."""
    bootstrap_servers = os.environ.get(BOOTSTRAP)
    return given_broker(bootstrap_servers) if bootstrap_servers else own_broker()


def given_broker(bootstrap_servers: str, deadline_s: float = 10) -> GivenBroker:
    """Take the broker at `bootstrap_servers`; ConnectionError if it does not answer."""
    client = admin_client(bootstrap_servers)
    try:
        wait_until(lambda: answers(client), deadline_s, lambda: "no answer")
    except TimeoutError as error:
        raise ConnectionError(
            f"{BOOTSTRAP}={bootstrap_servers}: {error}; start that broker, or unset the variable"
        ) from None
    return GivenBroker(bootstrap_servers)


def own_broker(rungs: Sequence[Rung] | None = None) -> OwnedBroker:
    """Start a broker by the first rung that can; raises `Unavailable` with every reason."""
    reasons = []
    for rung in rungs or _rungs():
        try:
            broker = rung()
        except Unavailable as unavailable:
            reasons.append(str(unavailable))
        else:
            atexit.register(broker.close)
            return broker
    raise Unavailable("; ".join(reasons))


def _rungs() -> list[Rung]:
    named = os.environ.get(RUNG)
    if named and named not in RUNGS:
        raise ConnectionError(f"{RUNG}={named}: no such rung; choose one of: {', '.join(RUNGS)}")
    return [RUNGS[named]] if named else [*RUNGS.values()]
