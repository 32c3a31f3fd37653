"""Filters that were saved by an earlier version are loaded by every later one, and answer alike."""

import io
import json
import os
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import streamdedup
from proof.golden import (
    DIRECTORY,
    END_LABEL,
    GOLDEN,
    LOG,
    MANIFEST,
    Golden,
    false_positives,
    hash_key,
    present,
    removed_with_others,
)
from proof.golden.make import make
from streamdedup import filters
from streamdedup.filters.base import Removable
from streamdedup.snapshot import Store, files
from streamdedup.snapshot.format import pieces
from streamdedup.snapshot.header import Header
from streamdedup.snapshot.read import CopyingReader

ENTRIES: dict[str, dict[str, Any]] = json.loads(MANIFEST.read_text())
SIZE_BYTES_MAX = 64 << 10  # they stay in the repository for ever


def test_every_kind_has_a_golden_file() -> None:
    """Add a line to GOLDEN, then run `python -m proof golden`; both are committed."""
    kinds = {*filters.KINDS, *filters.LOADED}
    assert {entry["kind"] for entry in ENTRIES.values()} == kinds


def test_the_manifest_tells_what_is_there() -> None:
    """Each file has its line and each recipe its file; none is large."""
    found = {path.name: path.stat().st_size for path in DIRECTORY.glob("*.filter")}
    assert set(found) == set(ENTRIES)
    assert {recipe.name for recipe in GOLDEN} <= set(ENTRIES)
    assert max(found.values()) <= SIZE_BYTES_MAX


@pytest.mark.parametrize("name", ENTRIES)
def test_golden_files_never_change(name: str) -> None:
    """Each has the bytes that it was committed with."""
    assert sha256((DIRECTORY / name).read_bytes()).hexdigest() == ENTRIES[name]["sha256"]


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])
def test_golden_files_are_loaded_for_ever(name: str, mmap: bool) -> None:
    """No key of theirs is lost, and they err on the very same keys, since each hash and place is the same."""
    entry = ENTRIES[name]
    seen = streamdedup.load(DIRECTORY / name, mmap=mmap, hash_key=hash_key(entry["header"]))
    assert (seen.kind, len(seen)) == (entry["kind"], entry["keys"])
    absent = entry["removed_with_others"]
    assert removed_with_others(seen) == absent == [key for key in present(seen) if key not in seen]
    assert not absent or (isinstance(seen, Removable) and not seen.multiset and len(absent) < 5)
    assert false_positives(seen) == entry["false_positives"]


@pytest.mark.parametrize("recipe", GOLDEN, ids=str)
def test_what_is_saved_now_is_the_same_to_the_byte(recipe: Golden, tmp_path: Path) -> None:
    """Apart from when and by whom, which stands in the header."""
    golden = (DIRECTORY / recipe.name).read_bytes()
    path = tmp_path / "now"
    if recipe.log is None:
        streamdedup.save(recipe.filled(), path)
    else:
        files.publish(os, tmp_path / "tmp", path, recipe.content(0.0), "give up")
    assert made_by(path.read_bytes(), header_of(golden)) == golden


def reader_of(data: bytes) -> CopyingReader:
    """Read the header of a file."""
    stream = io.BytesIO(data)

    def read_into(view: memoryview) -> None:
        assert stream.readinto(view) == len(view)

    return CopyingReader(read_into, len(data))


def header_of(data: bytes) -> Header:
    """Give the header of a file."""
    return reader_of(data).header


def made_by(data: bytes, other: Header) -> bytes:
    """Make the same file with another's time and writer, and without the input's id if the other is older than that."""
    reader = reader_of(data)
    contents = reader.contents()
    header = replace(reader.header, saved_at=other.saved_at, writer=other.writer)
    if header.log is not None and other.log is not None and other.log.input_id is None:
        header = replace(header, log=replace(header.log, input_id=None))
    content = pieces(header, contents.buffers, lambda: (contents.filter, contents.end_label))
    return b"".join(bytes(piece) for piece in content)


@pytest.mark.parametrize("recipe", [one for one in GOLDEN if one.log], ids=str)
def test_a_workers_golden_snapshot_is_taken(recipe: Golden, tmp_path: Path) -> None:
    """By the worker that it belongs to, with its labels."""
    store = Store(tmp_path, group="group", topic="events-unique", partition=3)
    store.path.mkdir(parents=True)
    shutil.copy(DIRECTORY / recipe.name, store.path / f"{LOG.counter:016d}.snapshot")
    refused: list[object] = []
    loaded = store.load(LOG.identity, end=END_LABEL, on_refusal=refused.append)
    assert not refused
    assert loaded is not None
    assert (loaded.label, loaded.end_label) == (LOG.label, END_LABEL)
    assert recipe.log is not None
    assert loaded.fingerprint == recipe.log.fingerprint
    assert loaded.filter.header() == recipe.filled().header()


def test_golden_files_are_not_written_again(tmp_path: Path) -> None:
    """Making them adds what is missing, and leaves what is there, whatever it holds."""
    first, *others = GOLDEN
    assert make(tmp_path, [first]) == [first.name]
    entries = json.loads((tmp_path / MANIFEST.name).read_text())
    (tmp_path / first.name).write_bytes(b"what is there")
    assert make(tmp_path, GOLDEN) == [one.name for one in others]
    assert (tmp_path / first.name).read_bytes() == b"what is there"
    assert json.loads((tmp_path / MANIFEST.name).read_text()).items() >= entries.items()
    (tmp_path / MANIFEST.name).unlink()
    with pytest.raises(FileExistsError):
        make(tmp_path, GOLDEN)
    assert (tmp_path / first.name).read_bytes() == b"what is there"
