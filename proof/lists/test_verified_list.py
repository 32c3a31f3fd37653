"""Stores that come late, and are closed in time."""

import asyncio
import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from streamdedup.delivery.lists import Loaded, load_list
from streamdedup.delivery.recipe import Recipe
from streamdedup.lists import KeyList
from streamdedup.lists.exact_store import ExactStore, place_of
from streamdedup.lists.verified_list import VerifiedList
from streamdedup.metrics.counts import Meters
from streamdedup.rules.lists import Lists, ListsInForce, Match
from streamdedup.worker import lists
from tests.delivery.test_recipe import lists_of
from tests.delivery.test_recipe import recipe as worker_recipe
from tests.lists.test_verified_list import ON_IT, OTHERS, VERIFY, asked, decide, made, positives
from tests.lists.test_verified_list import listed as listed  # noqa: PLC0414 - a fixture
from tests.lists.test_verified_list import store as store  # noqa: PLC0414 - a fixture
from tests.local import until
from tests.rules.test_lists import BLOCKED, DUPLICATE, PASS, admit, shard_of


def test_every_event_that_is_asked_for_is_counted_once(listed: KeyList, store: ExactStore) -> None:
    """So the measured error rate is exact: false positives by all that are not on the list."""
    shard, lists = shard_of(), Lists(block=VerifiedList(listed, store))
    keys = [key for key in [*ON_IT, *OTHERS] for _ in range(2)]
    verdicts, _ = decide(shard, keys, lists)
    admit(shard)
    wrong = len(positives(listed, OTHERS))
    _, absent, confirmed, false = shard.tally.by_answer.tolist()
    assert (absent, confirmed, false) == (2 * (600 - wrong), 600, 2 * wrong)
    assert shard.tally[BLOCKED] == np.count_nonzero(verdicts == BLOCKED) == 600
    assert (shard.tally[PASS], shard.tally[DUPLICATE]) == (600, 600)


async def test_a_store_that_comes_after_its_list_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is refused once, logged once, and tried again and again; nobody has to touch it."""
    (tmp_path / "other").mkdir()
    made(tmp_path, ON_IT)
    version = made(tmp_path / "other", [*ON_IT, "new@example.com"]).version
    tries = list[str]()

    def counted(made_: Recipe, which: str, path: Path) -> Loaded:
        tries.append(which)
        return load_list(made_, which, path)

    monkeypatch.setattr(lists, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(lists, "AGAIN_S", 0.001)
    monkeypatch.setattr(lists, "AGAIN_S_MAX", 0.002)
    monkeypatch.setattr(lists, "load_list", counted)
    made_ = worker_recipe(tmp_path, f"blocklist.file={tmp_path}/block.list", *VERIFY)
    found, meters = ListsInForce(), Meters()
    await (keeps := lists_of(made_, found, meters)).begin()
    with capture_logs() as lines:
        watching = asyncio.create_task(keeps.run())
        (tmp_path / "other" / "block.list").replace(tmp_path / "block.list")
        await until(lambda: len(tries) > 5, lambda: lines)
        (tmp_path / "other" / "block.list.exact" / version).rename(
            tmp_path / "block.list.exact" / version
        )
        await until(lambda: getattr(found.now.block, "version", None) == version, lambda: lines)
        watching.cancel()
    assert [line["event"] for line in lines] == ["list_refused", "list_in_force"]
    assert meters.list_refusals["blocklist"] == 1


def test_a_store_is_closed_when_the_last_batch_lets_go_of_it(tmp_path: Path) -> None:
    """Not before: a batch ends with the lists with which it began."""
    listed = made(tmp_path, ON_IT)
    lists = Lists(
        block=VerifiedList(listed, ExactStore.open(place_of(tmp_path / "block.list"), listed))
    )
    assert isinstance(lists.block, VerifiedList)
    held = weakref.ref(lists.block.store)
    shard = shard_of()
    decided = decide(shard, [ON_IT[0]], lists)
    del lists
    gc.collect()
    assert held() is not None
    assert asked(decided.blocked.lists.block, ON_IT[:1]) == [Match.ADDRESS]  # type: ignore[arg-type] # it is there
    del decided
    gc.collect()
    assert held() is None
