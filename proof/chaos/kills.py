"""SIGKILL of the worker: at moments of chance, and at every named step of its work."""

import signal

from proof.chaos.trial import CATCH_UP_S, Trial
from proof.chaos.worker import REACHED, RESTORE_STEPS, SNAPSHOT_STEPS, STEPS, at_step
from tests.broker.base import DEADLINE_S, wait_until

STEP_S = DEADLINE_S
PASSES_MAX = 12  # a step of a transaction is passed some thirty times a second
EARLY_SHARE = 0.15
NEVER_S = 3600.0


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
    if trial.chance.random() < EARLY_SHARE:
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
