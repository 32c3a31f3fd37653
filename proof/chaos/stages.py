"""What may happen to a deployment with `source.repartition`: to workers of either stage, to its groups, its topics.

An operator's deed needs groups without members: every worker is killed or drained before it, and started after it.
"""

import signal
import time
from collections.abc import Callable, Mapping
from functools import partial

from proof.chaos.asking import patiently
from proof.chaos.operators import add_partitions, delete_group
from proof.chaos.staged import PLACES, ROLES, StagedTrial
from proof.chaos.trial import Trial, continue_process, stop_process
from proof.chaos.worker import COPY_STEPS, REACHED, TRANSACTION_STEPS, at_step
from tests.broker.base import DEADLINE_S, wait_until
from tests.broker.topics import (
    delete_records,
    delete_topic,
    end_offsets,
    move_offsets,
)
from tests.deployment import WorkerProcess

PAUSE_S = (0.5, 8.0)  # on both sides of the session's time-out
DOWN_S = (0.0, 2.0)
STEP_S = 20.0
PASSES_MAX = 8
ENDS_S = DEADLINE_S
CHECKED_SHARE = 0.3
MOVED_SHARE = 0.7
STEPS = (*COPY_STEPS, *TRANSACTION_STEPS)


def harm_stages(trial: Trial, faults: int) -> None:
    """So many faults; the middle topic is deleted once, and partitions are added once, at moments of chance."""
    assert isinstance(trial, StagedTrial)
    ground = _Ground(trial)
    once: list[Callable[[], None]] = [ground.delete_middle, ground.grow_input]
    often: list[Callable[[], None]] = [
        *[ground.kill] * 5,
        *[ground.kill_at_a_step] * 5,
        *[ground.pause] * 4,
        ground.kill_broker,
        ground.move_first,
        ground.move_second,
        ground.delete_group,
        ground.trim,
    ]
    acts = [*once[:faults], *trial.chance.choices(often, k=max(0, faults - len(once)))]
    trial.chance.shuffle(acts)
    for act in acts:
        ground.see_to_all()
        act()
        if trial.chance.random() < CHECKED_SHARE:
            ground.calm(act.__name__)
    ground.calm("all faults")


class _Ground:
    """The workers of a round, by role; those that ended on purpose are started again at once."""

    def __init__(self, trial: StagedTrial) -> None:
        self._trial = trial
        self._workers = {role: trial.start_role(role) for role in ROLES}
        self._paused: dict[str, float] = {}
        trial.wait_for_progress("the start")

    def see_to_all(self) -> None:
        """Wake whose time has come, and see who ended."""
        for role, until in list(self._paused.items()):
            if time.monotonic() > until:
                self._wake(role)
        for role, worker in self._workers.items():
            if (status := worker.process.poll()) is not None:
                if not worker.events(REACHED):  # else it was killed later than it was waited for
                    self._trial.failed(f"{role} ended with {status}: {worker.events()[-2:]}")
                self._start(role)

    def calm(self, after: str) -> None:
        """Let all go on, and see that they work together."""
        for role in list(self._paused):
            self._wake(role)
        self.see_to_all()
        self._trial.wait_for_progress(after)
        self.see_to_all()

    def kill(self) -> None:
        """SIGKILL to a worker, at a moment of chance."""
        role = self._one()
        self._trial.aim()
        self._trial.note_hit()
        self._workers[role].kill()
        self._trial.tried(f"SIGKILL to {_named(role)}")
        self._start(role)

    def kill_at_a_step(self) -> None:
        """SIGKILL to a worker at a named step of either stage."""
        role = self._one()
        steps = COPY_STEPS[:-2] if role == "copies" else STEPS if role == "both" else JUDGE_STEPS
        step = self._trial.chance.choice(steps)
        self._workers[role].kill()
        passes = self._trial.chance.randint(1, PASSES_MAX)
        worker = self._start(role, at_step(step, passes, signal.SIGKILL))
        until = time.monotonic() + STEP_S
        while worker.process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        if worker.process.poll() is None:  # it has no partition of that stage now
            worker.kill()  # else the step would kill it at some later time, when nobody starts another one
            self._start(role)
            return
        if worker.events(REACHED):
            self._trial.note_hit()
            self._trial.tried(f"SIGKILL at {step}")
            self._start(role)

    def pause(self) -> None:
        """SIGSTOP to a worker, with SIGCONT after a time by chance."""
        role = self._one()
        self._trial.aim()
        stop_process(self._workers[role])
        self._paused[role] = time.monotonic() + self._trial.chance.uniform(*PAUSE_S)
        self._trial.tried(f"SIGSTOP to {_named(role)}")
        self._trial.pause_by_chance(*PAUSE_S)

    def kill_broker(self) -> None:
        """SIGKILL to the broker, which starts again."""
        trial, node = self._trial, self._trial.brokers.nodes[0]
        trial.aim()
        trial.note_hit()
        node.end(signal.SIGKILL)
        trial.pause_by_chance(*DOWN_S)
        node.start()
        trial.tried("SIGKILL to the broker")

    def move_first(self) -> None:
        """Move the first stage's offsets back."""
        trial = self._trial
        self._end_all()
        back = self._back(trial.copied(stable=True), {})
        if back:
            trial.reread = True
            there = trial.deployment
            move_offsets(there.bootstrap, trial.copying_group, back, there.source)
            trial.tried("offsets of the first stage moved back")
        self._start_all()

    def move_second(self) -> None:
        """Move the second stage's offsets back, within what is left of the middle topic."""
        trial = self._trial
        self._end_all()
        starts = patiently(lambda: trial.starts_of(trial.middle, PLACES))
        if back := self._back(trial.judged(stable=True), starts):
            there = trial.deployment
            move_offsets(there.bootstrap, there.group, back, trial.middle)
            trial.tried("offsets of the second stage moved back")
        self._start_all()

    def delete_group(self) -> None:
        """Delete either group."""
        trial = self._trial
        self._end_all()
        first = trial.chance.random() < 0.5
        group = trial.copying_group if first else trial.deployment.group
        trial.reread |= first
        delete_group(trial, group)
        trial.tried(f"group of the {'first' if first else 'second'} stage deleted")
        self._start_all()

    def trim(self) -> None:
        """Delete from the middle topic what the second stage has committed, while all work."""
        trial = self._trial
        before = {p: at for p, at in trial.judged(stable=True).items() if at}
        there = trial.deployment.bootstrap
        starts = patiently(lambda: trial.starts_of(trial.middle, PLACES))
        if before := {p: at for p, at in before.items() if at > starts[p]}:
            patiently(lambda: delete_records(there, trial.middle, before))
            trial.tried("middle topic trimmed up to what is committed")

    def delete_middle(self) -> None:
        """Delete the middle topic: each worker ends by itself, and is started again."""
        trial = self._trial
        for role in list(self._paused):
            self._wake(role)
        for (
            role,
            worker,
        ) in self._workers.items():  # one that has not looked at it yet waits for the next one
            wait_until(
                partial(worker.events, KNOWS[role]),
                ENDS_S,
                partial("{} does not begin".format, role),
            )
        trial.reread = True
        delete_topic(trial.deployment.bootstrap, trial.middle)
        trial.tried("middle topic deleted")
        self._see_each_end()
        wait_until(self._middle_is_there, ENDS_S, lambda: "no worker makes the middle topic")
        self._start("judges")

    def grow_input(self) -> None:
        """Add a partition to the input."""
        trial = self._trial
        trial.feeder.finish()
        trial.deployment.partitions += 1
        add_partitions(trial.deployment, trial.deployment.source)
        trial.tried("partition added to the input")
        trial.feed()

    def _see_each_end(self) -> None:
        """Each worker ends with a message, and is started again as soon as it has ended."""
        left, until = dict(self._workers), time.monotonic() + ENDS_S
        while left and time.monotonic() < until:
            for role, worker in list(left.items()):
                if (status := worker.process.poll()) is not None:
                    del left[role]
                    said = worker.events("worker_failed")
                    if not (said and status) and not worker.events(REACHED):
                        self._trial.failed(f"{role} ended with {status}: {worker.events()[-2:]}")
                    if role != "judges":  # it is no use to start it before its input is there
                        self._start(role)
            time.sleep(0.1)
        for role, worker in left.items():
            self._trial.failed(f"{role} goes on without its middle: {worker.events()[-2:]}")
            worker.kill()
            if role != "judges":
                self._start(role)

    def _middle_is_there(self) -> bool:
        try:
            end_offsets(self._trial.deployment.bootstrap, self._trial.middle)
        except LookupError:
            return False
        return True

    def _back(self, committed: Mapping[int, int], starts: Mapping[int, int]) -> dict[int, int]:
        chance = self._trial.chance
        return {
            p: chance.randint(starts.get(p, 0), at)
            for p, at in committed.items()
            if at > starts.get(p, 0) and chance.random() < MOVED_SHARE
        }

    def _one(self) -> str:
        awake = [role for role in self._workers if role not in self._paused]
        if not awake:
            self._wake(role := next(iter(self._paused)))
            return role
        return self._trial.chance.choice(awake)

    def _wake(self, role: str) -> None:
        continue_process(self._workers[role])
        del self._paused[role]

    def _end_all(self) -> None:
        """By SIGKILL or SIGTERM."""
        for role in list(self._paused):
            self._wake(role)
        self._trial.aim()
        for worker in self._workers.values():
            if self._trial.chance.random() < 0.5 or not worker.events("connecting"):
                worker.kill()
            elif (status := worker.interrupt()) and not worker.events(REACHED):
                self._trial.failed(f"a drain ended with {status}: {worker.events()[-2:]}")

    def _start_all(self) -> None:
        for role in self._workers:
            self._start(role)

    def _start(self, role: str, wanted: Mapping[str, object] | None = None) -> WorkerProcess:
        worker = self._workers[role] = self._trial.start_role(role, wanted)
        return worker


KNOWS = {"both": "joining", "copies": "repartition_starts", "judges": "joining"}
"""The line that each role logs when it has looked at the middle topic."""
JUDGE_STEPS = (*TRANSACTION_STEPS, "purging", "purged")


def _named(role: str) -> str:
    return "a worker of both stages" if role == "both" else f"a worker that {role}"
