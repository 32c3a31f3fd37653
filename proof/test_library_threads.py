"""Four threads at one filter, and forks beside unions."""

import copy
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import streamdedup
from streamdedup import ClassicBloom
from streamdedup.filters.base import Removable
from tests.broker.base import DEADLINE_S
from tests.library import built, in_time, key_of, keys_of, ways
from tests.test_library_threads import fork_beside

THREADS = 4


@pytest.fixture
def short_turns() -> Iterator[None]:
    """Threads lose the interpreter as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@ways
@pytest.mark.usefixtures("short_turns")
def test_of_four_threads_one_adds_a_key_and_one_removes_it(
    kind: str, options: Mapping[str, Any], tmp_path: Path
) -> None:
    """In batches and one by one, while a fifth copies and saves it: each key is new once, and none is lost."""
    rounds, batch, single = 5, (400 if (kind, options) == ("bitmap", {}) else 8_000), 50
    total = rounds * (batch + single)
    seen = built(kind, total // (8 if "on_full" in options else 1), **options)
    numbers = np.arange(total).reshape(rounds, -1)
    batches = [keys_of(seen, row[single:]) for row in numbers]
    singles = [[key_of(seen, int(number)) for number in row[:single]] for row in numbers]
    at = in_time(seen, np.zeros(batch, np.int64))

    def add(number: int) -> int:
        new = np.count_nonzero(seen.add_many(batches[number], *at))
        return int(new) + sum(bool(seen.add(key, *in_time(seen, 0))) for key in singles[number])

    def discard(number: int) -> int:
        gone = np.count_nonzero(seen.remove_many(batches[number]))
        return int(gone) + sum(bool(seen.discard(key)) for key in singles[number])

    def look(number: int) -> None:
        path = tmp_path / f"{number}"
        streamdedup.save(seen, path)
        assert len(copy.copy(seen)) >= len(streamdedup.load(path))
        assert repr(seen)
        assert seen.fill_ratio >= 0

    *new, _ = run(rounds, *[add] * THREADS, look)
    assert np.sum(new) == len(seen) == total
    assert seen.contains_many(keys_of(seen, numbers.ravel())).all()
    streamdedup.save(seen, tmp_path / "all")
    assert streamdedup.load(tmp_path / "all").contains_many(keys_of(seen, numbers.ravel())).all()
    if isinstance(seen, Removable) and (not seen.multiset or seen.copies_max >= THREADS):
        gone = run(rounds, *[discard] * THREADS)
        assert np.sum(gone) == total * (THREADS if seen.multiset else 1)
        assert (
            len(seen) == np.count_nonzero(seen.contains_many(keys_of(seen, numbers.ravel()))) == 0
        )


@pytest.mark.usefixtures("short_turns")
def test_of_four_threads_one_adds_a_key_to_a_classic_filter() -> None:
    """A copy of it is whole, too."""
    seen = ClassicBloom(1 << 18, 3)
    new = run(4, *[lambda number: sum(seen.add(f"{number} {i}") for i in range(500))] * THREADS)
    assert np.sum(new) == len(seen) == 2000
    for other in (copy.copy(seen), copy.deepcopy(seen), pickle.loads(pickle.dumps(seen))):  # noqa: S301 - our own
        assert "1 7" in other
        assert other.add("another")
        assert (len(other), len(seen)) == (2001, 2000)
    assert "another" not in seen


@pytest.mark.skipif(sys.platform == "darwin", reason="its libraries refuse a fork among threads")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that it has threads
def test_a_fork_and_a_union_do_not_wait_for_each_other() -> None:
    """Both take the locks of two filters: in one order, whichever of them is on the left."""
    filters = [built("bloom", 100) for _ in range(8)]
    ended = threading.Event()

    def unite() -> None:
        while not ended.is_set():
            for one, other in permutations(filters, 2):
                one.__ior__(other)

    def fork() -> None:
        for _ in range(40):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
        ended.set()

    for call in (unite, fork):
        threading.Thread(target=call, daemon=True).start()
    assert ended.wait(60)


def run(rounds: int, *calls: Callable[[int], object]) -> list[list[Any]]:
    """What each returned in each round, by call, each in a thread of its own. All begin a round at one time."""
    start = threading.Barrier(len(calls), timeout=DEADLINE_S)
    found: list[list[Any]] = [[] for _ in calls]
    failed: list[BaseException] = []

    def work(call: Callable[[int], object], answers: list[Any]) -> None:
        try:
            for number in range(rounds):
                start.wait()
                answers.append(call(number))
        except BaseException as error:  # it is raised below
            start.abort()
            failed.append(error)

    threads = [threading.Thread(target=work, args=each) for each in zip(calls, found, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found


@pytest.mark.skipif(sys.platform == "darwin", reason="its libraries refuse a fork among threads")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that it has threads
def test_a_child_can_compile_what_a_thread_compiles_at_the_fork() -> None:
    """Kernels, too, find no lock of a thread that there is not."""

    def compile_one() -> None:
        numba.njit(lambda number: number + 1)(1)

    fork_beside(compile_one, compile_one)
