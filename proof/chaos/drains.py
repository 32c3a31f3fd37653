"""SIGTERM at random moments of a worker's life: it ends with 0, in time, and loses or repeats nothing."""

import signal
import subprocess
import time

from proof.chaos.trial import DRAIN_S, Trial

SLACK_S = 1.0  # the interpreter's own end
EARLY_SHARE = 0.3


def drain_at_random(trial: Trial, drains: int) -> None:
    """Drains, some while the worker connects, fences or folds, most while it is at work."""
    for _ in range(drains):
        if trial.chance.random() < EARLY_SHARE:
            worker = trial.start()
            worker.wait_for("connecting")  # from here on it has its signal handlers
            trial.pause_by_chance(0, 1.5)
        else:
            worker = trial.start_live()
            trial.aim()
        trial.note_hit()
        began = time.monotonic()
        worker.process.send_signal(signal.SIGTERM)
        try:
            status = worker.process.wait(DRAIN_S + SLACK_S)
        except subprocess.TimeoutExpired:
            trial.failed(f"a drain took more than {DRAIN_S:g} s: {worker.events()[-3:]}")
            worker.kill()
            continue
        trial.tried("SIGTERM at a random moment")
        trial.took("drain", time.monotonic() - began)
        if status:
            trial.failed(f"SIGTERM ended a worker with {status}: {worker.events()[-2:]}")
