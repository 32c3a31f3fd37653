"""Brokers that end, politely or not, under load: the only one, or each of three in turn; and too few replicas."""

import signal
from functools import partial

from proof.chaos.asking import patiently
from proof.chaos.trial import Trial
from tests.broker.topics import alter_topic

WORKERS = 2
DOWN_S = (0.0, 2.0)
STARVED_S = (0.5, 4.0)  # around the time-out of a request
OFFSETS_TOPIC = "__consumer_offsets"


def restart_broker(trial: Trial, restarts: int) -> None:
    """End the broker so many times, SIGTERM and SIGKILL in turn, and start it again."""
    workers = [trial.start() for _ in range(WORKERS)]
    trial.wait_for_progress("the start")
    node_numbers = list(range(len(trial.brokers.nodes)))
    replicated = len(node_numbers) > 1
    for number in range(restarts):
        node = trial.brokers.nodes[node_numbers[number % len(node_numbers)]]
        how = (signal.SIGTERM, signal.SIGKILL)[(number // len(node_numbers)) % 2]
        trial.aim()
        trial.note_hit()
        node.end(how)
        trial.tried(f"{how.name} to {'one of three brokers' if replicated else 'the broker'}")
        if replicated:
            trial.wait_for_progress(f"{how.name} to a broker, which is still away")
        trial.pause_by_chance(*DOWN_S)
        node.start()
        trial.wait_for_progress(f"the restart after {how.name}")
        for worker in workers:
            if worker.process.poll() is not None:
                trial.failed(f"a worker ended: {worker.events()[-2:]}")
    for worker in workers:
        if worker.process.poll() is None and (status := worker.interrupt()):
            trial.failed(f"a worker ended with {status} after the restarts")


def starve_replicas(trial: Trial, acts: int) -> None:
    """Kill one of three brokers, and ask for more replicas than are left, of the output or of the committed offsets.

    What is written there is refused until `min.insync.replicas` is low enough again; then the broker comes back.
    """
    workers = [trial.start() for _ in range(WORKERS)]
    trial.wait_for_progress("the start")
    nodes = trial.brokers.nodes
    bootstrap = trial.deployment.bootstrap
    for number in range(acts):
        topic = (trial.deployment.sink, OFFSETS_TOPIC)[number % 2]
        node = nodes[number % len(nodes)]
        trial.aim()
        trial.note_hit()
        node.end(signal.SIGKILL)
        patiently(partial(alter_topic, bootstrap, topic, min_insync_replicas=len(nodes)))
        trial.pause_by_chance(*STARVED_S)
        patiently(partial(alter_topic, bootstrap, topic, min_insync_replicas=len(nodes) - 1))
        what = "the offsets" if topic == OFFSETS_TOPIC else "the output"
        trial.tried(f"too few replicas of {what}")
        trial.wait_for_progress(f"too few replicas of {what}")
        node.start()
        trial.wait_for_progress("the return of the broker")
    for worker in workers:
        if status := worker.interrupt():
            trial.failed(f"a worker ended with {status} after too few replicas")
