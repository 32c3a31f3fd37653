"""The part of the matrix that `make test-all` plays (proof/chaos/test_chaos.py), as the documents name it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from proof.chaos.brokers import OneBroker
from proof.chaos.driver import ATTEMPTS_MAX, play, play_round
from proof.chaos.matrix import SCENARIOS, Scenario
from proof.chaos.signals import kill_unsaved
from proof.chaos.trial import Trial
from proof.chaos.worker import broken
from tests.broker.base import Unavailable
from tests.broker.plugin import NO_BROKER, do_without

TRANSACTION_APIS = (
    2  # the round whose three faults hit AddPartitionsToTxn, AddOffsetsToTxn and EndTxn
)
END_TXN_IS_CUT = 8  # the round of one fault that cuts the connection before EndTxn


@dataclass(frozen=True)
class SmallRound:
    """Round `number` of a scenario, of `size` faults."""

    scenario: str
    number: int
    size: int


@dataclass(frozen=True)
class BrokenRound(SmallRound):
    """One with a worker that breaks `promise`, so that the oracle must see what is `breach`.

    `play`: faults of the same sort that always hit where the promise counts, if those of the scenario may miss it.
    """

    promise: str
    breach: str
    play: Callable[[Trial, int], None] | None = None

    @property
    def scenario_played(self) -> Scenario:
        """The scenario, with `play` in the place of its own."""
        scenario = SCENARIOS[self.scenario]
        return scenario if self.play is None else replace(scenario, play=self.play)


KILLED = SmallRound("step", 0, size=4)
KEPT: Sequence[SmallRound] = (
    KILLED,
    SmallRound("network", TRANSACTION_APIS, size=3),
)
LOSES = BrokenRound("network", END_TXN_IS_CUT, 1, promise="doubt is success", breach="lost")
DOUBLES = BrokenRound(  # a kill by chance may come before the first event is out, and leave nothing to fold
    "kill", 0, 1, promise="no fold", breach="doubled", play=kill_unsaved
)
BROKEN: Sequence[BrokenRound] = (LOSES, DOUBLES)


def one_broker() -> Iterator[OneBroker]:
    """Yield a broker whose log files can be read; without one the test is skipped."""
    try:
        found = OneBroker()
    except Unavailable as unavailable:
        do_without(f"{NO_BROKER}{unavailable}")
    with closing(found):
        yield found


def keep_the_promise(small: SmallRound, brokers: OneBroker, directory: Path) -> None:
    """Play a round, again if no aborted record reached the output; AssertionError if it breaks its promise."""
    for attempt in range(ATTEMPTS_MAX):
        result = play_round(
            SCENARIOS[small.scenario],
            small.number,
            attempt,
            brokers,
            directory,
            seed="test",
            code="-",
            size=small.size,
        )
        assert not result.failures
        if result.counts:
            break
    assert result.counts, "no aborted record reached the output in any attempt"
    assert sum(result.tried.values()) == small.size


def see_a_broken_promise(small: BrokenRound, brokers: OneBroker, directory: Path) -> None:
    """Play a round with a worker that is broken on purpose; AssertionError unless the oracle sees it."""
    trial = Trial(brokers, directory, f"broken {small.promise}", number=small.number)
    trial.broken = broken(small.promise)
    finding = play(small.scenario_played, trial, small.size)
    assert finding is not None, trial.count.failures
    breached = getattr(finding, small.breach)
    assert breached > 0
    assert any(f"{small.breach} {breached}" in failure for failure in trial.count.failures)


def in_words() -> list[str]:
    """The lines that tell it in the documents."""
    return [
        f"`make test-all` plays {len(KEPT)} short rounds of these (`proof/chaos/test_chaos.py`), one each of",
        f"{_named(KEPT)};",
        f"and {len(BROKEN)} with a worker that was broken on purpose, which the oracle must see:",
        f"{_named(BROKEN)}.",
    ]


def _named(rounds: Sequence[SmallRound]) -> str:
    told = [f"`{small.scenario}` ({_counted(small.size)})" for small in rounds]
    return f"{', '.join(told[:-1])} and {told[-1]}"


def _counted(faults: int) -> str:
    return f"{faults} fault" if faults == 1 else f"{faults} faults"
