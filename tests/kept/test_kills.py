"""A kept filter after real kills; more of them are in proof/kept."""

from pathlib import Path

from tests.kept.kills import played


def test_a_kill_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    """At any moment, while it is written, and while it is saved anew: a whole number of changes is left."""
    assert played(tmp_path / "seen", rounds=12, seed=7) > 100
