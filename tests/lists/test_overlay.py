"""Claims about single changes of a list: exact, the last word on each key, over the file, for addresses and domains."""

import os
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import ConfigError, MalformedError
from streamdedup.events import Column
from streamdedup.keys.hashing import MURMUR3, Digests
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import Normalization
from streamdedup.lists import overlay as overlay_module
from streamdedup.lists.control import (
    ACTOR_CHARS_MAX,
    ENTRY_BYTES_MAX,
    REASON_CHARS_MAX,
    control_key,
    message,
    plain_entries,
    read_change,
)
from streamdedup.lists.overlay import (
    ADDED,
    PARTITIONS_MAX,
    REASON_BYTES_MAX,
    REMOVED,
    UNCHANGED,
    Changes,
)
from tests.rows import table

words = st.integers(0, 3) | st.integers(2**64 - 4, 2**64 - 1)
digests = st.tuples(words, words)
# Of any sort: before 1970, beyond all calendars, and equal ones.
stamps = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
EMAIL = normalizer("email")
Message = tuple[int, tuple[int, int], int, int]


@given(
    changes=st.lists(
        st.tuples(digests, st.sampled_from([ADDED, REMOVED, UNCHANGED]), stamps), max_size=30
    ),
    asked=st.lists(digests, max_size=20),
    latest_max=st.integers(1, 6),
)
@settings(deadline=None)
def test_the_last_change_of_a_key_counts(
    changes: list[tuple[tuple[int, int], int, int]], asked: list[tuple[int, int]], latest_max: int
) -> None:
    """Whatever changed it before, however often the latest were merged into the many, and whichever key shares a half.

    In one partition, whatever the timestamps: compaction leaves the last one. Each overlay says for ever what it said
    when it was made.
    """
    collected, expected = Changes(latest_max), dict[tuple[int, int], int]()
    array = np.array(asked, dtype=np.uint64).reshape(-1, 2)
    made = []
    for digest, change, stamp in changes:
        collected.apply(np.array([digest], dtype=np.uint64), [change], [stamp])
        expected[digest] = change
        answers = [expected.get(asked_for, UNCHANGED) for asked_for in asked]
        made.append((collected.overlay(), answers, sum(map(bool, expected.values()))))
    for overlay, answers, count in made:
        assert overlay.look_up(array).tolist() == answers
        assert len(overlay) == count
    held = sum(map(bool, expected.values()))
    assert [collected.more_than(held + n) for n in (-1, 0)] == [True, False]


def overlay_of(messages: Iterable[Message], latest_max: int = 3) -> dict[tuple[int, int], int]:
    """Apply messages, (partition, digest, change, stamp); return what is in force."""
    changes, seen = Changes(latest_max), list[tuple[int, int]]()
    for partition, digest, change, stamp in messages:
        changes.apply(np.array([digest], dtype=np.uint64), [change], [stamp], partition)
        seen.append(digest)
        if changes.ripe:
            changes.merge()
    array = np.array(seen, dtype=np.uint64).reshape(-1, 2)
    overlay = changes.overlay()
    found = dict(zip(seen, overlay.look_up(array).tolist(), strict=True))
    assert len(overlay) == sum(map(bool, found.values()))
    return {digest: change for digest, change in found.items() if change}


@given(
    messages=st.lists(
        st.tuples(
            st.sampled_from([0, 1, PARTITIONS_MAX - 1]),
            st.tuples(st.integers(0, 1), st.just(0)),
            st.sampled_from([ADDED, REMOVED, UNCHANGED]),
            stamps,
        ),
        max_size=20,
    ),
    order=st.permutations([0, 1, PARTITIONS_MAX - 1]),
)
def test_all_agree_on_a_key_with_changes_in_several_partitions(
    messages: list[Message], order: list[int]
) -> None:
    """A worker that read on while they were written, and one that starts later, and reads each partition in turn.

    Also if compaction has left only the last message of each key in a partition, and no null.
    """
    apart = [m for partition in order for m in messages if m[0] == partition]
    last = {(partition, digest): m for m in apart for partition, digest, *_ in [m]}
    compacted = [m for m in last.values() if m[2] != UNCHANGED]
    running = overlay_of(messages)
    assert overlay_of(apart) == overlay_of(compacted) == running
    by_partition = {m[:2]: m for m in compacted}
    for digest, change in running.items():
        of_key = [m for m in by_partition.values() if m[1] == digest]
        newest = max(of_key, key=lambda m: (min(max(m[3], 0), (1 << 44) - 1), m[0]))
        assert newest[2] == change


def test_keys_with_changes_in_several_partitions_are_counted() -> None:
    """Each takes more memory than others, until one partition alone holds changes of it."""
    changes = Changes()
    array = MURMUR3.digests([b"%d" % n for n in range(10)])
    for partition, rows in ((0, 10), (1, 6), (2, 6)):
        changes.apply(array[:rows], [ADDED] * rows, [partition] * rows, partition)
    assert changes.moved == 6
    changes.apply(array[:6], [UNCHANGED] * 6, [9] * 6, 1)
    assert changes.moved == 6
    changes.apply(array[:4], [UNCHANGED] * 4, [9] * 4, 0)
    assert changes.moved == 2
    assert len(changes.overlay()) == 10


def reasons_of(changes: Changes, digests: Digests) -> list[str]:
    """The reason of each, in the overlay as it is now."""
    numbers, texts = changes.overlay().reasons
    return [texts[number] for number in numbers.numbers(digests).tolist()]


def test_a_reason_is_that_of_the_change_in_force() -> None:
    """That of the last one in its partition, and of the latest among partitions; none if that is not known."""
    changes, one = Changes(latest_max=2), MURMUR3.digests([b"a"])
    for partition, change, stamp, reason, expected in (
        (0, ADDED, 10, "first", "first"),
        (0, ADDED, 10, "second", "second"),
        (1, ADDED, 5, "earlier, elsewhere", "second"),
        (2, ADDED, 20, "later, elsewhere", "later, elsewhere"),
        (2, UNCHANGED, 30, "", ""),  # that of partition 0 is in force again
        (0, REMOVED, 40, "not of what is blocked", ""),
        (0, ADDED, 50, "again", "again"),
        (0, ADDED, 60, "", ""),
    ):
        changes.apply(one, [change], [stamp], partition, [reason])
        assert reasons_of(changes, one) == [expected]
        if changes.ripe:
            changes.merge()
            assert reasons_of(changes, one) == [expected]


def test_an_overlay_keeps_its_reasons() -> None:
    """A batch that was judged by it has the reasons of then."""
    changes, one = Changes(), MURMUR3.digests([b"a"])
    changes.apply(one, [ADDED], [1], 0, ["then"])
    before = changes.overlay()
    changes.apply(one, [ADDED], [2], 0, ["now"])
    assert before.reasons.texts[int(before.reasons.numbers.numbers(one)[0])] == "then"
    assert reasons_of(changes, one) == ["now"]


def test_reasons_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are kept, and a long one is cut between two characters."""
    monkeypatch.setattr(overlay_module, "REASONS_MAX", 3)
    changes, several = Changes(), MURMUR3.digests([b"%d" % n for n in range(5)])
    changes.apply(several, [ADDED] * 5, [1] * 5, 0, [f"because of {n}" for n in range(5)])
    assert reasons_of(changes, several) == ["", "", *(f"because of {n}" for n in (2, 3, 4))]
    changes.apply(several[2:3], [ADDED], [2], 0, ["x" + "ä" * REASON_BYTES_MAX])
    changes.apply(several[:1], [ADDED], [2], 0, ["newest"])
    assert reasons_of(changes, several)[0] == "newest"
    assert reasons_of(changes, several)[2] == "x" + "ä" * (REASON_BYTES_MAX // 2 - 1)
    assert reasons_of(changes, several)[3] == ""


@pytest.mark.parametrize(
    ("entry", "value", "keys", "change"),
    [
        (b"annab@gmail.com", b'{"op": "add"}', (b"annab@gmail.com",), ADDED),
        (b"a@b.com", b'{"op": "remove", "reason": "a customer"}', (b"a@b.com",), REMOVED),
        (b"a@b.com", None, (b"a@b.com",), UNCHANGED),
        (b"@b.com", b'{"op":"add"}', (b"@b.com",), ADDED),
        (b".b.com", b'{"op":"add"}', (b"b.com",), ADDED),
    ],
)
def test_a_message(entry: bytes, value: bytes | None, keys: tuple[bytes, ...], change: int) -> None:
    """An entry as in a list's text, and what is to be done with it."""
    found = read_change(entry, value, EMAIL)
    assert (found.keys, found.change) == (keys, change)


@pytest.mark.parametrize(
    ("value", "reason", "actor"),
    [
        (b'{"op": "add", "reason": "abuse", "actor": "anna"}', "abuse", "anna"),
        (b'{"op": "add", "actor": "anna"}', "", "anna"),
        (b'{"op": "add", "reason": {"code": 1}, "actor": 7}', "", ""),
        (b'{"op": "add", "reason": null, "more": true}', "", ""),
        (b'{"op": "add", "reason": "%s"}' % (b"r" * 2000), "r" * REASON_CHARS_MAX, ""),
        (b'{"op": "add", "actor": "%s"}' % (b"a" * 2000), "", "a" * ACTOR_CHARS_MAX),
    ],
)
def test_reason_and_actor_decide_nothing(value: bytes, reason: str, actor: str) -> None:
    """Whatever other programs write there, the change counts; what is no text is none, and the rest is cut."""
    found = read_change(b"a@b.com", value, EMAIL)
    assert (found.change, found.reason, found.actor) == (ADDED, reason, actor)


@table(
    [
        (None, b'{"op": "add"}', "the record key is null"),
        (b"Q9Z", b'{"op": "add"}', "the key is not an e-mail address"),
        (b"Q9Z" * ENTRY_BYTES_MAX, b'{"op": "add"}', "the entry has more than"),
        (b"Q9Z@b.com", b'{"op": "add"}', "the record key is not normalized"),
        (b".googlemail.com", b'{"op": "add"}', "the domain is an alias of another"),
        (b"a@b.com", b"Q9Z", "the value is not valid JSON"),
        (b"a@b.com", b"[]", 'the value is not an object whose "op"'),
        (b"a@b.com", b'{"op": "Q9Z"}', 'the value is not an object whose "op"'),
        (b"a@b.com", b'{"op": []}', 'the value is not an object whose "op"'),
    ]
)
def test_what_is_no_message(row: tuple[bytes | None, bytes, str]) -> None:
    """The reason holds nothing of it."""
    entry, value, reason = row
    with pytest.raises(MalformedError, match=reason) as refused:
        read_change(entry, value, EMAIL)
    assert "Q9Z" not in str(refused.value)


@given(
    st.lists(
        st.sampled_from(
            [
                *(
                    b"a@b.com",
                    b"A@b.com",
                    b" a@b.com",
                    b"a*@b.com",
                    b"a%@b.com",
                    b"@b.com",
                    b".b.com",
                ),
                *(
                    b"\t@b.com",
                    b"b.com",
                    b"nobody",
                    b"",
                    None,
                    b"x" * 64 + b"@b.com",
                    b"\xff@b.com",
                ),
                *("a@bücher.example".encode(), b"a@xn--bcher-kva.example", b"mailto:a@b.com"),
                *(
                    b"http://b.com/",
                    b"http://B.com/",
                    b"http://b.com/*",
                    b"http://b.com/%41",
                    b"b.com/",
                ),
                b"a" * (ENTRY_BYTES_MAX + 1) + b"@b.com",
            ]
        )
    ),
    st.sampled_from(["email", "url", "lowercase", "none"]),
)
def test_what_is_plainly_normalized_is_read_alike(
    entries: list[bytes | None], name: Normalization
) -> None:
    """Without its normalizer, which takes longest of all: whatever stands around it."""
    normal = normalizer(name)
    plain = plain_entries(Column.of(entries), normal).tolist()
    for entry, is_plain in zip(entries, plain, strict=True):
        if is_plain:
            assert read_change(entry, None, None) == read_change(entry, None, normal)
    if name == "email" and b"a@b.com" in entries:
        assert plain[entries.index(b"a@b.com")]


def test_keys_of_other_lists_are_taken_as_they_are() -> None:
    """Without a normalizer, what begins like a domain is a key like any other."""
    assert read_change(b"@x", b'{"op":"add"}', None).keys == (b"@x",)
    with pytest.raises(MalformedError, match="the entry is empty"):
        read_change(b"", b'{"op":"add"}', None)


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        (b"A@Example.com ", b"a@example.com"),
        (b"@Example.com", b"@example.com"),
        (b" .Example.com", b".example.com"),
    ],
)
def test_one_entry_has_one_record_key(entry: bytes, key: bytes) -> None:
    """However it is written: so compaction leaves the last word on it, and it reads back as the same entry."""
    assert control_key(entry, EMAIL) == key
    assert control_key(key, EMAIL) == key
    assert read_change(key, None, EMAIL).keys


def test_what_is_written_can_be_read() -> None:
    """A reason is for people; a very long one is refused before it is written."""
    assert read_change(b"a@b.com", message("add", "spam"), EMAIL).change == ADDED
    assert read_change(b"a@b.com", message("remove", ""), EMAIL).change == REMOVED
    with pytest.raises(ConfigError, match="the limit is 1000"):
        message("add", "x" * (REASON_CHARS_MAX + 1))
    with pytest.raises(ConfigError, match="--actor has 101 characters; the limit is 100"):
        message("add", "", "x" * (ACTOR_CHARS_MAX + 1))
    with pytest.raises(ConfigError, match="--actor is for add and remove"):
        message("undo", "", "anna")
    with pytest.raises(ConfigError, match="--reason is not UTF-8"):
        message("add", os.fsdecode(b"\xff"))
    longest = "\U0001f600" * REASON_CHARS_MAX, "\U0001f600" * ACTOR_CHARS_MAX
    found = read_change(b"a@b.com", message("add", *longest), EMAIL)
    assert (found.reason, found.actor) == longest
