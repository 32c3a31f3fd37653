"""Claims about the archive of a broker's classes: made once, and done without where none can be made."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.base import Unavailable
from tests.broker.classes import shared_classes


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A file in the place of Java."""
    path = tmp_path / "java"
    path.write_bytes(b"one")
    return path


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    """A cache with two jars."""
    paths = [tmp_path / "a.jar", tmp_path / "b.jar"]
    for path in paths:
        path.touch()
    return paths


def making(calls: list[Path], content: bytes = b"classes") -> Callable[[Path], None]:
    """Give what makes an archive of this content, if it has any."""

    def make(path: Path) -> None:
        calls.append(path)
        if not content:
            raise Unavailable("this Java knows no archives")
        path.write_bytes(content)

    return make


def test_it_is_made_once_for_each_java(java: Path, jars: list[Path]) -> None:
    """The next broker finds it; that of another Java does not. No other file is left."""
    calls: list[Path] = []
    first = shared_classes(str(java), jars, making(calls))
    assert shared_classes(str(java), jars, making(calls)) == first
    (option,) = first
    archive = Path(option.removeprefix("-XX:SharedArchiveFile="))
    assert archive.read_bytes() == b"classes"
    assert len(calls) == 1
    java.write_bytes(b"another")
    assert shared_classes(str(java), jars, making(calls)) != first
    assert len(calls) == 2
    assert not any(path.exists() for path in calls)


def test_where_none_can_be_made_nobody_tries_again(java: Path, jars: list[Path]) -> None:
    """Brokers then start as Java does by itself."""
    calls: list[Path] = []
    for _ in range(2):
        assert shared_classes(str(java), jars, making(calls, b"")) == []
    assert len(calls) == 1
