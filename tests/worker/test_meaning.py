"""One group, one meaning: workers that would take another key of an event wait; over a group in memory."""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
import pytest
from typing_extensions import override

from streamdedup.testing.groups import Group
from tests import memory
from tests.lists.files import list_file
from tests.local import LocalWorker, Start
from tests.memory import over, page

FIRST_EVENTS, USERS = 15_000, 5_000
GAUGE = "streamdedup_group_of_another_configuration"


class Stage(memory.Stage):
    """Two partitions, and workers of one group, which rebalances soon."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start, 2)
        self.broker.rebalance_s = 1

    @property
    def group(self) -> Group:
        """The workers' group."""
        return self.broker.group(self.deployment.group)

    def keyed_by(self, field: str = "id", **sections: dict[str, Any]) -> LocalWorker:
        """Start one more worker, with that field as its key, and more in the sections of its configuration."""
        config = self.config
        given = {**config, "key": {"field": field}}
        for name, options in sections.items():
            given[name] = {**given.get(name, {}), **options}
        self.deployment.config = given
        worker = self.start()
        self.deployment.config = config
        return worker

    @override
    def feed(self, numbers: Iterable[int]) -> None:
        """Append events: each with an id of its own, several of one user, in two partitions."""
        values = {n: orjson.dumps({"id": n, "user": n % USERS}) for n in numbers}
        events = [(n % 2, None, value) for n, value in values.items()]
        self.broker.produce(self.source, events)

    def ids(self) -> list[int]:
        """The ids of the output's events, in order."""
        return sorted(orjson.loads(event.value or b"")["id"] for event in self.output)

    def loses_its_members(self) -> None:
        """As if all had slept through their sessions."""
        self.group.members.clear()

    async def is_free(self) -> None:
        """Wait until no member is left."""
        while self.broker.members(self.deployment.group):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@over(Stage)
async def test_two_workers_with_different_keys_lose_no_first_event(
    stage: Stage, guarantee: str
) -> None:
    """The second would take the events of one user for duplicates; so it waits, and the first emits every id once."""
    stage.config["delivery"]["guarantee"] = guarantee
    first = stage.keyed_by()
    await first.live(2)
    second = stage.keyed_by("user")
    await second.logged("group_of_another_configuration")
    stage.feed(range(FIRST_EVENTS))
    await first.until(
        lambda: first.tally.consumed + second.tally.consumed >= FIRST_EVENTS, "consumed"
    )
    assert stage.ids() == list(range(FIRST_EVENTS))
    assert second.tally.consumed == 0


@over(Stage)
async def test_a_worker_that_is_refused_says_so_and_waits(stage: Stage) -> None:
    """A line a minute with both names, 503 on /readyz, 200 on /livez, a gauge; `give_up_after_s` does not count it."""
    first = stage.keyed_by()
    await first.live(2)
    second = stage.keyed_by("user", kafka={"give_up_after_s": 5})
    await asyncio.sleep(150)
    assert not second.task.done()
    ours, theirs = (w.lines("worker_starts")[0]["meaning"] for w in (second, first))
    lines = second.lines("group_of_another_configuration")
    assert len(lines) == 3
    for line in lines:
        assert (line["ours"], line["in_force"], line["members"]) == (ours, theirs, 1)
    ready = page(second)
    assert ready.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert ours in ready.text and theirs in ready.text
    assert page(second, "/livez").status == HTTPStatus.OK
    assert f"\n{GAUGE} 1.0" in page(second, "/metrics").text
    assert f"\n{GAUGE} 0.0" in page(first, "/metrics").text
    assert page(first, "/readyz").status == HTTPStatus.OK
    assert second.lines("broker_away") == second.lines("consumer_trouble") == []


@over(Stage)
async def test_a_sleeper_waits_where_the_group_has_changed_and_comes_back_by_itself(
    stage: Stage,
) -> None:
    """While it slept, workers with another key took the group; once they have gone, it folds what they emitted."""
    sleeper = stage.keyed_by("user", kafka={"give_up_after_s": 5})
    await sleeper.live(2)
    stage.feed(range(100))
    await sleeper.consumed(100)
    stage.loses_its_members()
    other = stage.keyed_by()
    await other.live(2)
    await sleeper.logged("group_of_another_configuration")
    stage.feed(range(USERS, USERS + 100))  # the same users, other ids
    await other.consumed(100)
    await asyncio.sleep(60)
    assert not sleeper.task.done()
    assert page(sleeper, "/readyz").status == HTTPStatus.SERVICE_UNAVAILABLE
    await other.stop()
    await sleeper.live(2)
    assert page(sleeper, "/readyz").status == HTTPStatus.OK
    assert f"\n{GAUGE} 0.0" in page(sleeper, "/metrics").text
    assert len(sleeper.lines("keys_changed")) == 2
    stage.feed(range(2 * USERS, 2 * USERS + 100))
    await sleeper.consumed(200)
    assert stage.ids() == [*range(100), *range(USERS, USERS + 100)]


@pytest.mark.rule(15)
@over(Stage)
async def test_a_key_is_changed_by_stopping_all_and_starting_all(stage: Stage) -> None:
    """The output is folded by the new key, with a warning for what has none; the group's offsets stay."""
    before = [stage.keyed_by(), stage.keyed_by()]
    for worker in before:
        await worker.live(1)
    stage.broker.produce(stage.deployment.source, [(0, None, b'{"id": "no user"}')])
    stage.feed(range(100))
    await before[0].until(lambda: sum(w.tally.consumed for w in before) == 101, "consumed")
    await asyncio.gather(*(worker.stop() for worker in before))
    await stage.is_free()
    after = stage.keyed_by("user")
    await after.live(2)
    changed = after.lines("keys_changed")
    assert {line["partition"] for line in changed} == {0, 1}
    (start,) = after.lines("worker_starts")
    assert start["meaning"].startswith(f"streamdedup-{changed[0]['ours']}")
    assert (
        before[0]
        .lines("worker_starts")[0]["meaning"]
        .startswith(f"streamdedup-{changed[0]['theirs']}")
    )
    folds = {line["partition"]: line for line in after.lines("output_folded")}
    assert all(line["start"] == 0 for line in folds.values())
    assert (folds[0]["without_key"], folds[0]["log_level"]) == (1, "warning")
    assert (folds[1]["without_key"], folds[1]["log_level"]) == (0, "info")
    assert after.lines("shard_stopped") == []
    stage.feed(range(USERS, USERS + 150))  # of 150 users, 100 are known
    await after.consumed(150)
    assert len(stage.output) == 101 + 50


@over(Stage)
async def test_a_rollout_of_capacity_and_of_a_list_mixes(stage: Stage) -> None:
    """What decides neither keys nor outputs may differ: such workers share the group's partitions."""
    first = stage.keyed_by()
    await first.live(2)
    blocked = list_file(stage.deployment.directory / "block.list", [b"7"])
    second = stage.keyed_by(
        filter={"capacity": 5_000, "kind": "cuckoo"},
        blocklist={"file": str(blocked)},
        delivery={"guarantee": "at_least_once"},
    )
    await second.live(1)
    await first.live(1)
    assert second.lines("group_of_another_configuration") == []
    stage.feed(range(100))
    await first.until(lambda: first.tally.consumed + second.tally.consumed == 100, "consumed")
    (served,) = second.worker.deliveries
    assert stage.ids() == [n for n in range(100) if n != 7 or served != 7 % 2]
