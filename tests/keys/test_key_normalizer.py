"""Claims about normalization in the library: a filter changes all keys in one way, and its file says in which."""

import unicodedata
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import streamdedup
from streamdedup.errors import ConfigError, MalformedError, SnapshotError
from streamdedup.filters.base import Addable, Filter
from streamdedup.keys.hashing import KERNEL_FROM
from streamdedup.keys.key_normalizer import NAMES
from streamdedup.keys.normalizers import normalizer
from tests.filters.cases import HASH_KEY
from tests.rows import table

WRITTEN = {
    "trim": (" a ", "a"),
    "lowercase": (" A", "a"),
    "email": ("A.b+x@GoogleMail.com", "ab@gmail.com"),
    "url": ("HTTP://A.b", "http://a.b/"),
}
KINDS: dict[str, dict[str, Any]] = {
    **{kind: {} for kind in ("bloom", "blocked", "bitmap", "counting", "cuckoo", "dleft", "dlcbf")},
    "exact": {},
    "window": {},
    "chain": {"kind": "bloom", "on_full": "grow"},
}


def made(normalize: object, **options: object) -> Addable:
    """A filter that normalizes."""
    given = {"kind": "bloom", "capacity": 1000, "error_rate": 1e-6, "normalize": normalize}
    return streamdedup.build(given | options)


@table(NAMES)
def test_a_key_and_a_column_are_as_the_worker_has_them(name: str) -> None:
    """Of every form that `digests` takes; rows without a key are left out, and named."""
    written, key = WRITTEN[name]
    ours = streamdedup.normalizer(name)
    assert ours.key(written) == ours.key(written.encode()) == key
    worker = normalizer(cast("Any", name))
    assert worker is not None
    assert ours.id == worker.id
    keys: list[str | bytes] = [written, b"\xff", key.replace("b", "é"), written]
    offsets = np.cumsum(
        [0, *(len(each.encode() if isinstance(each, str) else each) for each in keys)]
    )
    joined = b"".join(each.encode() if isinstance(each, str) else each for each in keys)
    for given in (keys, tuple(keys), pa.array(keys, pa.binary()), (joined, offsets)):
        found = ours.column(given)
        plain = streamdedup.build({"kind": "exact", "capacity": 9})
        expected = [ours.key(each) for each in keys if each != b"\xff"]
        assert (plain.digests(found.keys) == plain.digests(expected)).all()
        assert found.malformed == {1: "the key is not UTF-8"}
    assert len(ours.column([]).keys[1]) == 1


@table(product(NAMES, ["\ud83e", "a\udfff@b.c", "http://\ud800.x/"]))
def test_a_lone_surrogate_is_malformed_and_costs_its_own_row_alone(name: str, lone: str) -> None:
    """It has no UTF-8; beside `str` or `bytes`, in few rows or many."""
    ours, (written, key) = streamdedup.normalizer(name), WRITTEN[name]
    with pytest.raises(MalformedError, match="the key is not UTF-8"):
        ours.key(lone)
    for before in (1, KERNEL_FROM, 5000):
        for given in ([written] * before, [written.encode()] * before):
            found = ours.column([*given, lone, written])
            assert found.malformed == {before: "the key is not UTF-8"}
            assert len(found.keys[1]) == before + 2
    seen = made(name)
    for refused in (lambda: seen.add(lone), lambda: seen.digests([written, lone])):
        with pytest.raises(MalformedError, match="the key is not UTF-8"):
            refused()
    assert key not in seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_normalizes_all_keys_and_so_does_its_file(kind: str, tmp_path: Path) -> None:
    """By `add`, `in` and `digests` alike, few keys or many, also after it is loaded or mapped."""
    options = {"kind": kind, **KINDS[kind]}
    seen = made(streamdedup.normalizer("url", www=True), **options)
    assert seen.add("http://www.a.b")
    assert not seen.add("http://a.b/#x")
    streamdedup.save(seen, tmp_path / "a.filter")
    loaded: list[Filter] = [
        seen,
        streamdedup.load(tmp_path / "a.filter"),
        streamdedup.load(tmp_path / "a.filter", mmap=True),
    ]
    for each in loaded:
        assert "HTTP://A.b" in each
        assert "http://c.d" not in each
        for count in (1, KERNEL_FROM):
            assert each.contains_many(each.digests(["http://WWW.a.b/"] * count)).all()


def test_a_list_is_normalized_when_it_is_built() -> None:
    """A static filter, under a secret."""
    hashed = {"hash": "siphash", "hash_key": HASH_KEY}
    config = {"kind": "fuse", "keys": [" A", "b"], "error_rate": 0.01, "normalize": "lowercase"}
    known = streamdedup.build(config | hashed)
    assert "a" in known
    assert " B" in known


def test_a_key_that_has_no_form_is_refused_without_a_word_of_it() -> None:
    """By its row if there are several."""
    seen = made("url")
    for call in (
        lambda: seen.add("Q9Z"),
        lambda: "Q9Z" in seen,
        lambda: seen.digests(["http://a", "Q9Z"]),
    ):
        with pytest.raises(
            MalformedError, match="it has no scheme: write http:// or https:// before it"
        ) as raised:
            call()
        assert "Q9Z" not in str(raised.value)
    with pytest.raises(MalformedError, match=r"^key 1 has no form of normalize url: "):
        seen.digests(["http://a", "Q9Z"])
    assert not len(seen)


@table(product(NAMES, [5, True, None, ("a", "b"), 0.5]))
def test_only_texts_are_normalized(name: str, key: Any) -> None:
    """Whatever else is a key elsewhere: a TypeError names its type, and its row if there are several."""
    seen, (written, _) = made(name), WRITTEN[name]
    said = f"is of type {type(key).__name__}; only str and bytes can be normalized"
    ours = streamdedup.normalizer(name)
    for one in (seen.add, seen.__contains__, ours.key):
        with pytest.raises(TypeError, match=f"the key {said}"):
            one(key)
    for batch in (seen.digests, ours.column):
        with pytest.raises(TypeError, match=f"key 1 {said}"):
            batch([written, key])
    assert not len(seen)


def test_filters_that_normalize_otherwise_have_no_union() -> None:
    """A rule more is another way."""
    url = made("url")
    url |= made(streamdedup.normalizer("url"))  # type: ignore[operator]
    for other in (made("none"), made("trim"), made(streamdedup.normalizer("url", www=True))):
        with pytest.raises(ConfigError, match="normalize differs"):
            url |= other


def test_a_file_of_another_unicode_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be asked for keys that it never got; both ways are named."""
    streamdedup.save(made("url"), tmp_path / "a.filter")
    monkeypatch.setattr(unicodedata, "unidata_version", "7")
    with pytest.raises(SnapshotError, match=r"'url/1, Unicode .*'url/1, Unicode 7'"):
        streamdedup.load(tmp_path / "a.filter")


@table(      [
    (lambda: made("uri"), "normalize 'uri' is unknown; choose one of: trim, lowercase, email, url"),
    (lambda: made(7), "normalize 7 is unknown"),
    (lambda: streamdedup.normalizer("none"), "normalize 'none' is unknown"),
    (lambda: streamdedup.normalizer("url", trackin=True), "has no rule trackin; did you mean tracking?"),
    (lambda: streamdedup.normalizer("trim", www=True), "normalize trim has no rule www; it takes none"),
    (lambda: streamdedup.normalizer("url", www="yes"), "www is 'yes'; it must be True or False"),
    (lambda: streamdedup.normalizer("email", preset="all"), "preset is 'all'; it must be provider or strict"),
    (lambda: streamdedup.build({"kind": "bitmap", "range": [0, 9], "normalize": "url"}), "normalize means nothing"),
])  # fmt: skip
def test_what_is_no_normalization_is_refused(call: Any, message: str) -> None:
    """The message has the value and the remedy."""
    with pytest.raises(ConfigError) as raised:
        call()
    assert message in str(raised.value)
