"""Claims about schemas on disk: what is read is what was written, or nothing."""

import os
import stat
from pathlib import Path

import pytest

from streamdedup.keys.formats.schema import Reference, Schema
from streamdedup.registry import cache as cache_module
from streamdedup.registry.cache import FOLDER, Cache

SCHEMA = Schema("AVRO", '{"type":"é"}', (Reference("a", "A"), Reference("b", "B")))


def files(directory: Path) -> list[Path]:
    """Return the files of all registries."""
    return sorted((directory / FOLDER).glob("*/*"))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """By any process, and only its owner may read it."""
    Cache(tmp_path, "http://a").write(7, SCHEMA)
    assert Cache(tmp_path, "http://a").read(7) == SCHEMA
    assert Cache(tmp_path, "http://a").read(8) is None
    (file,) = files(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_each_registry_and_context_has_its_own(tmp_path: Path) -> None:
    """The same id is another schema there."""
    Cache(tmp_path, "http://a").write(7, SCHEMA)
    assert Cache(tmp_path, "http://a/contexts/.eu").read(7) is None
    assert Cache(tmp_path, "http://b").read(7) is None


def test_a_damaged_file_counts_as_missing(tmp_path: Path) -> None:
    """Whichever byte is another, or missing; it is written anew."""
    cache = Cache(tmp_path, "http://a")
    cache.write(7, SCHEMA)
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    for at in range(len(whole)):
        for wrong in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole[:at]):
            file.write_bytes(wrong)
            assert cache.read(7) is None
    cache.write(7, SCHEMA)
    assert cache.read(7) == SCHEMA


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were written first go."""
    monkeypatch.setattr(cache_module, "FILES_MAX", 3)
    cache = Cache(tmp_path, "http://a")
    for number in range(5):
        cache.write(number, SCHEMA)
        for age, file in enumerate(files(tmp_path)):
            os.utime(file, (age, age))
    assert [file.name for file in files(tmp_path)] == ["2", "3", "4"]


def test_a_disk_that_fails_stops_nothing(tmp_path: Path) -> None:
    """Nothing is kept then, as without a directory."""
    place = tmp_path / "a file"
    place.write_text("")
    for cache in (Cache(place, "http://a"), Cache(None, "http://a")):
        cache.write(7, SCHEMA)
        assert cache.read(7) is None
