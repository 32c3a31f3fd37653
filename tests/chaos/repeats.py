"""The same faults at least once, that is without transactions: nothing is lost, and what is repeated is counted."""

from tests.chaos.drains import drain_at_random
from tests.chaos.kills import kill_at, kill_by_chance
from tests.chaos.pauses import pause_at
from tests.chaos.trial import Trial

STEPS = ("begun", "first_sent", "all_sent", "committed", "admitting", "admitted")
KINDS = 4


def harm_at_least_once(trial: Trial, faults: int) -> None:
    """Kills by chance, kills at a step, drains, and pauses, in equal parts."""
    trial.deployment.config["delivery"]["guarantee"] = "at_least_once"
    for number in range(faults):
        kind = number % KINDS
        if kind == 0:
            kill_by_chance(trial)
        elif kind == 1:
            kill_at(trial, [trial.chance.choice(STEPS)])
        elif kind == 2:
            drain_at_random(trial, 1)
        else:
            pause_at(trial, trial.chance.choice(STEPS))
