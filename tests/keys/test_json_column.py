"""Claims about keys that a kernel finds in JSON: they are those of the exact reader, byte by byte, or are left to it.

Each text stands between others in one buffer, which would complete what is cut short.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.extract import json_keys
from streamdedup.keys.formats import json_column, json_exact
from streamdedup.keys.formats.json_column import NODES_MAX, located, located_all
from streamdedup.keys.formats.json_kinds import Kind
from streamdedup.keys.hashing import ROWS_A_CALL
from streamdedup.keys.join import joined
from streamdedup.keys.words import BYTES_A_CALL
from tests.keys.exact import are_alike, exact_reader, steps_of
from tests.rows import every, table

FIELDS = (
    "id",
    "user.id",
    "/a.b/é",
    "/",
    "0",
    "user.0",
    "user.user.id",
    "1.0",
    "user.1.id",
    "0.0.1",
    "/a~1b",
)
AFTER = (b'"}', b'"}]}', b"0}", b'd":7}', b"\xa9", b"", b" ", b"}", b'e"', b',"id":1}')

# A few of each sort; all others: proof/keys/json_texts.py.
ORDINARY = [
    b'{"event_id":"5f0c3e1a-77b2-4a55-9a51-0c4cf1bb2b0e","email":"a@b.c","ts":1,"id":"/a/b"}',
    b'{"id":"x","amount":12.50,"ratio":-1e-05,"ok":true,"no":false,"none":null}',
    b'{"id": 7, "tags": ["a", "b"], "where": {"id": 9, "lat": 1.5, "lon": -0.25}}',
    b'\r\n{\t"x" : [ ] ,\n"y" : { } , "id" : -12 }\n',
    '{"id":"straße 1","name":"Ωmega","text":"日本 🦉"}'.encode(),
    b'{"id":"a/b","path":"\\/a\\/b","text":"say \\"hi\\"\\n\\t\\b\\f\\r\\\\ \\u00e9\\u0041"}',
    b'{"id":"","":"","a":[[[{"id":{"id":[{}]}}]]]}',
    b'{"id":0,"ids":"1","Id":"2","i":"3","id ":"4"}',
    # What need not decode, since it is no key: halves of surrogate pairs, numbers that no double is.
    b'{"id":7,"x":"\\ud83e","y":["\\udd14\\ud83e",{"z":"a\\uDFFF"}]}',
    b'{"id":7,"x":1e999,"y":[-1e400,1e-999,0e1234567890123456789]}',
    b'{"id":7,"x":NaN,"y":[Infinity,-Infinity,{"z":NaN}]}',
    b'{"id":%s}' % (b"9" * 400),
]
ODD = [
    b'{"id":"\\u0061"}',
    b'{"id":"a","\\u0069d":"b"}',
    b'{"id":"a","x":{},"id":null}',
    b'{"user":{"id":"a"},"user":{"id":"b"}}',
    b'{"user":{"id":"a","id":"b"}}',
    b'{"id":-0}',
    b'{"id":1.5}',
    b'{"id":true}',
    b'{"id":null}',
    b'{"id":[1]}',
    b'{"id":{"id":1}}',
    b"{}",
    b"NaN",
    b'{"id":0.0}',
    b'{"id":1e2}',
    b'{"x":"\\ud83e\\udd89","id":"owl"}',
    b'{"id":"\\"\\\\\\/\\b\\f\\n\\r\\t","user":{"id":"\\t","0":"\\n"}}',
    b'{"user":{"id":"a"},"\\u0075ser":{}}',
    b'{"user":{"user":{"id":1}},"user":{"user":{"id":"b","id":[]}}}',
    b'[["a",["b"],"c"],["d","e"],["f"]]',
    b'{"0":[[0,"\\n"]],"0":[[1,"\\t"]]}',
    b'{"user":["a",{"id":"b","id":{"id":1}},{}]}',
    b'{"id":"\\ud83e"}',
    b'{"id":NaN}',
    b'\xef\xbb\xbf{"id":7}',
    *(b'{"id":%d}' % number for number in (2**63, -(2**63) - 1, 2**1024 - 2**970 - 1, -(10**4000))),
    *(b'{"id":%d,"x":%s%s}' % (number, b"[" * 900, b"]" * 900) for number in (7, 10**30)),
]
WRONG = [
    b"\0\0\0\0\7",
    b"",
    b"{",
    b'{"id":"',
    b'{"id":7,}',
    b'{"id":7} x',
    b'{"id":7,"x":[1,]}',
    b'{"id":7,,"x":1}',
    b'{"id" 7}',
    b'{"id":07}',
    b'{"id":7,"x":1.}',
    b'{"id":7,"x":tru}',
    b'{"id":7,"x":"\\a"}',
    b'{"id":7,"x":"\n"}',
    b'{"id":7,"x":"\xc0\xaf"}',
    b'{"id":7,"x":"\xe2\x82"}',
    b'{"id":7}\x00',
    b'{"id":7,"x":Infinit}',
    b'{"id":7,"x":"\\ud83"}',
    b'{"id":7,NaN:1}',
    b'\xef\xbb\xbf\xef\xbb\xbf{"id":7}',
]


# --- which texts the kernel takes ---


def test_ordinary_texts_are_taken() -> None:
    """What producers write is found by the kernel, wherever the key stands, also with escapes and accents beside it."""
    every(ORDINARY, is_taken)


def is_taken(text: bytes) -> None:
    """The kernel finds the key."""
    assert list(located(("id",), Column.of([text]))) == [exact_reader("id")(text)]


PLAIN = st.text(st.characters(codec="utf-8", exclude_characters='"\\', exclude_categories=["Cc"]))


@given(
    st.dictionaries(PLAIN, st.none() | st.booleans() | st.integers() | PLAIN | st.lists(PLAIN)),
    PLAIN | st.integers(-(10**17) + 1, 10**18 - 1),
)
@settings(deadline=None)
def test_of_any_plain_document_nothing_is_left(document: dict[str, object], key: object) -> None:
    """Whatever stands beside it: a key without escapes is found."""
    text = json.dumps({**document, "id": key}, ensure_ascii=False).encode()
    assert list(located(("id",), Column.of([text]))) == [str(key).encode()]


SEVERAL: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("id",), ("user", "id")),
    (("user", "id"), ("user", "name"), ("id",)),
    (("user",), ("user", "id")),
    (("a.b", "é"), ("",), ("0",), ("user", "0")),
    (("id",), *(("user", str(number)) for number in range(NODES_MAX))),
)


def test_keys_of_several_paths_are_those_of_each() -> None:
    """In one pass; a row that has one key that is not plain may be left whole to the exact reader."""
    texts = Column.of([*ORDINARY, *ODD, *WRONG])
    every(SEVERAL, lambda paths: keys_are_those_of_each(paths, texts))


def keys_are_those_of_each(paths: Sequence[tuple[str, ...]], texts: Column) -> None:
    """Compare the keys of paths that are followed together with those of each."""
    several = located_all(paths, texts)
    alone = [located(steps, texts) for steps in paths]
    for found, expected in zip(several, alone, strict=True):
        for key, one in zip(found, expected, strict=True):
            assert key in (one, None)
    fields = ["/" + "/".join(steps) for steps in paths]
    keys, _ = json_keys(fields, texts)
    whole = [json_keys([field], texts)[0] for field in fields]
    assert list(keys) == list(joined(whole))


def test_several_fields_take_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a key of three fields is that of one, but for what joins them."""
    calls, fill = [], json_column.fill

    def counted(*arguments: Any) -> int:
        calls.append(arguments)
        return fill(*arguments)

    monkeypatch.setattr(json_column, "fill", counted)
    keys, malformed = json_keys(["c", "a", "b.d", "a"], Column.of([b'{"a":"x","b":{"d":2},"c":3}']))
    assert (len(keys), malformed, len(calls)) == (1, {}, 1)
    parts = (b"3", b"x", b"2", b"x")
    assert keys[0] == b"".join(len(part).to_bytes(4, "little") + part for part in parts)


# --- that it never differs from the exact reader ---


def test_the_table_of_cases() -> None:
    """Keys, and the reasons where there are none, are those of the exact reader."""
    every(FIELDS, lambda field: all_agree(field, [*ORDINARY, *ODD, *WRONG]))


def test_a_fault_anywhere() -> None:
    """Of a text that lacks a byte, or has a quote or a bracket more, wherever that is, the two say the same."""
    texts = [text for text in (*ORDINARY, *ODD) if len(text) < 100]
    without = [text[:at] + text[at + 1 :] for text in texts for at in range(len(text))]
    more = [
        text[:at] + extra + text[at:]
        for text in texts
        for at in range(len(text))
        for extra in (b'"', b"}")
    ]
    every(("id", "user.id"), lambda field: all_agree(field, [*without, *more]))


@given(st.lists(st.binary(max_size=30) | st.text(max_size=20).map(str.encode), max_size=8))
@settings(deadline=None)
def test_any_bytes(texts: list[bytes]) -> None:
    """Bytes of any kind, alone and as the value of a name."""
    agrees("id", [*texts, *(b'{"id":%s}' % text for text in texts)])


# --- that it reads no byte of another row ---


@table([(0, 100), (-1, 5), (7, 2), (90, 1), (2, -7), (2**62, 2**62)])
def test_a_row_beyond_the_buffer_is_left_alone(start: int, size: int) -> None:
    """Rows that lie outside the buffer are not read by the kernels, and harm no other."""
    column = Column(b'{"id":1}', np.array([start, 0]), np.array([size, 8]))
    assert list(located(("id",), column)) == [None, b"1"]
    assert list(json_exact.read(("id",), column)[0]) == [None, b"1"]


# --- columns ---


def test_nothing_is_copied_where_all_is_plain() -> None:
    """The column of keys is over the buffer of the values."""
    values = Column.of([b'{"id":"a"}', b'{"id":"b"}'])
    keys, malformed = json_keys(["id"], values)
    assert keys.buffer is values.buffer
    assert (list(keys), malformed) == ([b"a", b"b"], {})


def test_no_more_is_kept_than_lies_between_the_keys() -> None:
    """Of a whole fetch, a few rows with one odd text among them."""
    texts = Column.of([b'{"id":"%d"}' % n for n in range(10_000)] + [b'{"id":"\\u0041"}'] * 2)
    found, reasons = json_keys(["id"], texts.take(slice(9_998, 10_001)))
    assert list(found) == [b"9998", b"9999", b"A"]
    assert not reasons
    assert len(found.buffer) < 40


def test_many_rows_and_long_ones() -> None:
    """Columns of more rows, or bytes, than one call takes are read to the end."""
    many = [b'{"id":%d}' % number for number in range(ROWS_A_CALL + 10)]
    assert list(located(("id",), Column.of(many))) == [b"%d" % row for row in range(len(many))]
    long = [b'{"x":"%s","id":%d}' % (b"y" * (BYTES_A_CALL // 2), number) for number in range(5)]
    assert list(located(("id",), Column.of(long))) == [b"%d" % row for row in range(5)]


def all_agree(field: str, texts: Sequence[bytes]) -> None:
    """As `agrees`, if nothing more is to be said of what the plain kernel finds."""
    agrees(field, texts)


def agrees(field: str, texts: Sequence[bytes]) -> Column:
    """What the plain kernel finds in `texts`; it and the exact one find what Python code reads there, and no more."""
    read, steps = exact_reader(field), steps_of(field)
    starts = np.cumsum(
        [0, *(len(text) + len(AFTER[i % len(AFTER)]) for i, text in enumerate(texts))]
    )
    buffer = b"".join(text + AFTER[i % len(AFTER)] for i, text in enumerate(texts))
    column = Column(buffer, starts[:-1], np.array([len(text) for text in texts], dtype=np.int64))
    found = located(steps, column)
    keys, reasons = json_keys([field], column)
    exact = all_exact(steps, column)
    for row, (text, key, whole) in enumerate(zip(texts, found, keys, strict=True)):
        try:
            expected, reason = read(text), None
        except MalformedError as malformed:
            expected, reason = None, str(malformed)
        assert key is None or key == expected, text
        assert whole == expected, text
        assert are_alike(reasons.get(row), reason, len(text)), text
        assert exact[row] == expected, text
    return found


def all_exact(steps: Sequence[str], column: Column) -> list[bytes | None]:
    """The keys of all rows by the exact kernels, which otherwise read only what the plain one leaves."""
    found, kinds, _ = json_exact.read(steps, column)
    rows = np.flatnonzero(kinds == Kind.ESCAPED)
    return list(found.replaced(rows, json_exact.decoded(found.take(rows))))
