"""A worker that is broken on purpose, on a real broker: the oracle of `python -m proof chaos` must see it.

Rounds that keep their promise, and a worker that is broken in another way, are in proof/chaos/test_chaos.py.
"""

from pathlib import Path

import pytest

from proof.chaos.part import DOUBLES, proxied_broker, see_a_broken_promise


@pytest.mark.broker
@pytest.mark.private_broker
def test_the_oracle_sees_a_doubled_event(tmp_path: Path) -> None:
    """One that does not fold its output doubles some."""
    for brokers in proxied_broker():
        see_a_broken_promise(DOUBLES, brokers, tmp_path)
