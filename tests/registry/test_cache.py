"""Claims about schemas on disk: what is read is what was written, or nothing."""

import asyncio
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Barrier
from typing import cast
from unittest.mock import patch

import pytest

from streamdedup.errors import DeliveryError
from streamdedup.kafka.registry_options import SchemaRegistryOptions
from streamdedup.keys.formats.schema import Reference, Schema
from streamdedup.registry import cache as cache_module
from streamdedup.registry.cache import FOLDER, Cache
from streamdedup.registry.client import Client
from streamdedup.registry.registry import Registry, RegistryPatience
from tests.registry.stand_ins import PlayedClient, avro

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


def test_a_command_only_reads(tmp_path: Path) -> None:
    """It makes no directory, either."""
    Cache(tmp_path / "none", "http://a", reads_only=True).write(7, SCHEMA)
    assert not (tmp_path / "none").exists()
    Cache(tmp_path, "http://a").write(7, SCHEMA)
    assert Cache(tmp_path, "http://a", reads_only=True).read(7) == SCHEMA


@pytest.mark.usefixtures("no_umask")
def test_directories_are_for_their_owner(tmp_path: Path) -> None:
    """All that are made, whatever the umask leaves."""
    Cache(tmp_path / "a" / "b", "http://a").write(7, SCHEMA)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(made) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.chmod(0o666),
        lambda file: file.parent.chmod(0o777),
        lambda file: file.parents[1].chmod(0o777),
        lambda file: file.symlink_to(file.rename(file.with_name("other"))),
        pytest.param(
            lambda file: os.chown(file, 65534, 0),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others"),
        ),
    ],
    ids=["file", "folder", "all", "link", "owner"],
)
def test_what_others_could_have_written_counts_as_missing(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Whoever decides what a schema is decides what the key of an event is. The registry is asked."""
    cache = Cache(tmp_path, "http://a")
    cache.write(7, SCHEMA)
    (file,) = files(tmp_path)
    file.chmod(0o660)  # as the fsGroup of a pod has it
    assert cache.read(7) == SCHEMA
    change(file)
    assert cache.read(7) is None


@pytest.mark.parametrize("numbers", [(9, 4), (30, 20, 10, 40)])
def test_of_ids_that_have_other_schemas_now_the_newest_is_named(
    tmp_path: Path, numbers: Sequence[int]
) -> None:
    """Whichever the registry answers first: a registry that was restored lost its newest ones for certain."""
    cache, client = Cache(tmp_path, "one"), PlayedClient(dict.fromkeys(numbers, avro(("n", "int"))))
    for second, number in enumerate(numbers):
        cache.write(number, avro(("n", "long")))
        os.utime(Path(cache.place) / f"{number}", (second, second))
    turn, answer = Barrier(len(numbers)), client.schema

    def oldest_first(number: int | str) -> Schema:
        turn.wait(60)
        time.sleep(0.05 * numbers.index(int(number)))
        return answer(number)

    with patch.object(client, "schema", oldest_first):
        options = SchemaRegistryOptions(url="http://registry.example")
        registry = Registry(options, cache, RegistryPatience(None), cast(Client, client))
        with pytest.raises(DeliveryError, match=f"gives schema {numbers[-1]} to another"):
            asyncio.run(registry.check())
