"""Claims about a kind that no configuration names: that of the snapshot stays; over a broker in memory."""

from tests.delivery.test_drawn_secrets import Stage
from tests.memory import over


def name(stage: Stage, kind: str | None) -> None:
    """Name the kind of the filter, or none."""
    stage.config["filter"].pop("kind", None)
    if kind:
        stage.config["filter"]["kind"] = kind


def kinds(stage: Stage) -> set[str]:
    """Those of the snapshots."""
    return {header.identity.kind for header in stage.headers()}


@over(Stage)
async def test_the_kind_of_a_snapshot_stays_until_another_is_named(stage: Stage) -> None:
    """As after an upgrade to a version with another default: what retention took from the output is still known."""
    name(stage, "bloom")
    await stage.through(range(10))
    stage.trim(5)
    name(stage, None)
    worker = await stage.through(range(20))
    [line] = worker.lines("kind_kept")
    assert (line["kind"], line["default"]) == ("bloom", "cuckoo")
    assert not worker.lines("snapshot_refused")
    assert stage.emitted() == [*range(5, 20)]
    assert kinds(stage) == {"bloom"}
    name(stage, "cuckoo")
    async with stage.start() as worker:
        [line] = await worker.logged("shard_stopped")
    assert "set filter.kind: bloom, and nothing is lost" in line["error"]


@over(Stage)
async def test_a_kind_that_is_kept_stays_over_a_doubt(stage: Stage) -> None:
    """The filter in memory is that of the snapshot, and goes on."""
    name(stage, "bloom")
    await stage.through(range(10))
    name(stage, None)
    worker = await stage.started()
    stage.trim(5)
    (delivery,) = worker.worker.deliveries.values()
    assert delivery.shard is not None
    kept = delivery.shard.filter
    stage.broker.transaction(f"{stage.sink}/0").fence(60)
    stage.feed(range(10, 20))
    await worker.logged("doubt")
    await worker.logged("shard_live", 2)
    assert delivery.shard is not None
    assert delivery.shard.filter is kept
    await worker.stop()


@over(Stage)
async def test_a_snapshot_that_differs_otherwise_keeps_no_kind(stage: Stage) -> None:
    """The output is folded into a filter of the default kind."""
    name(stage, "bloom")
    await stage.through(range(10))
    name(stage, None)
    stage.config["filter"]["capacity"] = 5000
    worker = await stage.through(range(20))
    assert not worker.lines("kind_kept")
    assert stage.emitted() == [*range(20)]
    assert kinds(stage) == {"bloom", "cuckoo"}
