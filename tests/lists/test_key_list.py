"""Claims about a list in its file: what was put in is found, and nothing else decides than what the header says."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

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
from streamdedup.lists.normalization import Normalizing
from streamdedup.rules.lists import Match
from streamdedup.snapshot import files
from tests.filters.cases import HASH_KEY
from tests.lists.tools import HASHES, PROVIDER, STRICT, built

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
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("kind", LISTABLE)
@given(
    given_lines=lines,
    hash_=st.sampled_from(list(HASHES.values())),
    name=st.sampled_from(["none", "trim", "lowercase"]),
)
def test_every_entry_is_found(
    kind: str, given_lines: list[str], hash_: Hash, name: Normalization, tmp_path: Path
) -> None:
    """Of any entries, by every kind and both hashes; keys that a worker normalizes alike, as they were put in."""
    how = Normalizing(name)
    listed = built(tmp_path, given_lines, kind=kind, hash=hash_, normalizing=how, allow_empty=True)
    assert matched(listed, *given_lines) == [Match.ADDRESS] * len(given_lines)


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


def test_without_email_a_domain_entry_is_a_key_like_any_other(tmp_path: Path) -> None:
    """Nothing but the very text matches it."""
    listed = built(tmp_path, ["@example.com"])
    assert listed.domains is None
    assert matched(listed, "a@example.com", "@example.com") == [Match.NONE, Match.ADDRESS]


def test_a_batch_is_matched_row_by_row(tmp_path: Path) -> None:
    """Each row by its own key, wherever it stands in the buffer, an address before its domain; and no row, no match."""
    listed = built(tmp_path, ["a@x.com", ".y.com", "e@y.com"], normalizing=PROVIDER)
    keys = ["a@x.com", "b@x.com", "c@y.com", "a@x.com", "d@z.y.com", "e@y.com"]
    assert [int(match) for match in matched(listed, *keys)] == [1, 0, 2, 1, 2, 1]
    assert matched(listed) == []


# --- the file ---


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


def test_a_list_is_not_loaded_as_a_filter(tmp_path: Path) -> None:
    """The error names the function that loads a list, since the keys may have to be normalized."""
    built(tmp_path, ["a"])
    for mmap in (False, True):
        with pytest.raises(
            ConfigError, match=r"it is a list .* load it by streamdedup\.lists\.load"
        ):
            streamdedup.load(tmp_path / "out.list", mmap=mmap)


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


def test_keys_of_another_normalizer_are_refused(tmp_path: Path) -> None:
    """They would be missed without a word; the message says what to do."""
    listed = built(tmp_path, ["a@x.com"], normalizing=PROVIDER)
    listed.refuse_unless(normalizer("email", EmailRules.of("provider")))
    with pytest.raises(ConfigError, match=r"build it again(.|\n)*key\.normalize: email"):
        listed.refuse_unless(normalizer("email", EmailRules.of("strict")))
