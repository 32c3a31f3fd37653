"""Workers that join, leave, die and pause, so that partitions never stay long where they are."""

import signal
import time

from proof.chaos.trial import Trial, continue_process, stop_process
from tests.deployment import WorkerProcess

WORKERS_MAX = 4
PAUSE_S = (0.5, 6.0)  # on both sides of the session's time-out
TURN_S = (0.2, 1.2)
KINDS = ("cuckoo", "window", "dleft", "counting", "dlcbf")
SESSIONS_MS = (3000, 6000)


def rebalance_storm(trial: Trial, seconds: int) -> None:
    """One to four workers for so long, with something done to one of them about every second."""
    storm = _Storm(trial)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        storm.turn()
        trial.pause_by_chance(*TURN_S)
    storm.calm()


def storm_of_kinds(trial: Trial, seconds: int) -> None:
    """The same with a kind of filter that no other scenario has, by the round, and with longer sessions."""
    config = trial.deployment.config
    kind = KINDS[trial.number % len(KINDS)]
    config["filter"]["kind"] = kind
    if kind == "window":
        config["filter"]["retention"] = "1d"
    session_ms = trial.chance.randint(*SESSIONS_MS)
    config["kafka"]["consumer"]["session_timeout_ms"] = session_ms
    rebalance_storm(trial, seconds)


class _Storm:
    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._awake: list[WorkerProcess] = []
        self._paused: list[tuple[float, WorkerProcess]] = []
        self._leaving: list[WorkerProcess] = []

    def turn(self) -> None:
        """Wake whose time has come, see who ended, and do one thing to one worker."""
        trial = self._trial
        for until, worker in list(self._paused):
            if time.monotonic() > until:
                self._wake(until, worker)
        self._see_who_ended()
        act = trial.chance.choice(("join", "leave", "kill", "pause", "kill"))
        if not self._awake or (act == "join" and self._count() < WORKERS_MAX):
            if self._count() < WORKERS_MAX:
                self._awake.append(trial.start())
                trial.tried("worker joins")
            return
        worker = trial.chance.choice(self._awake)
        if not worker.events("connecting"):
            return  # it has no signal handlers yet
        if act == "leave":
            worker.process.send_signal(signal.SIGTERM)
            self._awake.remove(worker)
            self._leaving.append(worker)
            trial.tried("worker leaves (SIGTERM)")
        elif act == "kill":
            trial.note_hit()
            worker.kill()
            self._awake.remove(worker)
            trial.tried("worker killed (SIGKILL)")
        elif act == "pause":
            stop_process(worker)
            self._awake.remove(worker)
            self._paused.append((time.monotonic() + trial.chance.uniform(*PAUSE_S), worker))
            trial.tried("worker paused (SIGSTOP)")

    def calm(self) -> None:
        """Let all go on, and see that they work together."""
        for until, worker in list(self._paused):
            self._wake(until, worker)
        if not self._awake:
            self._awake.append(self._trial.start())
        self._trial.wait_for_progress("the storm")
        self._see_who_ended()
        for worker in self._awake:
            worker.process.send_signal(signal.SIGTERM)
        for worker in [*self._awake, *self._leaving]:
            if status := worker.process.wait(60):
                self._trial.failed(f"a worker ended with {status}: {worker.events()[-2:]}")

    def _count(self) -> int:
        return len(self._awake) + len(self._paused)

    def _wake(self, until: float, worker: WorkerProcess) -> None:
        continue_process(worker)
        self._paused.remove((until, worker))
        self._awake.append(worker)

    def _see_who_ended(self) -> None:
        for worker in list(self._awake):
            if (status := worker.process.poll()) is not None:
                self._awake.remove(worker)
                self._trial.failed(f"a worker ended with {status}: {worker.events()[-2:]}")
