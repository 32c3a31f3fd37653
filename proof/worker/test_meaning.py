"""More claims about workers of other meanings: what is said of them, when they ask, and what comes back."""

import asyncio

from streamdedup.commands.audit import audit
from streamdedup.kafka.groups import InForce
from streamdedup.settings import load as load_settings
from streamdedup.testing import connected_to
from streamdedup.worker.group_watch import (
    NAMED_S_MAX,
)
from tests.local import LocalWorker
from tests.memory import over
from tests.worker.test_group_watch import OURS, REBALANCING, STABLE, THEIRS, Group, watched
from tests.worker.test_meaning import USERS, Stage

REJOIN_S_MIN, REJOIN_S_MAX = 1.0, 5.0  # as promised


@over(Stage)
async def test_two_lines_show_what_differs(stage: Stage) -> None:
    """Each worker prints the name of its meaning when it starts, and the parts that it stands for."""
    first, second = stage.keyed_by(), stage.keyed_by("user")
    ((one,), (two,)) = await first.logged("worker_starts"), await second.logged("worker_starts")
    assert one["meaning"] != two["meaning"]
    parts, others = one["meaning_parts"], two["meaning_parts"]
    assert [name for name in parts if parts[name] != others[name]] == ["key"]
    assert (parts["key"]["fields"], others["key"]["fields"]) == (["id"], ["user"])


@over(Stage)
async def test_what_another_key_dropped_comes_back(stage: Stage) -> None:
    """By the steps of docs/operate.md: an audit counts it, and after a reset it is emitted, and nothing else."""
    stage.feed(range(USERS + 300))
    wrong = stage.keyed_by("user")
    await wrong.consumed(USERS + 300)
    await wrong.stop()
    await stage.is_free()
    assert stage.ids() == list(range(USERS))
    right = stage.keyed_by("id")
    await right.live(2)
    assert len(right.lines("keys_changed")) == 2
    await right.stop()
    await stage.is_free()

    stage.config["key"] = {"field": "id"}
    settings = load_settings(stage.deployment.write_config())
    connect = connected_to(stage.broker)
    assert (await audit(settings, connect)).total.missing == 300
    earliest = dict.fromkeys(range(2), 0)
    stage.broker.move_offsets(stage.deployment.group, stage.deployment.source, earliest)
    right = stage.keyed_by("id")
    await right.consumed(USERS + 300)
    await right.stop()
    assert stage.ids() == list(range(USERS + 300))
    assert (await audit(settings, connect)).fine


@over(Stage)
async def test_a_doubt_after_the_first_commit_warns_of_nothing(stage: Stage) -> None:
    """The note is ours then: a rebalance, or a restart, is none of another meaning."""

    async def through(stage: Stage, worker: LocalWorker, first: int) -> LocalWorker:
        await worker.live(2)
        stage.feed(range(first, first + 100))
        await worker.consumed(100)
        return worker

    await (await through(stage, stage.keyed_by(), 0)).stop()
    after = await through(stage, stage.keyed_by("user"), 200)
    assert len(after.lines("keys_changed")) == 2
    await after.stop()
    again = await through(stage, stage.keyed_by("user"), 400)
    assert again.lines("keys_changed") == []
    assert again.lines("snapshot_loaded")


def test_the_name_last_seen_stays_while_the_group_rebalances() -> None:
    """The broker names none then, and may not answer either."""

    async def scene(group: Group) -> None:
        group.answer = STABLE
        group.refuse()
        await asyncio.sleep(5)
        for answer in (REBALANCING, ConnectionError(), InForce(OURS, ("c",))):
            group.answer = answer
            await asyncio.sleep(60)
            assert THEIRS in group.says

    lines = watched(scene)
    assert [line["in_force"] for line in lines] == [THEIRS] * 4


def test_the_first_line_waits_a_little_for_a_name() -> None:
    """A group that just rebalances names its assignor soon; one that never does is reported all the same."""

    async def soon(group: Group) -> None:
        group.refuse()
        await asyncio.sleep(NAMED_S_MAX / 2)
        assert "not known yet" in group.says
        group.answer = STABLE
        await asyncio.sleep(2)

    async def never(group: Group) -> None:
        group.refuse()
        await asyncio.sleep(2 * NAMED_S_MAX)

    assert [line["in_force"] for line in watched(soon)] == [THEIRS]
    assert [line["in_force"] for line in watched(never)] == [None]
