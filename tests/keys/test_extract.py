"""Claims about extraction: which values are keys, which are one key, and what a reason may say."""

import json

import pytest

from streamdedup.errors import MalformedError
from streamdedup.events import Column, EventBatch, Headers
from streamdedup.kafka.records import records as records_module
from streamdedup.kafka.records.records import Record
from streamdedup.keys.extract import BYTES_A_TURN, Extractor, json_keys
from streamdedup.keys.formats.json_kinds import without_place
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import Tombstones
from tests.keys.reading import json_reader
from tests.rows import table

NOT_JSON = "the value is not valid JSON: "
DEEP = "the value is nested deeper than 1,024 levels, at byte "
PRIVATE = "s3cr3t@example.com"


@table(
    [
        (b"", "it is empty"),
        (b" ", "it is empty"),
        (b"\xef\xbb\xbf\n", "it is empty"),
        (b"{", "it ends too early, at byte 2"),
        (b'{"id": "abc', "it ends too early, at byte 12"),
        (b'{"id": [1, 2]', "it ends too early, at byte 14"),
        (b'{"id"', "it ends too early, at byte 6"),
        (b'{"id": ', "it ends too early, at byte 8"),
        (b"{'id': 'a'}", "a name in double quotes is missing, at byte 2"),
        (b'{id: "a"}', "a name in double quotes is missing, at byte 2"),
        (b'{"id": "a",}', "a name in double quotes is missing, at byte 12"),
        (b'{"x": {"id" 1}}', "a colon is missing, at byte 13"),
        (b'{"id" = 1}', "a colon is missing, at byte 7"),
        (b'{"id": }', "a value is missing or wrong, at byte 8"),
        (b'{"id": a}', "a value is missing or wrong, at byte 8"),
        (b'{"id": 1, "x": [tru]}', "a value is missing or wrong, at byte 17"),
        (b'{"id": 1, "x": undefined}', "a value is missing or wrong, at byte 16"),
        (b'{"id": 1, "x": nan}', "a value is missing or wrong, at byte 16"),
        (b'{"id": 1, "x": +1}', "a value is missing or wrong, at byte 16"),
        (b"\xff\xfe{", "a value is missing or wrong, at byte 1"),
        (b'{"id": 007}', "a comma or a closing bracket is missing, at byte 9"),
        (b'{"id": 1 "x": 2}', "a comma or a closing bracket is missing, at byte 10"),
        (b'{"id": [1}', "a comma or a closing bracket is missing, at byte 10"),
        (b'{"id": 1, "x": "a"b"}', "a comma or a closing bracket is missing, at byte 19"),
        (b'{"id": "a"} {}', "something follows its end, at byte 13"),
        (b'{"id": "a"}\0', "something follows its end, at byte 12"),
        (b'{"id": 1, "x": 1.}', "a number is wrong, at byte 18"),
        (b'{"id": 1, "x": -a}', "a number is wrong, at byte 17"),
        (b'{"id": 1, "x": 1e+}', "a number is wrong, at byte 19"),
        (b'{"id": -Inf}', "a number is wrong, at byte 9"),
        (b'{"id": "a\\x41"}', "an escape in a string is wrong, at byte 10"),
        (b'{"id": 1, "x": "\\ud83"}', "an escape in a string is wrong, at byte 17"),
        (b'{"id": 1, "x": "\\ud83e\\uzzzz"}', "an escape in a string is wrong, at byte 23"),
        (b'{"id": 1, "a\tb": 1}', "a control character is in a string, at byte 13"),
        (b'{"id": 1, "x": ["\x00"]}', "a control character is in a string, at byte 18"),
        (b'{"id": "\xff"}', "a string is not UTF-8, at byte 9"),
        (b'{"id": 1, "Stra\xdfe": 1}', "a string is not UTF-8, at byte 16"),
        (b'{"id": 1, "x": "\xed\xa0\xbe"}', "a string is not UTF-8, at byte 17"),
        (b'{"x": "%s\n"}' % (b"a" * 5000), "a control character is in a string, at byte 5008"),
        (b"[" * 100_000, DEEP + "1025"),
        (b'{"id": 7, "x": %s}' % (b"[" * 1100 + b"]" * 1100), DEEP + "1039"),
    ]
)
def test_what_is_no_json_names_the_construct_and_the_byte(text: bytes, reason: str) -> None:
    """Bytes count from 1, in the text alone; other rows beside it do not matter, nor does the field."""
    expected = reason if reason.startswith("the value") else NOT_JSON + reason
    texts = Column.of([b'{"id":1}', text, b'{"', text])
    for fields in (["id"], ["x.y"], ["id", "x"]):
        _, malformed = json_keys(fields, texts)
        assert (malformed[1], malformed[3]) == (expected, expected)
        assert without_place(malformed[1]) == without_place(expected)


@table(
    [
        {"id": [PRIVATE]},
        {"id": {PRIVATE: PRIVATE}},
        {"other": PRIVATE},
        {"id": {"email": PRIVATE}, PRIVATE: 1},
        [PRIVATE],
        PRIVATE,
    ]
)
def test_a_reason_never_holds_data(document: object) -> None:
    """What stands in an event never appears in a reason, whole or cut off."""
    whole = json.dumps(document).encode()
    for text in (whole, whole[:-1], whole + b"}"):
        with pytest.raises(MalformedError) as caught:
            json_reader(["id"])(text)
        assert PRIVATE not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_where_a_path_leads() -> None:
    """Dotted paths follow names, JSON Pointers reach any name (~0, ~1), both index arrays."""
    user = {"id": "nested", "": "no name inside"}
    document = {"user": user, "items": ["zero", {"id": "second"}], "0": "digits", "01": "more"}
    document |= {"a.b": "dot", "a/b": "slash", "a~b": "tilde", "a~1b": "tilde one", "": "no name"}
    text = json.dumps({"id": "top", "é": "accent", **document}).encode()
    keys = {
        "id": b"top",
        "user.id": b"nested",
        "/user/id": b"nested",
        "é": b"accent",
        "items.1.id": b"second",
        "/items/1/id": b"second",
        "/items/0": b"zero",
        "/a.b": b"dot",
        "/a~1b": b"slash",
        "/a~0b": b"tilde",
        "/a~01b": b"tilde one",
        "/": b"no name",
        "/user/": b"no name inside",
        "/0": b"digits",
        "/01": b"more",
    }
    assert {field: json_reader([field])(text) for field in keys} == keys


@table(
    [
        "/items/2",
        "/items/-1",
        "/items/-",
        "/items/01",
        "/items/+1",
        "/items/1.0",
        "/items/\u0661",
        "/items/" + "9" * 5000,
        "/items/",
        "items.length",
        "/items/0/0",
        "a.b",
    ]
)
def test_where_no_path_leads(field: str) -> None:
    """What is no index of the array (RFC 6901), or leads into a string, is missing."""
    with pytest.raises(MalformedError, match=r"is missing$"):
        json_reader([field])(b'{"items": ["zero", "one"], "a.b": 1}')


def test_the_border_between_fields_counts() -> None:
    """(ab, c) differs from (a, bc): the size of each field stands before it, whatever it holds."""
    texts = [b'{"f":"ab","g":"c"}', b'{"f":"a","g":"bc"}', b'{"f":"","g":%d}' % 10**20]
    keys, _ = json_keys(["f", "g"], Column.of(texts))
    digits = b"1" + b"0" * 20
    assert list(keys) == [
        b"\2\0\0\0ab\1\0\0\0c",
        b"\1\0\0\0a\2\0\0\0bc",
        bytes(4) + b"\x15\0\0\0" + digits,
    ]


def test_of_a_repeated_header_the_last_counts() -> None:
    """A later null header hides an earlier one, another name does not."""
    batch = batch_of(
        values=[b""] * 4,
        headers=[
            [("h", b"1"), ("h", b"2"), ("x", b"3")],
            [("h", b"1"), ("h", None)],
            [("H", b"1")],
            [("h", b"")],
        ],
    )
    found = Extractor("header", ("h",)).extract(batch)
    assert list(found.keys) == [b"2", None, None, b""]
    assert found.malformed == {1: "the header h is null", 2: "the header h is missing"}


def test_a_null_record_key_is_malformed() -> None:
    """A record without a key has none, an empty key is one."""
    found = Extractor("key").extract(batch_of(values=[b"v", b"v"], keys=[None, b""]))
    assert list(found.keys) == [None, b""]
    assert found.malformed == {0: "the record key is null"}


@table(
    [
        ("pass", [b"a", None, None], {2: "the record key is null"}, [1], []),
        ("drop", [b"a", None, None], {2: "the record key is null"}, [], [1]),
        ("judge", [b"a", b"b", None], {2: "the record key is null"}, [], []),
    ]
)
def test_tombstones(
    tombstones: Tombstones,
    keys: list[bytes | None],
    malformed: dict[int, str],
    unjudged: list[int],
    dropped: list[int],
) -> None:
    """Events with a null value pass unjudged, are dropped, or are judged by the key they have."""
    batch = batch_of(values=[b"1", None, b"3"], keys=[b"a", b"b", None])
    found = Extractor("key", tombstones=tombstones).extract(batch)
    assert (list(found.keys), found.malformed) == (keys, malformed)
    assert (list(found.unjudged), list(found.dropped)) == (unjudged, dropped)


@pytest.mark.parametrize("extractor", [Extractor("json", ("id",)), Extractor("value")])
def test_a_tombstone_judged_by_its_value_is_malformed(extractor: Extractor) -> None:
    """A null value has no key in it, and an empty value is not null."""
    judging = Extractor(extractor.origin, extractor.fields, tombstones="judge")
    found = judging.extract(batch_of(values=[None, b""]))
    assert found.malformed[0] == "the value is null"
    assert found.malformed.get(1) == (
        NOT_JSON + "it is empty" if extractor.origin == "json" else None
    )


def test_each_reason_names_what_its_own_value_looks_like() -> None:
    """Also where several values of several serializers are no JSON, among others that are too short to tell."""
    values: list[bytes | None] = [
        *(b"\0\0\0\0\7abc", b'{"id": 1}', b"\0\0\0\1\0", b"\0\0\0\0", b""),
        *(b"{", b'{"id": true}', b"\0\0\0\0\7"),
    ]
    found = Extractor("json", ("id",)).extract(batch_of(values))
    looks = "the value looks like Schema Registry data, schema id"
    assert {row: reason.partition(":")[0] for row, reason in found.malformed.items()} == {
        0: f"{looks} 7",
        2: f"{looks} 256",
        **dict.fromkeys((3, 4, 5), "the value is not valid JSON"),  # before the colon
        6: "the field id is a boolean",
        7: f"{looks} 7",
    }


def batch_of(
    values: list[bytes | None],
    keys: list[bytes | None] | None = None,
    headers: list[Headers] | None = None,
) -> EventBatch:
    """A batch of these values, with null keys and no headers where none are given."""
    count = len(values)
    cells = zip(keys or [None] * count, values, headers or [()] * count, strict=True)
    records = [Record.of(0, *each) for each in cells]
    return records_module.batch_of("t", 0, range(count), records, next_offset=count)


def test_the_first_field_that_is_missing_is_named() -> None:
    """If several fields are no keys, the reason names the first of them; rows beside it keep their keys."""
    texts = Column.of(
        [b'{"a":1,"b":2}', b'{"a":1.5}', b'{"a":1}', None, b"{", b'{"a":"\\t","b":""}']
    )
    keys, malformed = json_keys(["a", "b"], texts)
    assert list(keys) == [b"\1\0\0\0001\1\0\0\0002", *[None] * 4, b"\1\0\0\0\t\0\0\0\0"]
    assert malformed == {
        1: "the field a is not an integer",
        2: "the field b is missing",
        3: "the value is null",
        4: NOT_JSON + "it ends too early, at byte 2",
    }


@table(
    [
        (Extractor("json", ("id",)), True),
        (Extractor("json", ("id", "tenant")), True),
        (Extractor("value"), False),
        (Extractor("value", normalizer=normalizer("lowercase")), True),
        (Extractor("key", normalizer=normalizer("lowercase")), False),
        (Extractor("header", ("h",), normalizer=normalizer("lowercase")), False),
    ]
)
def test_many_bytes_are_read_beside_the_loop(extractor: Extractor, long: bool) -> None:
    """A batch goes to a thread if more than BYTES_A_TURN bytes of it are read, however few its events are."""
    quarter, half = (b'{"id":"%s"}' % (b"a" * (BYTES_A_TURN // part - 9)) for part in (4, 2))
    assert not extractor.takes_long_for(batch_of([quarter, None, quarter]))
    assert extractor.takes_long_for(batch_of([half, half + b" "])) is long
    by_key = Extractor("key", normalizer=normalizer("lowercase"))
    assert by_key.takes_long_for(batch_of([b"", b""], keys=[half, half + b" "]))
