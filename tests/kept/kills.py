"""Processes that change a kept filter until they are killed: `python -m tests.kept.kills` is the one that forks them.

It reads the directory of a round and the first number, forks a child for it, and prints the child's id. The child does
to the directory what `step` says, for each number in turn, prints a number when it has flushed all up to it, and a dot
when it has done so many more.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import IO, Any, NoReturn

import streamdedup
from streamdedup.kept import journal
from streamdedup.kept.kept import Kept

OPTIONS: dict[str, Any] = {"kind": "cuckoo", "capacity": 10_000, "error_rate": 1e-9}
BEFORE = 3  # how many numbers later a key is taken out
TAKEN_OUT = 7  # every so many numbers
SHOWN = 40  # numbers, after which a dot is printed
FLUSHED = 300  # numbers, after which it is flushed, on average
ROUND = 1_000_000  # numbers
ROUNDS_A_DIRECTORY = 20


def is_taken_out(number: int) -> bool:
    """Whether the key of a number is taken out when that of `number + BEFORE` is added."""
    return (number + BEFORE) % TAKEN_OUT == 0


class Nursery:
    """A process whose children are killed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._in, self._out = _pipe(process.stdin), _pipe(process.stdout)

    def play(self, directory: Path, first: int, lines: int) -> int:
        """Have numbers from `first` on added, kill the child after so many lines; return the last that was flushed."""
        print(directory, first, file=self._in, flush=True)
        child, flushed = int(self._out.readline()), first - 1
        for number in count():
            line = self._out.readline()
            if number == lines:
                os.kill(child, signal.SIGKILL)
            if line == "killed\n":
                return flushed
            if line.strip(".\n") and line.endswith("\n"):
                flushed = int(line)
        raise AssertionError


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Start one, and end it."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.kept.kills"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Nursery(process)
        finally:
            process.kill()


def played(directory: Path, rounds: int, seed: int) -> int:
    """Play so many rounds, some in each directory below this; return how many keys were flushed.

    AssertionError if one is not as it should be.

    After each kill it has what was flushed, and some of what came next, up to one change and no further.
    """
    chance, flushed = Random(seed), 0
    known = list[int]()  # of the rounds before
    with nursery() as process:
        for number in range(rounds):
            first = number * ROUND
            if not number % ROUNDS_A_DIRECTORY:
                known.clear()
            one = directory / str(number // ROUNDS_A_DIRECTORY)
            last = process.play(one, first, chance.randrange(30))
            flushed += last - first + 1
            with streamdedup.open(one, **OPTIONS) as seen:
                assert all(str(key) in seen for key in known), f"round {number} of seed {seed}"
                found = [key for key in range(first, last + 20_000) if str(key) in seen]
                _check_prefix(first, last, found, f"round {number} of seed {seed}")
                known += found
                known = chance.sample(known, min(len(known), 1000))
    return flushed


def _check_prefix(first: int, flushed: int, found: list[int], where: str) -> None:
    most = max(found, default=first - 1)
    assert most >= flushed, where
    taken = [key for key in range(first, most + 1) if is_taken_out(key)]
    whole, without_last = (
        sorted(set(range(first, most + 1)) - {key for key in taken if key + BEFORE <= end})
        for end in (most, most - 1)
    )
    assert found == whole or (found == without_last and most > flushed), where


def _main() -> None:
    """Fork a child for each line of the input."""
    journal.LOG_BYTES_MAX = 4000  # so that it is often saved anew
    with TemporaryDirectory() as directory:
        for _ in range(2):  # the second time it is loaded
            with streamdedup.open(Path(directory, "warm"), **OPTIONS) as seen:
                _step(seen, TAKEN_OUT - BEFORE)
                seen.add_many(["many"])
    for line in sys.stdin:
        directory, first = line.split()
        child = os.fork()
        if not child:
            _changes(directory, int(first))
        print(child, flush=True)
        os.waitpid(child, 0)
        print("\nkilled", flush=True)


def _changes(directory: str, first: int) -> NoReturn:
    chance = Random(first)
    with streamdedup.open(directory, **OPTIONS) as seen:
        for number in count(first):
            _step(seen, number)
            if chance.random() < 1 / FLUSHED:
                seen.flush()
                print(number, flush=True)
            elif number % SHOWN == 0:
                print(".", flush=True)
    raise AssertionError


def _step(seen: Kept, number: int) -> None:
    if number % 5:
        seen.add(str(number))
    else:
        seen.add_many([str(number)])
    if is_taken_out(number - BEFORE):
        seen.discard(str(number - BEFORE))


def _pipe(of: "IO[str] | None") -> "IO[str]":
    assert of is not None
    return of


if __name__ == "__main__":
    _main()
