"""The part of the matrix that `make test` plays (tests/broker/test_chaos.py), as the documents name it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.driver import ATTEMPTS_MAX

PART_S_MAX = 180
BROKER_S = 15
TRANSACTION_APIS = (
    2  # the round whose three faults hit AddPartitionsToTxn, AddOffsetsToTxn and EndTxn
)
END_TXN_IS_CUT = 8  # the round of one fault that cuts the connection before EndTxn


@dataclass(frozen=True)
class SmallRound:
    """Round `number` of a scenario, of `size` faults. `seconds`: what it took on two busy cores, rounded up."""

    scenario: str
    number: int
    size: int
    seconds: int


@dataclass(frozen=True)
class BrokenRound(SmallRound):
    """One with a worker that breaks `promise`, so that the oracle must see what is `breach`.

    It is played `attempts` times at most: a fault by chance may hit where nothing is to be broken.
    """

    promise: str
    breach: str
    attempts: int = 1


KEPT: Sequence[SmallRound] = (
    SmallRound("step", 0, size=4, seconds=22),
    SmallRound("network", TRANSACTION_APIS, size=3, seconds=15),
)
BROKEN: Sequence[BrokenRound] = (
    BrokenRound(
        "network", END_TXN_IS_CUT, 1, seconds=10, promise="doubt is success", breach="lost"
    ),
    BrokenRound(  # a kill right after a snapshot, or before the first event came out, leaves nothing to fold
        "kill", 0, 2, seconds=10, promise="no fold", breach="doubled", attempts=ATTEMPTS_MAX
    ),
)


def seconds_at_most() -> int:
    """What all of it takes where each round that may be played again is."""
    kept = sum(small.seconds for small in KEPT)
    broken = sum(small.attempts * small.seconds for small in BROKEN)
    return BROKER_S + ATTEMPTS_MAX * kept + broken


def in_words() -> list[str]:
    """The lines that tell it in the documents."""
    return [
        f"`make test` plays {len(KEPT)} short rounds of these (`tests/broker/test_chaos.py`), one each of",
        f"{_named(KEPT)};",
        f"and {len(BROKEN)} with a worker that was broken on purpose, which the oracle must see:",
        f"{_named(BROKEN)}.",
        f"That is at most {PART_S_MAX // 60} minutes on two cores, even if rounds that do not count are played"
        f" {ATTEMPTS_MAX} times.",
    ]


def _named(rounds: Sequence[SmallRound]) -> str:
    told = [f"`{small.scenario}` ({_counted(small.size)})" for small in rounds]
    return f"{', '.join(told[:-1])} and {told[-1]}"


def _counted(faults: int) -> str:
    return f"{faults} fault" if faults == 1 else f"{faults} faults"
