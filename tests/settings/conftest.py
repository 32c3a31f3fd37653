"""Files that these tests name in a configuration."""

from pathlib import Path

import pytest

from tests.settings.minimal import MINIMAL


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a configuration that sets no more than it must."""
    path = tmp_path / "dedup.yaml"
    path.write_text(MINIMAL)
    return path


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """Return a file that exists."""
    path = tmp_path / "some.pem"
    path.write_text("pem")
    return path


@pytest.fixture
def listed(tmp_path: Path) -> str:
    """Return the override that names a readable block list; these tests do not read its content."""
    path = tmp_path / "block.list"
    path.write_bytes(b"a list")
    return f"blocklist.file={path}"
