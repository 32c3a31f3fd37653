"""The fixture that all tests of snapshots share."""

from pathlib import Path

import pytest

from tests.snapshot.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """Make an empty store."""
    return Shelf(tmp_path / "snapshots")
