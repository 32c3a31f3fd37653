"""Claims about the pace of questions beside a worker: one CPU-second in ten, whatever the pieces are."""

import asyncio

import pytest

from streamdedup.explain.pace import OWED_S_MIN, REST_S_MAX, SHARE, Pace, RestingSelector


class Machine:
    """A clock, the CPU time of one thread, and a sleep that takes as long as it should."""

    def __init__(self) -> None:
        self.now_s = self.worked_s = 0.0
        self.sleeps = list[float]()
        self.pace = Pace(lambda: self.now_s, lambda: self.worked_s, self._sleep)

    def work(self, seconds: float) -> None:
        """Take so much CPU time."""
        self.now_s += seconds
        self.worked_s += seconds

    def wait(self, seconds: float) -> None:
        """Wait for a broker."""
        self.now_s += seconds

    def _sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds


@pytest.mark.parametrize("piece_s", [0.0001, 0.005, 0.05, 2.0])
def test_a_tenth_is_worked(piece_s: float) -> None:
    """At every moment, but for one piece; no rest is so long that a time-out would end meanwhile."""
    machine = Machine()
    with machine.pace.turn() as turn:
        for _ in range(2_000):
            machine.work(piece_s)
            turn.rest()
            left_s = REST_S_MAX if piece_s > REST_S_MAX * SHARE else OWED_S_MIN
            most_s = machine.now_s * SHARE + piece_s + left_s
            assert machine.worked_s <= most_s or machine.sleeps[-1] == REST_S_MAX
    assert max(machine.sleeps) <= REST_S_MAX


def test_what_is_left_is_rested_later() -> None:
    """A long piece is paid for by the rests after it, however little is worked then."""
    machine = Machine()
    with machine.pace.turn() as turn:
        machine.work(2.0)
        while machine.now_s < 30:
            turn.rest()
            machine.wait(0.001)
            if machine.now_s < 20:
                assert machine.sleeps[-1] > 0
    assert sum(machine.sleeps) == pytest.approx(18, abs=0.5)


def test_waiting_counts_and_is_not_saved_up() -> None:
    """Who waits for a broker need not rest then, and may not work the more afterwards."""
    machine = Machine()
    with machine.pace.turn() as turn:
        machine.work(0.01)
        machine.wait(0.2)
        turn.rest()
        assert not machine.sleeps
        machine.wait(1_000)
        turn.rest()
        machine.work(0.01)
        turn.rest()
    assert machine.sleeps == [pytest.approx(0.09)]


def test_all_together_have_one_share() -> None:
    """Two threads have half of it each, while they take turns."""
    machine = Machine()
    with machine.pace.turn() as turn:
        assert machine.pace.share == SHARE
        with machine.pace.turn():
            assert machine.pace.share == SHARE / 2
            machine.work(0.01)
            turn.rest()
        assert machine.pace.share == SHARE
    assert machine.sleeps == [pytest.approx(0.19)]


def test_a_loop_rests_before_each_of_its_turns() -> None:
    """What a turn has cost is rested, even if nothing else calls for it."""
    machine = Machine()

    async def scene() -> None:
        for _ in range(10):
            machine.work(0.01)
            await asyncio.sleep(0)

    with (
        machine.pace.turn() as turn,
        asyncio.Runner(
            loop_factory=lambda: asyncio.SelectorEventLoop(RestingSelector(turn))
        ) as runner,
    ):
        runner.run(scene())
    assert sum(machine.sleeps) == pytest.approx(0.9)
