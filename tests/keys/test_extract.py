"""Claims about extraction: which values are keys, which are one key, and what a reason may say."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

LARGEST = 2**1024 - 2**970 - 1  # the next integer rounds to an infinite double
NOT_JSON = "the value is not valid JSON: "
DEEP = "the value is nested deeper than 1,024 levels, at byte "
PRIVATE = "s3cr3t@example.com"


def test_a_string_is_its_decoded_text() -> None:
    """Two spellings of one text, escaped and not, are one key."""
    read = json_reader(["id"])
    assert read('{"id": "a/é\\n"}'.encode()) == "a/é\n".encode()
    assert read(b'{"id": "\\u0061\\/\\u00e9\\u000a"}') == "a/é\n".encode()
    assert read(b'{"id": ""}') == b""


@table(
    [
        0,
        7,
        -7,
        2**63 - 1,
        -(2**63),
        2**64 - 1,
        2**64,
        -(2**63) - 1,
        -(10**30),
        10**308,
        LARGEST,
        -LARGEST - 1,
        -(10**4000),
    ]
)
def test_an_integer_is_its_decimal_text(number: int) -> None:
    """An integer of any length is one key with the string of its digits."""
    read = json_reader(["id"])
    assert read(b'{"id": %d}' % number) == b"%d" % number
    assert read(b'{"id": "%d"}' % number) == b"%d" % number


@pytest.mark.parametrize("number", [7, 10**30])
def test_a_document_may_be_nested_deep(number: int) -> None:
    """With 900 levels beside it a key is read, also where it takes the exact parser."""
    text = b'{"id": %d, "other": %s}' % (number, b"[" * 900 + b"]" * 900)
    assert json_reader(["id"])(text) == b"%d" % number


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


@given(st.lists(st.text(), min_size=2, max_size=4), st.lists(st.text(), min_size=2, max_size=4))
def test_several_fields_are_one_key_only_if_each_is_equal(one: list[str], two: list[str]) -> None:
    """Keys of several fields are equal exactly where all the fields are."""
    two = (two * 2)[: len(one)] if len(two) < len(one) else two[: len(one)]
    assert (_joined(one) == _joined(two)) is (one == two)
    assert (_joined(one) == _joined(one[::-1])) is (one == one[::-1])


def test_the_border_between_fields_counts() -> None:
    """(ab, c) differs from (a, bc), and a field may hold what looks like a border."""
    assert _joined(["ab", "c"]) != _joined(["a", "bc"])
    assert _joined(["", "ab"]) != _joined(["ab", ""])
    assert _joined(["a\x01\x00\x00\x00b", ""]) != _joined(["a", "b"])
    assert _joined(["ab", "c"]) == b"\x02\0\0\0ab\x01\0\0\0c"


def test_origins() -> None:
    """The key is taken from a JSON field, the record's key, its value, or a header."""
    batch = batch_of(
        values=[b'{"id": 1}'], keys=[b"\x00k"], headers=[[("h", b"first"), ("h", b"last")]]
    )
    assert list(Extractor("json", ("id",)).extract(batch).keys) == [b"1"]
    assert list(Extractor("key").extract(batch).keys) == [b"\x00k"]
    assert list(Extractor("value").extract(batch).keys) == [b'{"id": 1}']
    assert list(Extractor("header", ("h",)).extract(batch).keys) == [b"last"]


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


def _joined(fields: list[str]) -> bytes:
    """Return the key of an event that has these texts in as many fields."""
    names = [f"f{i}" for i in range(len(fields))]
    document = dict(zip(names, fields, strict=True))
    return json_reader(names)(json.dumps(document, ensure_ascii=False).encode())


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


def test_several_large_integers() -> None:
    """Each of several fields may be an integer beyond 64 bits."""
    key = json_reader(["a", "b"])(b'{"a": %d, "b": -%d}' % (10**20, 10**21))
    assert key == b"\x15\0\0\0%d\x17\0\0\0-%d" % (10**20, 10**21)


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
