"""SIGSTOP in the middle of a transaction, past session and transaction time-out; another worker takes over; SIGCONT.

The zombie still holds what it was about to send. That nothing of it was written is read from the brokers' files: after
the first batch of a later producer epoch there is none of an earlier one.
"""

import signal
import time

from proof.chaos.kills import STEP_S
from proof.chaos.trial import SESSION_MS, TRANSACTION_MS, Trial, continue_process, is_stopped
from proof.chaos.worker import at_step
from tests.broker.base import wait_until

POINTS = ("first_sent", "before_commit", "end_sent")
AWAKE_S = 30.0
PASSES = (5, 40)


def pause_and_wake(trial: Trial, pauses: int) -> None:
    """A pause at each of the three points of a transaction in turn."""
    first = trial.chance.randrange(len(POINTS))
    for number in range(pauses):
        pause_at(trial, POINTS[(first + number) % len(POINTS)])


def pause_at(trial: Trial, point: str) -> None:
    """Stop a worker at `point`, let a successor work past all time-outs, wake it, end both."""
    zombie = trial.start(at_step(point, trial.chance.randint(*PASSES), signal.SIGSTOP))
    wait_until(
        lambda: is_stopped(zombie) or zombie.process.poll() is not None,
        STEP_S,
        lambda: f"the step {point} was not reached",
    )
    if zombie.process.poll() is not None:
        trial.failed(f"a worker ended by itself before {point}: {zombie.events()[-2:]}")
        return
    stopped_at = time.monotonic()
    trial.note_hit()
    successor = trial.start_live()
    trial.wait_for_progress("the take-over")
    timeouts_s = max(SESSION_MS, TRANSACTION_MS) / 1000
    wait_until(
        lambda: time.monotonic() - stopped_at > timeouts_s, AWAKE_S, lambda: "the clock stands"
    )
    known = len(zombie.events())
    continue_process(zombie)
    trial.tried(f"SIGSTOP at {point}")
    wait_until(
        lambda: any(e["event"] == "assigned" for e in zombie.events()[known:]),
        AWAKE_S,
        lambda: f"the woken worker does not come back: {zombie.events()[-3:]}",
    )
    trial.wait_for_progress("the awakening")
    for worker in (zombie, successor):
        if status := worker.interrupt():
            trial.failed(f"a worker ended with {status} after a pause at {point}")
