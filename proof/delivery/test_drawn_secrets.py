"""More claims about drawn secrets: other machines, a former murmur3, and what hashing costs."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamdedup.commands.trial import tried
from streamdedup.keys.hashing import Hash
from streamdedup.settings import load as load_settings
from streamdedup.testing import connected_to
from tests.delivery.test_drawn_secrets import DRAWN, GIVEN, MURMUR3, Stage
from tests.lists.files import list_file
from tests.memory import over, page


@pytest.mark.parametrize(
    "named", [pytest.param(DRAWN, id="default"), pytest.param({"hash": "siphash"}, id="by name")]
)
@over(Stage)
async def test_without_the_log_a_snapshot_of_murmur3_is_kept_if_the_hash_was_left_to_the_default(
    stage: Stage, named: dict[str, str]
) -> None:
    """What the output no longer holds is not given up for a secret; the log warns. By name, the gap stops the shard."""
    stage.hashed_by(MURMUR3)
    await stage.through(range(100))
    stage.trim(50)
    stage.hashed_by(named)
    if named:
        stage.feed(range(90, 150))
        worker = stage.start()
        assert "begins at offset 50" in await worker.stopped()
        return
    for end in (150, 200):
        async with stage.start() as worker:
            await worker.live()
            shown = page(worker)
        await stage.through(range(end))
        (warned,) = worker.lines("hash_not_secret")
        assert "murmur3" in warned["reason"]
        assert worker.lines("snapshot_refused") == []
        assert shown.status == 200
        assert "events/0: its filter has no secret" in shown.text.replace(stage.source, "events")
        assert stage.headers()[-1].secret == b""
    assert stage.emitted() == list(range(50, 200))  # 0 to 49 were deleted, and not emitted again


@pytest.mark.parametrize(
    ("options", "secret"), [(DRAWN, "drawn"), (GIVEN, "configured"), (MURMUR3, "none")]
)
@over(Stage)
async def test_the_start_and_a_trial_name_the_hash(
    stage: Stage, options: dict[str, str], secret: str
) -> None:
    """Under murmur3 the promise has a condition, and a trial does not test that hash."""
    stage.hashed_by(options)
    worker = await stage.through(range(10))
    (line,) = worker.lines("worker_starts")
    is_murmur3 = options is MURMUR3
    assert (line["hash"], line["secret"]) == ("murmur3" if is_murmur3 else "siphash", secret)
    assert ("unless somebody chooses keys" in line["promise"]) == is_murmur3
    settings = load_settings(stage.deployment.write_config())
    trial = await tried(settings, 100, connected_to(stage.broker))
    assert ("not tested" in trial.as_text()) == is_murmur3
    assert trial.as_json()["notes"] == trial.notes


@over(Stage)
async def test_a_newer_snapshot_of_murmur3_goes_before_one_with_a_secret_that_leaves_a_gap(
    stage: Stage,
) -> None:
    """An upgrade that was rolled back and made again, while the output was trimmed: the newest snapshot has all."""
    await stage.through(range(100))
    stage.hashed_by(MURMUR3)
    await stage.through(range(200))
    log = stage.broker.topics[stage.sink].logs[0]
    log.trim(log.end - 20)
    stage.hashed_by(DRAWN)
    worker = await stage.through(range(250))
    assert worker.lines("hash_not_secret")
    assert not worker.lines("shard_stopped")
    assert len(stage.emitted()) == len({*stage.emitted()})
    assert {*range(200, 250)} <= {*stage.emitted()} <= {*range(150, 250)}


@over(partial(Stage, partitions=2))
async def test_a_kept_snapshot_of_murmur3_outdoes_a_filter_in_memory(stage: Stage) -> None:
    """Another worker has saved it, and the output was trimmed before the partition came back."""
    stage.hashed_by(MURMUR3)
    stage.feed(range(100), 0)
    await stage.through(range(100), 1)
    logs = stage.broker.topics[stage.sink].logs
    for log in logs:
        log.trim(50)
    stage.hashed_by(DRAWN)
    first = await stage.started()
    second = stage.start()
    await second.live(1)
    (moved,) = second.worker.deliveries
    stage.feed(range(100, 150), moved)
    await second.consumed(50)
    await second.stop()
    logs[moved].trim(logs[moved].end)
    stage.feed(range(160), moved)
    await first.consumed(160)
    assert first.lines("memory_outdone")
    assert stage.emitted(moved) == list(range(150, 160))
    await first.stop()


@over(Stage)
async def test_a_key_is_digested_once_by_its_filter_and_once_for_what_partitions_share(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch for keys in several partitions digests what it does not know; lists digest every key."""
    rows: list[tuple[bool, int]] = []
    of_column = Hash.of_column

    def counting(self: Hash, keys: Any) -> Any:
        rows.append((self.drawn, len(keys)))
        return of_column(self, keys)

    monkeypatch.setattr(Hash, "of_column", counting)
    await stage.through(range(3000))
    assert sum(count for drawn, count in rows if drawn) == 3000
    assert 3000 <= sum(count for drawn, count in rows if not drawn) < 3030
    rows.clear()
    listed = list_file(tmp_path / "block.list", [b"k3"])
    stage.config["blocklist"] = {"file": str(listed), "on_positive": "drop"}
    await stage.through(range(3000, 5000))
    assert sum(count for drawn, count in rows if not drawn) >= 2000
