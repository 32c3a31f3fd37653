"""HTTP clients that ask for /metrics without pause, and slow ones, beside a worker that has much to read.

Its rate is compared with that of the same worker without them, by turns. The clients take processors, too: on a machine
with two cores, which a broker shares, that is part of what they cost.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from proof.chaos.clients import ASKERS, SLOW, STARTED, Counts
from proof.chaos.trial import CATCH_UP_S, ROOT, Trial
from tests.broker.base import DEADLINE_S, client_config, wait_until

TURN_EVENTS = 250_000
SPARE_TURNS = 3  # what is read while clients start and end
KEYS = 150_000
BATCH_EVENTS = (
    1000  # far below the default, so that the worker's Python has as much to do as its kernels
)
RATE_SHARE_MIN = 0.85


def visit(trial: Trial, turns: int) -> None:
    """Compare rates in `turns` turns without and with clients. Each probe must be answered, too."""
    config = trial.deployment.config
    config["server"] = {"port": 0}
    config["delivery"]["batch_events_max"] = BATCH_EVENTS
    config["filter"]["capacity"] = 500_000
    config["snapshot"]["interval_s"] = 3600
    # Nothing is done to the group and the broker, so a slow machine must not look like a fault.
    config["kafka"]["consumer"] = {"session_timeout_ms": 30_000}
    del config["kafka"]["producer"]
    trial.feeder.finish()
    _fill(trial, TURN_EVENTS * (2 * turns + SPARE_TURNS))
    worker = trial.start_live()
    port = worker.wait_for("server_listens")[0]["port"]
    alone, beside = [], []
    for turn in range(1, turns + 1):
        alone.append(_rate(trial))
        with _clients(trial, port):
            beside.append(_rate(trial))
        trial.tried(f"{ASKERS} clients that ask for /metrics without pause, {SLOW} slow ones")
        trial.count.seen[f"events a second in turn {turn}, alone"] = int(alone[-1])
        trial.count.seen[f"events a second in turn {turn}, beside clients"] = int(beside[-1])
    share = max(beside) / max(alone)
    if share < RATE_SHARE_MIN:
        trial.failed(f"beside clients the rate is {share:.0%} of that without")
    if status := worker.interrupt():
        trial.failed(f"the worker ended with {status}")


def _fill(trial: Trial, events: int) -> None:
    """Append events, about half of which repeat an earlier key."""
    producer = Producer(client_config(trial.deployment.bootstrap) | {"linger.ms": 50})
    for _ in range(events):
        number = trial.chance.randrange(KEYS)
        key = b"visitor%d@example.com" % number
        while True:
            try:
                producer.produce(trial.deployment.source, b"{}", key, number % trial.partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(DEADLINE_S) == 0, "the input could not be filled"


def _rate(trial: Trial) -> float:
    """Return how many events a second the group commits, over the next `TURN_EVENTS`."""
    began, first = time.monotonic(), _done(trial)
    wait_until(
        lambda: _done(trial) >= first + TURN_EVENTS,
        CATCH_UP_S,
        lambda: f"{_done(trial) - first} of {TURN_EVENTS} events are done; is there no more input?",
    )
    return (_done(trial) - first) / (time.monotonic() - began)


def _done(trial: Trial) -> int:
    return sum(trial.committed().values())


@contextmanager
def _clients(trial: Trial, port: int) -> Iterator[None]:
    """Clients that ask at `port`; at their end, note what they say."""
    command = [sys.executable, "-m", "proof.chaos.clients", str(port)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout and process.stdout.readline().strip() == STARTED
            yield
            counts = Counts(**json.loads(process.communicate()[0]))
        finally:
            process.kill()
    trial.took("probe", counts.slowest_probe_s)
    trial.count.seen["scrapes"] += counts.scrapes
    trial.count.seen["probes"] += counts.probes
    if counts.unanswered:
        trial.failed(f"{counts.unanswered} of {counts.probes} probes were not answered in time")
