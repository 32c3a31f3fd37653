"""Faults to a worker that delivers at least once, without transactions: nothing is lost, repeats are counted."""

import shutil

from proof.chaos.drains import drain_at_random
from proof.chaos.kills import kill_at, kill_by_chance
from proof.chaos.pauses import pause_at
from proof.chaos.trial import Trial

STEPS = ("begun", "first_sent", "all_sent", "committed", "admitting", "admitted")
KINDS = 5


def harm_at_least_once(trial: Trial, faults: int) -> None:
    """Kills by chance, kills at a step, drains, pauses, and lost snapshots, in equal parts."""
    for number in range(faults):
        kind = number % KINDS
        if kind == 0:
            kill_by_chance(trial)
        elif kind == 1:
            kill_at(trial, [trial.chance.choice(STEPS)])
        elif kind == 2:
            drain_at_random(trial, 1)
        elif kind == 3:
            pause_at(trial, trial.chance.choice(STEPS))
        else:
            _delete_snapshots(trial)


def _delete_snapshots(trial: Trial) -> None:
    """After a kill: the next worker folds the whole output."""
    worker = trial.start_live()
    worker.wait_for("snapshot_saved")
    worker.kill()
    shutil.rmtree(trial.deployment.snapshots)
    trial.tried("snapshots deleted")
