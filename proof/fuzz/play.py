"""Play inputs of a target by seed and number, here or in another process that may crash, hang or fill its memory."""

import multiprocessing
import resource
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from proof.fuzz import corpus
from proof.fuzz.targets import TARGETS

HANG_S = 30.0  # for one input; none takes a second
ROOM_BYTES = 2 << 30  # memory beyond what the libraries take
START_S = 120.0  # for libraries to be imported, and kernels compiled


@dataclass(frozen=True)
class Fault:
    """An input at which a parser did what it does not document."""

    target: str
    seed: int
    number: int
    error: str


class Player:
    """The inputs of one target and seed."""

    def __init__(self, target: str, seed: int) -> None:
        self.target, self.seed = target, seed
        self._of, self._corpus = TARGETS[target], corpus.read(target)
        self.refused = 0

    def input(self, number: int) -> bytes:
        """Return the input of that number; it depends on nothing else but the target and the seed."""
        random = Random(f"{self.target}/{self.seed}/{number}")
        return self._of.mutator(random, random.choice(self._corpus), self._corpus)

    def play(self, number: int) -> None:
        """Raise the error of a fault, if the input is one."""
        self.run(self.input(number))

    def run(self, data: bytes) -> None:
        """Have the parser read `data`, and count a refusal."""
        try:
            self._of.run(data)
        except self._of.refusals:
            self.refused += 1


def play_apart(target: str, seed: int, seconds: float) -> tuple[int, Fault | None]:
    """Play inputs in a process of their own, up to the first fault; return how many, and the fault."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    at = context.Value("q", -1, lock=False)
    process = context.Process(target=_play, args=(target, seed, seconds, at, theirs), daemon=True)
    process.start()
    theirs.close()
    last, patience = -1, START_S
    while process.is_alive():
        process.join(patience)
        if process.is_alive() and at.value == last:
            process.kill()
            process.join()
            return at.value, Fault(target, seed, at.value, f"took more than {HANG_S} s")
        last, patience = at.value, HANG_S
    try:
        error: str = ours.recv()
    except EOFError:  # it has nothing to report
        error = f"the process ended with status {process.exitcode}" if process.exitcode else ""
    return at.value + 1, Fault(target, seed, at.value, error) if error else None


def _play(target: str, seed: int, seconds: float, at: Any, answer: Connection) -> None:
    player, number = Player(target, seed), 0
    player.play(0)
    _limit_memory()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        at.value = number
        try:
            player.play(number)
        except BaseException:
            answer.send(traceback.format_exc())
            return
        number += 1


def _limit_memory() -> None:
    """Have an input that takes too much memory fail. Only Linux reports what is taken already."""
    pages = Path("/proc/self/statm")
    if pages.exists():
        room = int(pages.read_text().split()[0]) * resource.getpagesize() + ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
