"""Brokers that end, politely or not, under load: the only one, or each of three in turn."""

import signal

from tests.chaos.trial import Trial

WORKERS = 2
DOWN_S = (0.0, 2.0)


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
