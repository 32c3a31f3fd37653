"""Saves beside a thread that adds."""

import threading

from tests.snapshot.conftest import shelf as shelf  # noqa: PLC0414 - a fixture
from tests.snapshot.shelf import Shelf, bloom, digests, table
from tests.snapshot.test_while_adding import holds_all


def test_a_save_beside_a_thread_that_adds_holds_all_that_came_before(shelf: Shelf) -> None:
    """Several saves while another thread never stops adding; and nothing that was never added."""
    filter_ = bloom(keys=20_000, capacity=2_000_000)
    stop = threading.Event()

    def add() -> None:
        for seed in range(10, 1_000_000):
            filter_.add_many(digests(100, seed))
            if stop.is_set():
                return

    adder = threading.Thread(target=add)
    adder.start()
    try:
        saves = [(table(filter_), shelf.save(filter_, label)) for label in (1, 2, 3)]
    finally:
        stop.set()
        adder.join()
    for label, (before, path) in zip((3, 2, 1), reversed(saves), strict=True):
        loaded = shelf.load()
        assert loaded is not None
        assert (loaded.label, shelf.refusals) == (label, [])
        assert holds_all(loaded.filter, before)
        assert holds_all(filter_, table(loaded.filter))
        path.unlink()
    assert len(filter_) > 20_000
