"""One round of kills on a real broker, and a worker that is broken on purpose, which the oracle must see.

More rounds, and a worker that is broken in another way, are in proof/chaos/test_chaos.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.chaos.brokers import OneBroker
from proof.chaos.part import DOUBLES, KILLED, keep_the_promise, one_broker, see_a_broken_promise

pytestmark = [pytest.mark.broker, pytest.mark.private_broker]


@pytest.fixture(scope="module")
def brokers() -> Iterator[OneBroker]:
    """A broker whose log files can be read."""
    yield from one_broker()


def test_a_round_of_kills_keeps_its_promise(brokers: OneBroker, tmp_path: Path) -> None:
    """A worker is killed at four steps of a transaction: nothing lost, nothing twice."""
    keep_the_promise(KILLED, brokers, tmp_path)


def test_the_oracle_sees_a_doubled_event(brokers: OneBroker, tmp_path: Path) -> None:
    """A worker that does not fold its output doubles some."""
    see_a_broken_promise(DOUBLES, brokers, tmp_path)
