"""The processes of one test run share a broker, and each has its part of the tests that wait for it."""

import threading
from itertools import product
from pathlib import Path

from tests.broker.base import Broker
from tests.broker.plugin import dealt
from tests.broker.shared import shared_broker
from tests.rows import every

SOON_S = 0.2


class Started:
    """Stands for a broker that was started, at an address that answers; counts how often it is closed."""

    owned = True

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers, self.closed = bootstrap_servers, 0

    def close(self) -> None:
        """Count."""
        self.closed += 1


def test_the_first_process_starts_a_broker_and_the_others_take_it(
    broker: Broker, tmp_path: Path
) -> None:
    """All get one address, and the broker ends after the last user has closed it."""
    started = Started(broker.bootstrap_servers)
    first = shared_broker(tmp_path, lambda: started)
    second = shared_broker(tmp_path, never)
    assert first.bootstrap_servers == second.bootstrap_servers == broker.bootstrap_servers
    assert first.owned and second.owned
    closing = threading.Thread(target=first.close)
    closing.start()
    closing.join(SOON_S)
    assert (closing.is_alive(), started.closed) == (True, 0)
    second.close()
    closing.join()
    first.close()
    assert started.closed == 1


def never() -> Broker:
    """Must not be called: a broker is there."""
    raise AssertionError("a second broker was started")


# --- the order ---


def test_no_test_is_lost_or_doubled_by_the_order() -> None:
    """The order holds every test once."""

    def check(row: tuple[tuple[int, int], int]) -> None:
        (waiting, others), workers = row
        tests = dealt(list(range(waiting)), list(range(waiting, waiting + others)), workers)
        assert sorted(tests) == list(range(waiting + others))

    sizes = [(600, 5300), (0, 10), (10, 0), (50, 7), (1, 1)]
    every(product(sizes, [1, 2, 3, 4, 7]), check)
