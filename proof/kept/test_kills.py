"""Many kills of a process that changes a kept filter."""

from pathlib import Path

from tests.kept.kills import played


def test_no_kill_of_many_loses_what_was_flushed(tmp_path: Path) -> None:
    """Nor takes back what was taken out, nor leaves half a change."""
    assert played(tmp_path / "seen", rounds=400, seed=42) > 10_000
