"""The processes of one test run share a broker, and each has its part of the tests that wait for it."""

import threading
from pathlib import Path

import pytest

from tests.broker import shared
from tests.broker.base import Broker, free_ports
from tests.broker.plugin import dealt
from tests.broker.shared import shared_broker

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


def test_a_broker_that_went_with_its_process_is_replaced(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address is still written down, and nobody answers there."""
    monkeypatch.setattr(shared, "ANSWER_S", 0)
    (port,) = free_ports(1)
    gone = shared_broker(tmp_path, lambda: Started(f"127.0.0.1:{port}"))
    started = Started(broker.bootstrap_servers)
    found = shared_broker(tmp_path, lambda: started)
    assert found.bootstrap_servers == broker.bootstrap_servers
    closing = threading.Thread(target=gone.close)
    closing.start()
    found.close()
    closing.join()
    assert started.closed == 1


def never() -> Broker:
    """Must not be called: a broker is there."""
    raise AssertionError("a second broker was started")


# --- the order ---


@pytest.mark.parametrize("workers", [1, 3, 7])
@pytest.mark.parametrize(("waiting", "others"), [(600, 5300), (0, 10), (10, 0), (1, 1)])
def test_no_test_is_lost_or_doubled_by_the_order(waiting: int, others: int, workers: int) -> None:
    """The order holds every test once."""
    tests = dealt(list(range(waiting)), list(range(waiting, waiting + others)), workers)
    assert sorted(tests) == list(range(waiting + others))
