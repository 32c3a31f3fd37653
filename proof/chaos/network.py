"""A network between worker and broker that cuts, swallows and delays, one request or response of one API at a time."""

import signal
from collections.abc import Iterator
from contextlib import closing

from proof.chaos.brokers import ProxiedBroker
from proof.chaos.proxy import HOST, Api, Harm, Proxy
from proof.chaos.trial import REQUEST_MS, Trial
from tests.broker.base import DEADLINE_S, wait_until
from tests.deployment import WorkerProcess

SHORT_S = (0.1, 0.5)
LONG_S = (1.2, 1.6)  # times the request's time-out
FIRES_S = RECOVERS_S = DEADLINE_S
AT_A_FENCE = {Api.INIT_PRODUCER_ID, Api.OFFSET_FETCH}
OF_TRANSACTIONS = {
    Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN,
    Api.END_TXN,
    Api.TXN_OFFSET_COMMIT,
}
SECOND_LONG = {Harm.DELAY_REQUEST_LONG, Harm.DELAY_RESPONSE_LONG}


def harm_requests(trial: Trial, faults: int) -> None:
    """So many faults, one after the other; each is followed by a wait until all partitions have gone on."""
    brokers = trial.brokers
    assert isinstance(brokers, ProxiedBroker)
    with closing(Proxy(brokers.proxy_port, brokers.way_in)) as proxy:
        trial.deployment.config["kafka"]["bootstrap_servers"] = f"{HOST}:{brokers.proxy_port}"
        worker = trial.start_live()
        for api, harm in _pairs(trial, faults):
            _harm(trial, proxy, worker, api, harm)
        worker.kill()


def _pairs(trial: Trial, faults: int) -> Iterator[tuple[Api, Harm]]:
    """Every API in turn, with another harm each time: eight rounds of ten are all that transactions know."""
    unused = OF_TRANSACTIONS if trial.at_least_once else {Api.OFFSET_COMMIT}
    apis, harms = [api for api in Api if api not in unused], list(Harm)
    for number in range(faults):
        place = trial.number * faults + number
        api = place % len(apis)
        yield apis[api], harms[(place // len(apis) + api) % len(harms)]


def _harm(trial: Trial, proxy: Proxy, worker: WorkerProcess, api: Api, harm: Harm) -> None:
    factors = LONG_S if harm in SECOND_LONG else SHORT_S
    fault = proxy.arm(api, harm, trial.chance.uniform(*factors) * REQUEST_MS / 1000)
    name = f"{api.name.title().replace('_', '')}: {harm}"
    second = None
    if api is Api.JOIN_GROUP or (trial.at_least_once and api in AT_A_FENCE):
        second = trial.start()
    elif api in AT_A_FENCE:
        proxy.cut_producers()
    wait_until(fault.done.is_set, FIRES_S, lambda: f"{name}: there was no such request")
    trial.tried(name)
    trial.wait_for_progress(name, RECOVERS_S)
    if second is not None and (status := second.interrupt(signal.SIGTERM)):
        trial.failed(f"{name}: the second worker ended with {status}")
    if worker.process.poll() is not None:
        trial.failed(f"{name}: the worker ended: {worker.events()[-2:]}")
