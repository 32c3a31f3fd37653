"""Claims about keys in Protobuf messages: wherever one is cut, and in many rows."""

from random import Random

import pytest
from hypothesis import given, settings

from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.protobuf_column import DEPTH_MAX
from tests.keys.avro import Answer
from tests.keys.test_protobuf import (
    EVENT,
    FIRST,
    MESSAGES,
    MINUTE,
    OF_PATH,
    OTHER,
    PLAIN,
    expected,
    found,
    of_text,
    piece,
    tag,
)
from tests.rows import table

pytestmark = pytest.mark.bounds


@settings(deadline=MINUTE)
@given(MESSAGES)
def test_a_message_that_is_cut_within_a_field_does_not_fit(body: bytes) -> None:
    """Between two fields, a shorter message is a message."""
    schemas = OF_PATH["plain"]
    for at in range(len(body)):
        (ours,) = found(schemas, body[:at])
        if expected(body[:at], "plain") is FramedKind.UNFIT and ours is not FramedKind.UNFIT:
            assert ours is not FramedKind.TOO_DEEP
        elif expected(body[:at], "plain") is not FramedKind.UNFIT:
            assert ours == expected(body[:at], "plain")


def test_many_rows() -> None:
    """More than one call of the kernel takes."""
    random, schemas = Random(3), OF_PATH["user.int64_of"]
    numbers = [random.randrange(-(2**63), 2**63) for _ in range(70_000)]
    bodies = [EVENT(user={"int64_of": number}).SerializeToString() for number in numbers]
    assert found(schemas, *bodies) == [b"%d" % number for number in numbers]


def test_groups_are_passed_to_a_depth() -> None:
    """Their ends must be those of their beginnings."""
    schemas = OF_PATH["plain"]
    for depth, known in ((DEPTH_MAX, True), (DEPTH_MAX + 1, False)):
        numbers = range(50, 50 + depth)
        body = b"".join(tag(n, 3) for n in numbers) + b"".join(tag(n, 4) for n in reversed(numbers))
        key = [b"k"] if known else [FramedKind.UNFIT]
        assert found(schemas, body + piece(6, b"k")) == key
    for wrong in (tag(50, 4), tag(50, 3), tag(50, 3) + tag(51, 4), tag(50, 6), tag(50, 7), b"\0"):
        assert found(schemas, wrong + piece(6, b"k")) == [FramedKind.UNFIT]


def test_the_path_is_followed_to_a_depth() -> None:
    """As far as the kernel's stack goes."""
    text = 'syntax = "proto3"; message E { E e = 1; string id = 2; }'
    body = piece(2, b"k")
    for _ in range(DEPTH_MAX):
        body = piece(1, body)
    assert found(of_text("e." * DEPTH_MAX + "id", text), body) == [b"k"]
    assert found(of_text("e." * (DEPTH_MAX + 1) + "id", text), piece(1, body)) == [
        FramedKind.TOO_DEEP
    ]


ONEOFS = [
    (FIRST + PLAIN, "first.of_oneof", FramedKind.MISSING),
    (FIRST + PLAIN, "plain", b"p"),
    (PLAIN + FIRST, "plain", FramedKind.MISSING),
    (FIRST + PLAIN + piece(4, b""), "first.of_oneof", FramedKind.MISSING),
    (FIRST + PLAIN + FIRST, "first.of_oneof", b"a"),
    (FIRST + piece(5, b"") + FIRST, "second.string_of", FramedKind.MISSING),
    (piece(3, piece(42, b"a")) + OTHER, "user.of_oneof", FramedKind.MISSING),
    (OTHER + piece(3, piece(42, b"a")), "user.of_oneof", b"a"),
    (piece(3, piece(42, b"a")) + piece(3, piece(10, b"b")), "user.of_oneof", b"a"),
]


@table(ONEOFS)
def test_a_later_member_of_a_oneof_unsets_the_key(body: bytes, path: str, key: Answer) -> None:
    """On each step of the path; Google's reader says the same."""
    assert found(OF_PATH[path], body) == [key]
    assert expected(body, path) == key
