"""Signals to the worker: SIGKILL at moments of chance and at every named step, SIGTERM, and SIGSTOP with SIGCONT.

A SIGSTOP comes in the middle of a transaction, and lasts past session and transaction time-out, while another worker
takes over. The zombie still holds what it was about to send. That nothing of it was written is read from the brokers'
files: after the first batch of a later producer epoch there is none of an earlier one.
"""

import shutil
import signal
import time

from proof.chaos.trial import (
    CATCH_UP_S,
    SESSION_MS,
    TRANSACTION_MS,
    Trial,
    continue_process,
    is_stopped,
)
from proof.chaos.worker import REACHED, RESTORE_STEPS, SNAPSHOT_STEPS, STEPS, at_step
from tests.broker.base import DEADLINE_S, wait_until

STEP_S = DEADLINE_S
PASSES_MAX = 12  # a step of a transaction is passed some thirty times a second
EARLY_KILLS, EARLY_DRAINS = 0.15, 0.3  # the share of each
NEVER_S = 3600.0
PAUSED_AT = ("first_sent", "before_commit", "end_sent")
PASSES = (5, 40)  # before a pause
AWAKE_S = 30.0
COMMITTING = ("begun", "first_sent", "all_sent", "committed", "admitting", "admitted")


def kill_at_random(trial: Trial, kills: int) -> None:
    """Kills of one worker, most of them while it is at work, some while it fences or folds."""
    trial.name_the_member()
    for _ in range(kills):
        kill_by_chance(trial)


def kill_at_steps(trial: Trial, steps: int) -> None:
    """One kill at each of so many named steps, in a random order."""
    trial.name_the_member()
    kill_at(trial, trial.chance.sample(STEPS, k=min(steps, len(STEPS))))


def kill_unsaved(trial: Trial, kills: int) -> None:
    """Kills of one worker whose output no snapshot knows; events with keys of that output come after each."""
    trial.name_the_member()
    trial.deployment.config["snapshot"]["interval_s"] = NEVER_S
    for _ in range(kills):
        worker = trial.start_live()
        trial.wait_for_progress("the start")
        worker.kill()
        trial.tried("SIGKILL before a snapshot")
        trial.note_hit()
        trial.fed_ends("the progress", CATCH_UP_S)  # the killed worker may have read that
        trial.fed_ends("the kill", CATCH_UP_S)


def kill_by_chance(trial: Trial) -> None:
    """One kill, early in the worker's life or at work."""
    if trial.chance.random() < EARLY_KILLS:
        worker = trial.start()
        worker.wait_for("joining")
        trial.pause_by_chance(0, 0.6)
    else:
        worker = trial.start_live()
        trial.aim()
    if worker.process.poll() is not None:
        trial.failed(f"a worker ended by itself: {worker.events()[-2:]}")
        return
    worker.kill()
    trial.tried("SIGKILL at a random moment")
    trial.note_hit()


def kill_at(trial: Trial, steps: list[str]) -> None:
    """One kill at each of `steps`."""
    for step in steps:
        passes = trial.chance.randint(1, _passes_max(step))
        worker = trial.start(at_step(step, passes, signal.SIGKILL))
        wait_until(
            lambda worker=worker: worker.process.poll() is not None,  # type: ignore[misc]
            STEP_S,
            lambda step=step: f"the step {step} was not reached",  # type: ignore[misc]
        )
        if worker.process.returncode != -signal.SIGKILL or not worker.events(REACHED):
            trial.failed(f"a worker ended by itself before {step}: {worker.events()[-2:]}")
            continue
        trial.tried(f"SIGKILL at {step}")
        trial.note_hit()


def _passes_max(step: str) -> int:
    if step in RESTORE_STEPS:
        return 4  # the partitions, one pass each
    return 3 if step in SNAPSHOT_STEPS else PASSES_MAX


def drain_at_random(trial: Trial, drains: int) -> None:
    """Drains, some while the worker connects, fences or folds, most while it is at work."""
    for _ in range(drains):
        if trial.chance.random() < EARLY_DRAINS:
            worker = trial.start()
            worker.wait_for("connecting")  # from here on it has its signal handlers
            trial.pause_by_chance(0, 1.5)
        else:
            worker = trial.start_live()
            trial.aim()
        trial.note_hit()
        trial.tried("SIGTERM at a random moment")
        trial.drain(worker)


def pause_and_wake(trial: Trial, pauses: int) -> None:
    """A pause at each of the three points of a transaction in turn."""
    first = trial.chance.randrange(len(PAUSED_AT))
    for number in range(pauses):
        pause_at(trial, PAUSED_AT[(first + number) % len(PAUSED_AT)])


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


def harm_at_least_once(trial: Trial, faults: int) -> None:
    """Kills by chance, kills at a step, drains, pauses, and lost snapshots, in equal parts."""
    for number in range(faults):
        kind = number % 5
        if kind == 0:
            kill_by_chance(trial)
        elif kind == 1:
            kill_at(trial, [trial.chance.choice(COMMITTING)])
        elif kind == 2:
            drain_at_random(trial, 1)
        elif kind == 3:
            pause_at(trial, trial.chance.choice(COMMITTING))
        else:
            _delete_snapshots(trial)


def _delete_snapshots(trial: Trial) -> None:
    """After a kill: the next worker folds the whole output."""
    worker = trial.start_live()
    worker.wait_for("snapshot_saved")
    worker.kill()
    shutil.rmtree(trial.deployment.snapshots)
    trial.tried("snapshots deleted")
