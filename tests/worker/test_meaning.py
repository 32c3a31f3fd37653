"""One group, one meaning: workers that would take another key of an event wait; over a group in memory."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from streamdedup.commands.audit import audit
from streamdedup.kafka.client.patience import Patience
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load as load_settings
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.groups import Group
from streamdedup.testing.source import MemoryMember
from tests.deployment import Deployment
from tests.lists.files import list_file
from tests.local import LocalWorker, Start, on_virtual_clock

FIRST_EVENTS, USERS = 15_000, 5_000
REJOIN_S_MIN, REJOIN_S_MAX = 1.0, 5.0  # as promised
GAUGE = "streamdedup_group_of_another_configuration"


class Stage:
    """A broker in memory with two partitions, and workers of one group on it."""

    def __init__(self, directory: Path, start: Start) -> None:
        self.directory = directory
        self.deployment = Deployment("memory:1", directory, partitions=2)
        self.broker = MemoryBroker()
        self.broker.rebalance_s = 1
        self.broker.create_topic(self.deployment.source, 2)
        self.broker.create_topic(self.deployment.sink, 2)
        self._start = start

    @property
    def group(self) -> Group:
        """The workers' group."""
        return self.broker.group(self.deployment.group)

    def start(self, field: str = "id", **sections: dict[str, Any]) -> LocalWorker:
        """One more worker, with that field as its key, and more in the sections of its configuration."""
        config = self.deployment.config
        given = {**config, "key": {"field": field}}
        for name, options in sections.items():
            given[name] = {**given.get(name, {}), **options}
        self.deployment.config = given
        worker = self._start(self.deployment, connect=connected_to(self.broker))
        self.deployment.config = config
        return worker

    def feed(self, numbers: Iterable[int]) -> None:
        """Append events: each with an id of its own, several of one user, in two partitions."""
        values = {n: orjson.dumps({"id": n, "user": n % USERS}) for n in numbers}
        events = [(n % 2, None, value) for n, value in values.items()]
        self.broker.produce(self.deployment.source, events)

    def ids(self) -> list[int]:
        """The ids of the output's events, in order."""
        output = self.broker.read_all(self.deployment.sink)
        return sorted(orjson.loads(e.value or b"")["id"] for events in output for e in events)

    def loses_its_members(self) -> None:
        """As if all had slept through their sessions."""
        self.group.members.clear()

    async def is_free(self) -> None:
        """Wait until no member is left."""
        while self.broker.members(self.deployment.group):
            await asyncio.sleep(0.1)


def play(directory: Path, scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Run `scene` on a virtual clock."""
    on_virtual_clock(lambda start: scene(Stage(directory, start)))


def page(worker: LocalWorker, path: str) -> tuple[HTTPStatus, str]:
    """What the worker's server would answer."""
    found = pages(worker.worker.status, Pulse())[path]()
    return found.status, found.text


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_two_workers_with_different_keys_lose_no_first_event(
    tmp_path: Path, guarantee: str
) -> None:
    """The second would take the events of one user for duplicates; so it waits, and the first emits every id once."""

    async def scene(stage: Stage) -> None:
        stage.deployment.config["delivery"]["guarantee"] = guarantee
        first = stage.start()
        await first.live(2)
        second = stage.start("user")
        await second.logged("group_of_another_configuration")
        stage.feed(range(FIRST_EVENTS))
        await first.until(
            lambda: first.tally.consumed + second.tally.consumed >= FIRST_EVENTS, "consumed"
        )
        assert stage.ids() == list(range(FIRST_EVENTS))
        assert second.tally.consumed == 0

    play(tmp_path, scene)


def test_a_worker_that_is_refused_says_so_and_waits(tmp_path: Path) -> None:
    """A line a minute with both names, 503 on /readyz, 200 on /livez, a gauge; `give_up_after_s` does not count it."""

    async def scene(stage: Stage) -> None:
        first = stage.start()
        await first.live(2)
        second = stage.start("user", kafka={"give_up_after_s": 5})
        await asyncio.sleep(150)
        assert not second.task.done()
        ours, theirs = (w.lines("worker_starts")[0]["meaning"] for w in (second, first))
        lines = second.lines("group_of_another_configuration")
        assert len(lines) == 3
        for line in lines:
            assert (line["ours"], line["in_force"], line["members"]) == (ours, theirs, 1)
        status, text = page(second, "/readyz")
        assert status == HTTPStatus.SERVICE_UNAVAILABLE
        assert ours in text
        assert theirs in text
        assert page(second, "/livez")[0] == HTTPStatus.OK
        assert f"\n{GAUGE} 1.0" in page(second, "/metrics")[1]
        assert f"\n{GAUGE} 0.0" in page(first, "/metrics")[1]
        assert page(first, "/readyz")[0] == HTTPStatus.OK
        assert second.lines("broker_away") == second.lines("consumer_trouble") == []

    play(tmp_path, scene)


def test_two_lines_show_what_differs(tmp_path: Path) -> None:
    """Each worker prints the name of its meaning when it starts, and the parts that it stands for."""

    async def scene(stage: Stage) -> None:
        first, second = stage.start(), stage.start("user")
        ((one,), (two,)) = await first.logged("worker_starts"), await second.logged("worker_starts")
        assert one["meaning"] != two["meaning"]
        parts, others = one["meaning_parts"], two["meaning_parts"]
        assert [name for name in parts if parts[name] != others[name]] == ["key"]
        assert (parts["key"]["fields"], others["key"]["fields"]) == (["id"], ["user"])

    play(tmp_path, scene)


def test_a_sleeper_waits_where_the_group_has_changed_and_comes_back_by_itself(
    tmp_path: Path,
) -> None:
    """While it slept, workers with another key took the group; once they have gone, it folds what they emitted."""

    async def scene(stage: Stage) -> None:
        sleeper = stage.start("user", kafka={"give_up_after_s": 5})
        await sleeper.live(2)
        stage.feed(range(100))
        await sleeper.consumed(100)
        stage.loses_its_members()
        other = stage.start()
        await other.live(2)
        await sleeper.logged("group_of_another_configuration")
        stage.feed(range(USERS, USERS + 100))  # the same users, other ids
        await other.consumed(100)
        await asyncio.sleep(60)
        assert not sleeper.task.done()
        assert page(sleeper, "/readyz")[0] == HTTPStatus.SERVICE_UNAVAILABLE
        await other.stop()
        await sleeper.live(2)
        assert page(sleeper, "/readyz")[0] == HTTPStatus.OK
        assert f"\n{GAUGE} 0.0" in page(sleeper, "/metrics")[1]
        assert len(sleeper.lines("keys_changed")) == 2
        stage.feed(range(2 * USERS, 2 * USERS + 100))
        await sleeper.consumed(200)
        assert stage.ids() == [*range(100), *range(USERS, USERS + 100)]

    play(tmp_path, scene)


def test_who_is_refused_asks_every_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in step with others, and not in a hurry: 1 to 5 s lie between two requests, then and after a membership."""
    asked: dict[str, list[float]] = {}
    join = Group.join

    def noted(group: Group, name: str | None, member: Any, now: float, rebalance_s: float) -> str:
        asked.setdefault(member.assignor, []).append(now)
        return join(group, name, member, now, rebalance_s)

    async def scene(stage: Stage) -> None:
        monkeypatch.setattr(Group, "join", noted)
        first = stage.start()
        await first.live(2)
        second = stage.start("user")
        (line,) = await second.logged("group_of_another_configuration")
        await asyncio.sleep(60)
        at = asked[line["ours"]]
        gaps = [later - sooner for sooner, later in pairwise(at)]
        assert len(gaps) >= 60 / REJOIN_S_MAX - 1
        assert all(REJOIN_S_MIN <= gap <= REJOIN_S_MAX + 0.1 for gap in gaps)
        assert len(set(gaps)) == len(gaps)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("assignor", "whose"), [("sticky", "older version or another aiokafka"), ("range", "another")]
)
def test_a_member_that_is_no_worker_of_today_is_told_apart(
    tmp_path: Path, assignor: str, whose: str
) -> None:
    """A worker of before the names, or another program: the worker waits for it, too."""

    async def scene(stage: Stage) -> None:
        worker = stage.start()
        options = worker.worker._settings.kafka
        stranger = MemoryMember(
            stage.broker, options, [stage.deployment.source], Patience(), assignor
        )
        await stranger.start()
        (line,) = await worker.logged("group_of_another_configuration")
        assert line["in_force"] == assignor
        assert whose in line["whose"]
        await stranger.stop(1)
        await worker.live(2)

    play(tmp_path, scene)


def test_a_key_is_changed_by_stopping_all_and_starting_all(tmp_path: Path) -> None:
    """The output is folded by the new key, with a warning for what has none; the group's offsets stay."""

    async def scene(stage: Stage) -> None:
        before = [stage.start(), stage.start()]
        for worker in before:
            await worker.live(1)
        stage.broker.produce(stage.deployment.source, [(0, None, b'{"id": "no user"}')])
        stage.feed(range(100))
        await before[0].until(lambda: sum(w.tally.consumed for w in before) == 101, "consumed")
        await asyncio.gather(*(worker.stop() for worker in before))
        await stage.is_free()
        after = stage.start("user")
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
        output = stage.broker.read_all(stage.deployment.sink)
        assert sum(map(len, output)) == 101 + 50

    play(tmp_path, scene)


def test_what_another_key_dropped_comes_back(tmp_path: Path) -> None:
    """By the steps of docs/operate.md: an audit counts it, and after a reset it is emitted, and nothing else."""

    async def scene(stage: Stage) -> None:
        stage.feed(range(USERS + 300))
        wrong = stage.start("user")
        await wrong.consumed(USERS + 300)
        await wrong.stop()
        await stage.is_free()
        assert stage.ids() == list(range(USERS))
        right = stage.start("id")
        await right.live(2)
        assert len(right.lines("keys_changed")) == 2
        await right.stop()
        await stage.is_free()

        stage.deployment.config["key"] = {"field": "id"}
        settings = load_settings(stage.deployment.write_config())
        connect = connected_to(stage.broker)
        assert (await audit(settings, connect)).total.missing == 300
        earliest = dict.fromkeys(range(2), 0)
        stage.broker.move_offsets(stage.deployment.group, stage.deployment.source, earliest)
        right = stage.start("id")
        await right.consumed(USERS + 300)
        await right.stop()
        assert stage.ids() == list(range(USERS + 300))
        assert (await audit(settings, connect)).fine

    play(tmp_path, scene)


def test_a_doubt_after_the_first_commit_warns_of_nothing(tmp_path: Path) -> None:
    """The note is ours then: a rebalance, or a restart, is none of another meaning."""

    async def scene(stage: Stage) -> None:
        await (await through(stage, stage.start(), 0)).stop()
        after = await through(stage, stage.start("user"), 200)
        assert len(after.lines("keys_changed")) == 2
        await after.stop()
        again = await through(stage, stage.start("user"), 400)
        assert again.lines("keys_changed") == []
        assert again.lines("snapshot_loaded")

    async def through(stage: Stage, worker: LocalWorker, first: int) -> LocalWorker:
        await worker.live(2)
        stage.feed(range(first, first + 100))
        await worker.consumed(100)
        return worker

    play(tmp_path, scene)


def test_a_rollout_of_capacity_and_of_a_list_mixes(tmp_path: Path) -> None:
    """What decides neither keys nor outputs may differ: such workers share the group's partitions."""

    async def scene(stage: Stage) -> None:
        first = stage.start()
        await first.live(2)
        blocked = list_file(stage.directory / "block.list", [b"7"])
        second = stage.start(
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

    play(tmp_path, scene)
