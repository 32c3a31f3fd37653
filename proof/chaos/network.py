"""A network between worker and broker that cuts, swallows and delays, one request or response of one API at a time.

TCP keeps its order: what is delayed holds up all that follows in that direction, and a connection on which something
was dropped carries nothing further that way. A request that was delayed still arrives when its client has gone. To
have a worker fence anew, all connections of its producers are cut, each before its next frame.
"""

import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from proof.chaos.trial import REQUEST_MS, Trial
from tests.broker.base import DEADLINE_S, wait_until
from tests.broker.proxy import Action, Api, Cut, Delay, Drop, Frame, Proxy
from tests.deployment import WorkerProcess

SHORT_S = (0.1, 0.5)
LONG_S = (1.2, 1.6)  # times the request's time-out
FIRES_S = RECOVERS_S = DEADLINE_S
APIS = (
    Api.PRODUCE,
    Api.FETCH,
    Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
    Api.JOIN_GROUP,
    Api.HEARTBEAT,
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN,
    Api.END_TXN,
    Api.TXN_OFFSET_COMMIT,
)
AT_A_FENCE = {Api.INIT_PRODUCER_ID, Api.OFFSET_FETCH}
OF_PRODUCERS = {Api.PRODUCE, Api.END_TXN}
OF_TRANSACTIONS = {
    Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN,
    Api.END_TXN,
    Api.TXN_OFFSET_COMMIT,
}


class Harm(StrEnum):
    """What is done to a request or to its response."""

    CUT_REQUEST = "connection cut before the request"
    CUT_RESPONSE = "connection cut before the response"
    DROP_REQUEST = "request dropped"
    DROP_RESPONSE = "response dropped"
    DELAY_REQUEST = "request delayed within the deadline"
    DELAY_RESPONSE = "response delayed within the deadline"
    DELAY_REQUEST_LONG = "request delayed beyond the deadline"
    DELAY_RESPONSE_LONG = "response delayed beyond the deadline"

    @property
    def to_answer(self) -> bool:
        """Whether it is the response that is harmed."""
        return "RESPONSE" in self.name


@dataclass
class Fault:
    """One harm to the next request of `api`; `done` is set when it has been done."""

    api: Api
    harm: Harm
    delay_s: float
    done: threading.Event = field(default_factory=threading.Event)


class Faults:
    """The rule of a proxy that does one fault at a time."""

    def __init__(self) -> None:
        self.armed: Fault | None = None
        # Connections and ways on which something was dropped.
        self._silent: set[tuple[int, bool]] = set()
        # Connections that carried an event, or the end of a transaction.
        self._writing: set[int] = set()
        self._cut: set[int] = set()

    def cut_producers(self) -> None:
        """Cut the connections of producers, each before its next frame."""
        self._cut = set(self._writing)

    def __call__(self, frame: Frame) -> Action | None:
        """What is done to a frame."""
        if frame.api in OF_PRODUCERS:
            self._writing.add(frame.connection)
        if frame.connection in self._cut:
            return Cut()
        fault, way = self.armed, (frame.connection, frame.is_answer)
        if way in self._silent:
            return Drop()
        if fault is None or (frame.api, frame.is_answer) != (fault.api, fault.harm.to_answer):
            return None
        self.armed = None
        fault.done.set()
        if fault.harm.name.startswith("CUT"):
            return Cut()
        if fault.harm.name.startswith("DROP"):
            self._silent.add(way)
            return Drop()
        return Delay(fault.delay_s)


def harm_requests(trial: Trial, faults: int) -> None:
    """So many faults, one after the other; each is followed by a wait until all partitions have gone on."""
    rule = Faults()
    with Proxy(trial.brokers.bootstrap_servers, rule) as proxy:
        trial.deployment.config["kafka"]["bootstrap_servers"] = proxy.bootstrap_servers
        worker = trial.start_live()
        for api, harm in _pairs(trial, faults):
            _harm(trial, rule, worker, api, harm)
        worker.kill()


def _pairs(trial: Trial, faults: int) -> Iterator[tuple[Api, Harm]]:
    """Every API in turn, with another harm each time: eight rounds of ten are all that transactions know."""
    unused = OF_TRANSACTIONS if trial.at_least_once else {Api.OFFSET_COMMIT}
    apis, harms = [api for api in APIS if api not in unused], list(Harm)
    for number in range(faults):
        place = trial.number * faults + number
        api = place % len(apis)
        yield apis[api], harms[(place // len(apis) + api) % len(harms)]


def _harm(trial: Trial, rule: Faults, worker: WorkerProcess, api: Api, harm: Harm) -> None:
    factors = LONG_S if harm.name.endswith("LONG") else SHORT_S
    fault = rule.armed = Fault(api, harm, trial.chance.uniform(*factors) * REQUEST_MS / 1000)
    name = f"{api.name.title().replace('_', '')}: {harm}"
    second = None
    if api is Api.JOIN_GROUP or (trial.at_least_once and api in AT_A_FENCE):
        second = trial.start()
    elif api in AT_A_FENCE:
        rule.cut_producers()
    wait_until(fault.done.is_set, FIRES_S, lambda: f"{name}: there was no such request")
    trial.tried(name)
    trial.wait_for_progress(name, RECOVERS_S)
    if second is not None and (status := second.interrupt(signal.SIGTERM)):
        trial.failed(f"{name}: the second worker ended with {status}")
    if worker.process.poll() is not None:
        trial.failed(f"{name}: the worker ended: {worker.events()[-2:]}")
