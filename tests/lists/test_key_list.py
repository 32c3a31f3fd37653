"""Claims about a list in its file: what was put in is found, and nothing else decides than what the header says."""

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamdedup
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.events import Column
from streamdedup.filters.kinds import LISTABLE
from streamdedup.keys.hashing import Hash
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import EmailRules, Normalization
from streamdedup.lists import KeyList, load
from streamdedup.lists.normalization import AS_THEY_ARE, Normalizing
from streamdedup.rules.lists import Match, Matcher
from streamdedup.snapshot import files
from tests.filters.cases import HASH_KEY
from tests.lists.tools import HASHES, PROVIDER, STRICT, built, recipe

lines = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1, max_size=8),
    max_size=30,
).map(lambda found: ["entry " + line for line in found])


def matched(listed: KeyList, *keys: str) -> list[Match]:
    """What `listed` says of keys, normalized as it was built."""
    column = Column.of([key.encode() for key in keys])
    if found := listed.normalizer():
        column, malformed = found.of_column(column)
        assert not malformed
    digests = listed.hash.of_column(column)
    return [Match(match) for match in listed.match(column, digests)]


# --- what was put in is found ---


@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("hash_", HASHES.values(), ids=HASHES)
@pytest.mark.parametrize("kind", LISTABLE)
@given(given_lines=lines)
def test_every_entry_is_found(
    kind: str, hash_: Hash, given_lines: list[str], tmp_path: Path
) -> None:
    """Of any entries, by every kind and both hashes, once the file is loaded as a worker does."""
    listed = built(tmp_path, given_lines, kind=kind, hash=hash_, allow_empty=True)
    assert matched(listed, *given_lines) == [Match.ADDRESS] * len(given_lines)


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("name", ["none", "trim", "lowercase"])
@given(given_lines=lines)
def test_every_entry_is_found_however_it_is_normalized(
    name: Normalization, given_lines: list[str], tmp_path: Path
) -> None:
    """Keys that a worker normalizes alike are looked up as they were put in."""
    kept = [line for line in given_lines if "\0" not in line]
    listed = built(tmp_path, kept, normalizing=Normalizing(name), allow_empty=True)
    assert matched(listed, *kept) == [Match.ADDRESS] * len(kept)


@pytest.mark.parametrize(
    ("entry", "address", "expected"),
    [
        ("spam@example.com", "spam@example.com", Match.ADDRESS),
        ("spam@example.com", "SPAM@Example.COM", Match.ADDRESS),
        ("spam@example.com", "ham@example.com", Match.NONE),
        ("@example.com", "anyone@example.com", Match.DOMAIN),
        ("@example.com", "anyone@mail.example.com", Match.NONE),
        ("@example.com", "anyone@badexample.com", Match.NONE),
        (".example.com", "anyone@example.com", Match.DOMAIN),
        (".example.com", "anyone@deep.mail.example.com", Match.DOMAIN),
        (".example.com", "anyone@badexample.com", Match.NONE),
        (".example.com", "anyone@example.org", Match.NONE),
        ("  @example.com\t", "anyone@example.com", Match.DOMAIN),
        ("@bücher.example", "x@xn--bcher-kva.example", Match.DOMAIN),
        ("\u3000@bücher.example", "x@bücher.example", Match.DOMAIN),
        ("@googlemail.com", "some.one+tag@gmail.com", Match.DOMAIN),
        ("someone@googlemail.com", "some.one+tag@gmail.com", Match.ADDRESS),
    ],
)
def test_domain_entries_match_by_the_domain(
    entry: str, address: str, expected: Match, tmp_path: Path
) -> None:
    """The domain alone after @, it and all below it after a point; as its provider knows it."""
    assert matched(built(tmp_path, [entry], normalizing=PROVIDER), address) == [expected]


def test_a_strict_list_tells_aliases_apart(tmp_path: Path) -> None:
    """Rules that are off are off for domain entries, too."""
    listed = built(tmp_path, ["@googlemail.com"], normalizing=STRICT)
    assert matched(listed, "a@gmail.com", "a@googlemail.com") == [Match.NONE, Match.DOMAIN]


def test_an_address_goes_before_its_domain(tmp_path: Path) -> None:
    """If both are listed, the more exact one is reported."""
    listed = built(tmp_path, ["@example.com", "a@example.com"], normalizing=PROVIDER)
    assert matched(listed, "a@example.com", "b@example.com") == [Match.ADDRESS, Match.DOMAIN]


def test_without_email_a_domain_entry_is_a_key_like_any_other(tmp_path: Path) -> None:
    """Nothing but the very text matches it."""
    listed = built(tmp_path, ["@example.com"])
    assert listed.domains is None
    assert matched(listed, "a@example.com", "@example.com") == [Match.NONE, Match.ADDRESS]


def test_a_batch_is_matched_row_by_row(tmp_path: Path) -> None:
    """Each row by its own key, wherever it stands in the buffer; and no row, no match."""
    listed = built(tmp_path, ["a@x.com", ".y.com"], normalizing=PROVIDER)
    keys = ["a@x.com", "b@x.com", "c@y.com", "a@x.com", "d@z.y.com"]
    assert [int(match) for match in matched(listed, *keys)] == [1, 0, 2, 1, 2]
    assert matched(listed) == []


def test_a_list_is_what_the_rules_ask(tmp_path: Path) -> None:
    """It fits the Protocol, in types and in what it gives."""
    listed: Matcher = built(tmp_path, ["a"])
    found = listed.match(Column.of([b"a"]), Hash().digests(["a"]))
    assert found.dtype == np.dtype(np.uint8)
    assert found.tolist() == [1]


# --- the file ---


def test_the_file_tells_what_it_is(tmp_path: Path) -> None:
    """Name, version, normalizer, hash, kind, error rate and counts come back from it."""
    entries = ["a@x.com", "A@x.com ", "nobody", "@y.com", ".z.com", "@y.com"]
    listed = built(tmp_path, entries, kind="bloom", normalizing=PROVIDER, hash=HASHES["siphash"])
    facts = listed.facts
    assert (listed.name, listed.kind, listed.error_rate) == ("bad", "bloom", 1e-6)
    assert listed.hash == HASHES["siphash"]
    assert re.fullmatch("2026-11-22T15:08:34Z-[0-9a-f]{8}", listed.version)
    assert facts.normalizing == PROVIDER
    assert facts.normalize == PROVIDER.id
    counts = facts.counts
    assert (counts.addresses, counts.domains, counts.duplicates, counts.bad) == (1, 2, 2, 1)


def test_equal_contents_have_equal_checksums(tmp_path: Path) -> None:
    """Whatever the inputs looked like; another entry, hash or normalizer shows."""
    one = built(tmp_path, ["a@x.com", "b@x.com", "@y.com"], normalizing=PROVIDER)
    lines = ["@Y.com", "B@x.com", "# comment", "", "@y.com", "a@x.com", "a@x.com", "nobody"]
    same = built(tmp_path, lines, normalizing=PROVIDER)
    others = [
        built(tmp_path, ["a@x.com", "b@x.com", ".y.com"], normalizing=PROVIDER),
        built(tmp_path, ["a@x.com", "c@x.com", "@y.com"], normalizing=PROVIDER),
        built(tmp_path, ["a@x.com", "b@x.com", "@y.com"], normalizing=STRICT),
        built(tmp_path, lines[:-1], normalizing=PROVIDER, hash=HASHES["siphash"]),
    ]
    assert one.version == same.version
    assert len({listed.facts.checksum for listed in (one, *others)}) == 5


GOLDEN = Path(__file__).parents[2] / "proof" / "golden" / "list-v1.list"
GOLDEN_SHA256 = "3a20d1a5d7ada3fb9442bcb5b0219a72562b122ac61b223f257da1ef492b65ad"


def test_a_list_of_an_earlier_version_is_loaded_for_ever() -> None:
    """Its bytes are those that were committed; every later version finds in it what was put in."""
    assert sha256(GOLDEN.read_bytes()).hexdigest() == GOLDEN_SHA256
    listed = load(GOLDEN, hash_key=HASH_KEY)
    assert listed.version == "2026-11-22T15:08:34Z-89a3cf18"
    assert listed.facts.normalizing == PROVIDER
    keys = Column.of([*(b"%d@example.com" % i for i in range(100)), b"a@x.org", b"a@b.y.org"])
    digests = listed.hash.of_column(keys)
    assert listed.match(keys, digests).tolist() == [1] * 100 + [2, 2]


# --- what is refused ---


def test_damage_is_found(tmp_path: Path) -> None:
    """One bit anywhere, or an end that is missing: no damaged list is ever asked."""
    built(tmp_path, [f"{i}@x.com" for i in range(500)], normalizing=PROVIDER)
    path = tmp_path / "out.list"
    whole = path.read_bytes()
    places = {0, 20, len(whole) // 2, 4096, 8192, len(whole) - 200, len(whole) - 1}
    for place in sorted(places):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(SnapshotError, match=f"cannot use {re.escape(str(path))}: "):
            load(path)
    for length in (0, 7, 5000, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(SnapshotError, match=r"cut short|its length is not"):
            load(path)


def test_damage_to_a_table_is_what_verification_finds(tmp_path: Path) -> None:
    """Without it the tables are not read, so that a list of any size is there at once; all else is still checked."""
    built(tmp_path, [f"{i}@x.com" for i in range(500)])
    path = tmp_path / "out.list"
    data = bytearray(path.read_bytes())
    data[4096] ^= 1
    path.write_bytes(data)
    assert load(path, verify=False).name == "bad"
    path.write_bytes(data[:-1])
    with pytest.raises(SnapshotError):
        load(path, verify=False)


def test_a_list_is_not_loaded_as_a_filter(tmp_path: Path) -> None:
    """The error names the function that loads a list, since the keys may have to be normalized."""
    built(tmp_path, ["a"])
    for mmap in (False, True):
        with pytest.raises(
            ConfigError, match=r"it is a list .* load it by streamdedup\.lists\.load"
        ):
            streamdedup.load(tmp_path / "out.list", mmap=mmap)


def test_a_filter_is_not_loaded_as_a_list(tmp_path: Path) -> None:
    """It does not say how its keys were made."""
    path = tmp_path / "seen.filter"
    streamdedup.save(streamdedup.build({"kind": "bloom", "capacity": 10}), path)
    with pytest.raises(ConfigError, match="it is a filter of kind bloom, not a list"):
        load(path)


@pytest.mark.parametrize(
    ("key", "said"),
    [(b"", "its hash is siphash"), (bytes(16), "not the one with which it was built")],
    ids=["none", "another"],
)
def test_a_keyed_list_wants_its_key(key: bytes, said: str, tmp_path: Path) -> None:
    """And no other; the file does not hold it."""
    built(tmp_path, ["a"], hash=HASHES["siphash"])
    assert HASH_KEY not in (tmp_path / "out.list").read_bytes()
    with pytest.raises(ConfigError, match=said):
        load(tmp_path / "out.list", hash_key=key)


@pytest.mark.parametrize(
    ("asks", "rules"),
    [("none", None), ("lowercase", None), ("email", EmailRules.of("strict"))],
    ids=["none", "lowercase", "strict"],
)
def test_keys_of_another_normalizer_are_refused(
    asks: Normalization, rules: EmailRules | None, tmp_path: Path
) -> None:
    """They would be missed without a word; the message names the file, both normalizers and what to do."""
    listed = built(tmp_path, ["a@x.com"], normalizing=PROVIDER)
    listed.refuse_unless(normalizer("email", EmailRules.of("provider")))
    found = normalizer(asks, rules)
    with pytest.raises(ConfigError) as refused:
        listed.refuse_unless(found)
    message = str(refused.value)
    for part in (str(tmp_path / "out.list"), PROVIDER.id, found.id if found else "'none'"):
        assert part in message
    assert "build it again" in message
    assert "key.normalize: email" in message


def test_a_list_of_another_versions_normalizer_is_refused(tmp_path: Path) -> None:
    """If rules or letters changed since it was built, its own header says so."""
    listed = built(tmp_path, ["a@x.com"], normalizing=PROVIDER)
    older = replace(listed, facts=replace(listed.facts, normalize="email 0, of long ago"))
    files.save(older, tmp_path / "older.list")
    with pytest.raises(ConfigError, match="'email 0, of long ago'"):
        load(tmp_path / "older.list").normalizer()


def test_a_normalizer_of_the_future_is_refused(tmp_path: Path) -> None:
    """A name that this version does not know is no reason to take keys as they are."""
    listed = built(tmp_path, ["a"])
    unknown = Normalizing("rot13")  # type: ignore[arg-type]  # what a later version may know
    files.save(replace(listed, facts=replace(listed.facts, normalizing=unknown)), tmp_path / "x")
    with pytest.raises(SnapshotError, match="normalizer 'rot13' is unknown"):
        load(tmp_path / "x")


def test_a_name_that_would_break_a_line_is_refused() -> None:
    """It stands in headers, log lines and metrics."""
    for name in ("", "a\nb", "x" * 101):
        with pytest.raises(ConfigError, match="--name"):
            recipe(name=name, normalizing=AS_THEY_ARE)
