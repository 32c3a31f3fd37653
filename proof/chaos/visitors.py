"""All who may visit a worker at once, beside one that has much to read: `proof/chaos/clients.py` has who they are.

Its rate and its beat are compared with those of the same worker without them, by turns. The clients take processors,
too: on a machine with two cores, which a broker shares, that is part of what they cost. Probes have another port.
"""

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import NamedTuple
from urllib.request import urlopen

from confluent_kafka import Producer

from proof.chaos.clients import ASKERS, EXPLAINS, HOST, SLOW, STARTED, VIEWERS, Counts
from proof.chaos.trial import CATCH_UP_S, ROOT, Trial
from proof.chaos.worker import with_descriptors
from streamdedup.metrics.catalogue import LOOP_STALL
from tests.broker.base import DEADLINE_S, client_config, wait_until

TURN_EVENTS = 250_000
SPARE_TURNS = 3  # what is read while clients start and end
KEYS = 150_000
BATCH_EVENTS = (
    1000  # far below the default, so that the worker's Python has as much to do as its kernels
)
RATE_SHARE_MIN = 0.85
BEAT_S_MAX = 0.010
DESCRIPTORS = 256
NO_DESCRIPTOR = "Too many open files"
TOKEN = "t" * 32


class Turn(NamedTuple):
    """How many events a second were committed, and by how many seconds 99 % of the beats were late, at most."""

    rate: float
    beat_s: float


def visit(trial: Trial, turns: int) -> None:
    """Compare `turns` turns without and with visitors. Each probe must be answered, too."""
    config = trial.deployment.config
    token = trial.directory / "token"
    token.write_text(TOKEN)
    config["server"] = {"port": 0, "probe_port": 0, "token_file": str(token)}
    config["delivery"]["batch_events_max"] = BATCH_EVENTS
    config["filter"]["capacity"] = 500_000
    config["snapshot"]["interval_s"] = 3600
    # Nothing is done to the group and the broker, so a slow machine must not look like a fault.
    config["kafka"]["consumer"] = {"session_timeout_ms": 30_000}
    del config["kafka"]["producer"]
    trial.feeder.finish()
    _fill(trial, TURN_EVENTS * (2 * turns + SPARE_TURNS))
    worker = trial.start_live(with_descriptors(DESCRIPTORS))
    port, probe_port = (line["port"] for line in worker.wait_for("server_listens", 2))
    alone, beside = list[Turn](), list[Turn]()
    for turn in range(1, turns + 1):
        alone.append(_turn(trial, port, nullcontext()))
        beside.append(_turn(trial, port, _clients(trial, port, probe_port)))
        trial.tried(f"{SLOW} slow clients, {ASKERS} hungry, {VIEWERS} viewers, {EXPLAINS} explains")
        for of, name in ((alone[-1], "alone"), (beside[-1], "beside clients")):
            trial.count.seen[f"events a second in turn {turn}, {name}"] = int(of.rate)
            trial.count.seen[f"us of 99 % of beats in turn {turn}, {name}"] = int(of.beat_s * 1e6)
    share = max(turn.rate for turn in beside) / max(turn.rate for turn in alone)
    if share < RATE_SHARE_MIN:
        trial.failed(f"beside clients the rate is {share:.0%} of that without")
    later_s = min(turn.beat_s for turn in beside) - min(turn.beat_s for turn in alone)
    if later_s > BEAT_S_MAX:
        trial.failed(f"beside clients the beat is {later_s * 1000:.0f} ms later than without")
    if refused := [line for line in worker.events() if NO_DESCRIPTOR in json.dumps(line)]:
        trial.failed(f"of {DESCRIPTORS} descriptors none was left: {refused[0]}")
    if status := worker.interrupt():
        trial.failed(f"the worker ended with {status}")


def _turn(trial: Trial, port: int, clients: AbstractContextManager[None]) -> Turn:
    """Measure the worker beside these clients. The beats are read when they are not there."""
    before = _beats(port)
    with clients:
        rate = _rate(trial)
    return Turn(rate, _late(before, _beats(port)))


def _beats(port: int) -> dict[float, float]:
    """Return how many beats were at most so many seconds late, by the buckets of the metric."""
    text = ""
    while not text:
        with suppress(OSError), urlopen(f"http://{HOST}:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    found = re.findall(rf'^{LOOP_STALL.name}_bucket{{le="(.*)"}} (.*)$', text, re.MULTILINE)
    return {float(bound): float(count) for bound, count in found}


def _late(before: Mapping[float, float], after: Mapping[float, float]) -> float:
    """Return by how many seconds 99 % of the beats between the two were late, at most, within their bucket evenly."""
    counts = {bound: after[bound] - before[bound] for bound in after}
    wanted, below, below_s = 0.99 * counts[math.inf], 0.0, 0.0
    for bound, count in counts.items():
        if count >= wanted and bound < math.inf:
            return below_s + (bound - below_s) * (wanted - below) / (count - below)
        below, below_s = count, bound
    return math.inf


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
def _clients(trial: Trial, port: int, probe_port: int) -> Iterator[None]:
    """Clients that visit `port`, and probes of `probe_port`; at their end, note what they say."""
    command = [sys.executable, "-m", "proof.chaos.clients", str(port), str(probe_port), TOKEN]
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
    for name in ("scrapes", "views", "explained", "probes"):
        trial.count.seen[name] += getattr(counts, name)
    if counts.unanswered:
        trial.failed(f"{counts.unanswered} of {counts.probes} probes were not answered in time")
