"""A snapshot is for one log and one way to make keys, and never ahead of the output."""

import struct
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from crc32c import crc32c

from streamdedup import filters
from streamdedup.snapshot.files import save
from tests.snapshot.shelf import (
    HEADER,
    IDENTITY,
    LOG,
    OTHERS,
    Shelf,
    as_text,
    bloom,
    file_of,
    table,
)


def differing(field: str, theirs: Any, ours: Any) -> dict[str, tuple[Any, Any]]:
    """The leaves of a field in which two identities differ, with both values."""
    if not isinstance(theirs, dict):
        return {field: (theirs, ours)}
    leaves = {name: (theirs.get(name), ours.get(name)) for name in {**theirs, **ours}}
    return {f"{field}.{name}": pair for name, pair in leaves.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("field", OTHERS)
def test_another_log_or_other_settings_are_refused_and_left(shelf: Shelf, field: str) -> None:
    """The refusal names the field and both values; the file stays, for whom it belongs to."""
    path = shelf.save(bloom(), 1)
    other = replace(IDENTITY, **{field: OTHERS[field]})
    assert shelf.load(identity=other) is None
    (refusal,) = shelf.refusals
    for name, (theirs, ours) in differing(field, getattr(IDENTITY, field), OTHERS[field]).items():
        assert f"{name} {as_text(theirs)} instead of {as_text(ours)}" in refusal.reason
    assert path.exists()
    assert shelf.label() == 1


def test_a_keyed_filter_comes_back_under_its_key_only(shelf: Shelf) -> None:
    """No file holds the key: it is given at the load, and another one, or none, is refused without being told."""
    key = b"sixteen secrets!"
    config = {"kind": "bloom", "capacity": 2000, "error_rate": 0.001, "hash": "siphash"}
    seen = filters.build({**config, "hash_key": key})
    seen.add("a key")
    identity = replace(IDENTITY, hash="siphash", hash_check=seen.hash.check)
    path = shelf.store.save(seen, 1, lambda: 1, identity).path
    assert key not in path.read_bytes()
    load = partial(shelf.store.load, identity, end=9, on_refusal=shelf.refusals.append)
    for wrong in (bytes(16), b""):
        assert load(hash_key=wrong) is None
        assert "another hash" in shelf.refusals[-1].reason
        assert path.exists()
    assert len(shelf.refusals) == 2
    loaded = load(hash_key=key)
    assert loaded is not None
    assert "a key" in loaded.filter
    assert loaded.filter.hash == seen.hash


@pytest.mark.parametrize("field", ["cluster_id", "topic_id"])
def test_an_id_that_the_broker_does_not_tell_matches_any(shelf: Shelf, field: str) -> None:
    """Whether it was not told at the save or at the load."""
    nothing: dict[str, Any] = {field: None}
    untold = replace(IDENTITY, **nothing)
    shelf.save(bloom(), 1)
    assert shelf.load(identity=untold) is not None
    shelf.store.save(bloom(), 2, lambda: 2, untold)
    assert shelf.label() == 2


def test_generations_that_changed_names_are_refused(shelf: Shelf) -> None:
    """A file says itself which generation it is."""
    one, two = shelf.save(bloom(), 1), shelf.save(bloom(), 2)
    away = one.with_name("away")
    one.rename(away)
    two.rename(one)
    away.rename(two)
    assert shelf.label() is None
    assert ["renamed" in refusal.reason for refusal in shelf.refusals] == [True, True]
    assert one.exists()


@pytest.mark.parametrize(("label", "end_label"), [(51, 51), (50, 51)])
def test_what_is_ahead_of_the_output_is_refused_and_left(
    shelf: Shelf, label: int, end_label: int
) -> None:
    """The label or only the end label lies beyond the end: the generation before is used."""
    shelf.save(bloom(seed=1), 40, 50)
    ahead = shelf.save(bloom(seed=2), label, end_label)
    assert shelf.label(end=50) == 40
    (refusal,) = shelf.refusals
    assert refusal.path == ahead
    assert "up to offset 51 and the output ends at 50" in refusal.reason
    assert ahead.exists()


def test_a_file_of_a_later_version_is_refused_and_left(shelf: Shelf) -> None:
    """It is whole, so it is no damage: who goes back to the later version finds it again."""
    path = shelf.save(bloom(), 1)
    data = bytearray(path.read_bytes())
    data[8] = 2
    header_end = 16 + int.from_bytes(data[12:16], "little")
    data[header_end : header_end + 4] = struct.pack("<I", crc32c(bytes(data[:header_end])))
    path.write_bytes(data)
    assert shelf.label() is None
    assert "format version 2" in shelf.refusals[0].reason
    assert path.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "unheard of"},
        {"kind": None},
        {"capacity": "many"},
        {"capacity": None},
        {"capacity": 10**30},
        {"error_rate": 2},
        {"bits": 7},
    ],
    ids=str,
)
def test_a_filter_that_cannot_be_built_is_refused(shelf: Shelf, change: dict[str, Any]) -> None:
    """The bytes are right; the parts do not fit, or the kind is not known here."""
    shelf.save(bloom(), 1)
    log = replace(LOG, counter=2)
    header = replace(HEADER, log=log, filter=bloom().header() | change)
    (shelf.store.path / "0000000000000002.snapshot").write_bytes(
        file_of(table(bloom()), header=header)
    )
    assert shelf.label() == 1
    assert "cannot be built" in shelf.refusals[0].reason


def test_a_library_file_is_refused_and_left(shelf: Shelf) -> None:
    """It tells of no log, so it is no shard's, whatever its name."""
    path = shelf.save(bloom(), 1)
    save(bloom(), path)
    assert shelf.label() is None
    assert (
        "a program saved, and not the fold of a log; left in place until snapshot.keep ("
        in shelf.refusals[0].reason
    )
    assert path.exists()
    assert shelf.store.labels() == []
