"""What cannot be removed from the directory of snapshots: it is said once, and no save fails for it."""

from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from streamdedup import filters
from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.metrics.counts import ShardMeters
from streamdedup.settings import load
from tests.delivery.test_windowed_shard import column, shard_of
from tests.snapshot.shelf import IDENTITY

CONFIG = """\
kafka: {bootstrap_servers: localhost:9092, group_id: dedup}
source: {topic: events}
key: {field: id}
filter: {capacity: 4000, error_rate: 1e-3}
sink: {topic: unique}
"""


@pytest.mark.parametrize("suffix", ["snapshot", "tmp", "snapshot.broken"])
async def test_a_directory_with_a_snapshots_name_is_said_once(tmp_path: Path, suffix: str) -> None:
    """Each save counts as saved; the line comes again only if it was gone meanwhile."""
    path = tmp_path / "dedup.yaml"
    path.write_text(f"{CONFIG}snapshot: {{directory: {tmp_path}, keep: 1}}\n")
    meters = ShardMeters()
    snapshots = ShardSnapshots(load(path, environ={}), 0, structlog.get_logger(), meters)
    foreign = snapshots._store.path / f"{9:016d}.{suffix}"
    shard = shard_of(filters.build({"kind": "bloom", "capacity": 10, "error_rate": 0.1}))
    for _ in shard.fold(*column((b"key", 0)), 5):
        pass
    lines: list[Any] = []
    for action in (None, foreign.mkdir, None, None, foreign.rmdir, foreign.mkdir, None):
        if action:
            action()
        with capture_logs() as logs:
            await snapshots.save(shard, IDENTITY, again=True)
        lines.append([(line["event"], line.get("path")) for line in logs])
    saved, left = ("snapshot_saved", None), ("snapshot_leftover", str(foreign))
    assert lines == [[saved], [saved, left], [saved], [saved], [saved], [saved, left], [saved]]
    assert (meters.snapshots_saved, meters.snapshots_failed) == (7, 0)
