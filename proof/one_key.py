"""`python -m proof one-key --minutes N`: builtins of filters, at random, where a wrong address is a crash.

Programs of random steps run in a process of their own, under a debug allocator, which fills memory that was given back,
and with faulthandler. Filters are made, grow, are saved, loaded and mapped, copied, pickled and dropped, and garbage is
collected, while single keys, batches and threads change them. What a filter should answer says one without builtins.
Status 1 if an answer differs, or the process ends before its time; the output then has the seed of the program.
"""

import argparse
import copy
import faulthandler
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import numpy as np

import streamdedup
from tests.library import WAYS, built, in_time, no_builtins, pickled

STEPS = 400  # of a program
CAPACITIES = (20, 300, 3000)
MOST = 8  # filters at once
NOW = 10**12
KEYS: tuple[Callable[[str], Any], ...] = (
    str,
    str.encode,
    lambda text: b"\xff" + text.encode(),
    lambda text: int.from_bytes(text.encode()),
    lambda text: (text, (len(text), text.encode())),
    lambda text: UUID(bytes=text.encode()[-16:].rjust(16)),
)
"""From a text to a key."""


class Program:
    """Random steps over filters, each beside one without builtins."""

    def __init__(self, seed: int, directory: Path) -> None:
        self._draw, self._directory = Random(seed), directory
        self._pairs: list[tuple[Any, Any]] = []
        self._kept: list[Any] = []  # methods that outlive the names of their filters
        self._time = NOW

    def run(self) -> None:
        """Play it. AssertionError if two filters differ."""
        steps = (
            self._one,
            self._many,
            self._make,
            self._restore,
            self._drop,
            self._keep,
            self._race,
        )
        for _ in range(STEPS):
            if not self._pairs:
                self._make()
            self._time += self._draw.randrange(10**8) * (self._draw.random() < 0.1)
            self._draw.choices(steps, (80, 8, 3, 4, 2, 2, 1))[0]()

    def _key(self, one: Any) -> Any:
        text = "k" * self._draw.choice((0, 0, 3, 9, 40)) + "é" * self._draw.randrange(2)
        text += str(self._draw.randrange(500))
        weights = (
            (10, 4, 0, 0, 0, 0) if one.hash.facts else (10, 4, 1, 1, 1, 1)
        )  # only texts are normalized
        return self._draw.choices(KEYS, weights)[0](text)

    def _one(self) -> None:
        fast, slow = self._draw.choice(self._pairs)
        at = in_time(fast, self._time)
        for _ in range(self._draw.randrange(1, 60)):
            key, name = (
                self._key(fast),
                self._draw.choice(("add", "add", "__contains__", "discard")),
            )
            if hasattr(fast, name):
                given = (key, *(at if name == "add" else []))
                assert getattr(fast, name)(*given) == getattr(slow, name)(*given), name

    def _many(self) -> None:
        fast, slow = self._draw.choice(self._pairs)
        digests = fast.digests([self._key(fast) for _ in range(self._draw.randrange(200))])
        name = self._draw.choice(("add_many", "contains_many", "remove_many"))
        times = [np.full(len(digests), self._time)] if in_time(fast, 0) else []
        if hasattr(fast, name):
            given = (digests, *(times if name == "add_many" else []))
            assert np.array_equal(getattr(fast, name)(*given), getattr(slow, name)(*given)), name

    def _make(self) -> None:
        kind, options = self._draw.choice([way for way in WAYS if "range" not in way[1]])
        capacity = self._draw.choice(CAPACITIES)
        options = {**options, **({"normalize": "lowercase"} if self._draw.random() < 0.1 else {})}
        with no_builtins():
            slow = built(kind, capacity, **options)
        self._pairs.append((built(kind, capacity, **options), slow))
        del self._pairs[:-MOST]

    def _restore(self) -> None:
        """Put a copy in place of a filter, or one that was saved; of a mapped one, only ask."""
        at = self._draw.randrange(len(self._pairs))
        fast, slow = self._pairs[at]
        way = self._draw.randrange(4)
        if way == 0:
            fast = copy.copy(fast)
        elif way == 1:
            fast = pickled(fast)
        else:
            streamdedup.save(fast, self._directory / "saved")
            fast = streamdedup.load(self._directory / "saved", mmap=way == 2)
        for _ in range(20):
            key = self._key(fast)
            assert (key in fast) == (key in slow)
        if way != 2:
            self._pairs[at] = fast, slow

    def _drop(self) -> None:
        del self._pairs[self._draw.randrange(len(self._pairs))]
        gc.collect()

    def _keep(self) -> None:
        """Call methods of filters that nobody names any more."""
        self._kept.append([copy.copy(one).add for one in self._draw.choice(self._pairs)])
        del self._kept[:-MOST]
        add, by_python = self._draw.choice(self._kept)
        key, at = self._key(add.__self__), in_time(add.__self__, self._time)
        assert add(key, *at) == by_python(key, *at)

    def _race(self) -> None:
        """Two threads; no key is lost, whoever wins."""
        fast, _ = self._pairs.pop(self._draw.randrange(len(self._pairs)))
        at, keys = in_time(fast, self._time), [self._key(fast) for _ in range(300)]

        def one_by_one() -> None:
            for key in keys:
                fast.add(key, *at)

        def together() -> None:
            times = [np.full(len(keys), self._time)] if at else []
            fast.add_many(fast.digests(keys), *times)

        threads = [threading.Thread(target=work) for work in (one_by_one, together, one_by_one)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        forgets = hasattr(fast, "clock") and fast.clock.by_count
        assert forgets or all(key in fast for key in keys)


def play(seed: int, seconds: float) -> None:
    """Play programs from a seed on, in this process; the seed of each is printed first."""
    faulthandler.enable()
    warnings.simplefilter("ignore", streamdedup.FilterFullWarning)
    sys.setswitchinterval(1e-5)
    until = time.monotonic() + seconds
    with TemporaryDirectory() as directory:
        while time.monotonic() < until:
            print(seed, flush=True)
            Program(seed, Path(directory)).run()
            seed += 1


def play_apart(seed: int, seconds: float) -> tuple[int, str]:
    """Do so in a process of its own; return how many programs came to their end, and what went wrong."""
    command = [
        sys.executable,
        "-m",
        "proof.one_key",
        "--play",
        str(seed),
        "--minutes",
        str(seconds / 60),
    ]
    environment = os.environ | {"PYTHONMALLOC": "debug", "MALLOC_PERTURB_": "165"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    begun = done.stdout.split()
    if not done.returncode:
        return len(begun), ""
    return len(
        begun
    ) - 1, f"seed {begun[-1] if begun else seed}, status {done.returncode}\n{done.stderr}"


def main() -> int:
    """Return the status."""
    parser = argparse.ArgumentParser(prog="python -m proof one-key", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--play", type=int, metavar="SEED", help="here, from this program on")
    asked = parser.parse_args()
    if asked.play is not None:
        play(asked.play, asked.minutes * 60)
        return 0
    played, fault = play_apart(asked.seed, asked.minutes * 60)
    print(f"{played} programs from seed {asked.seed} on\n{fault}".rstrip())
    return bool(fault)


if __name__ == "__main__":
    sys.exit(main())
