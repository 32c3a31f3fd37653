"""Claims about keys that a kernel finds in JSON: they are those of the exact reader, byte by byte, or are left to it.

Each text stands between others in one buffer, which would complete what is cut short.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import MalformedError
from streamdedup.events import NULL, Column, EventBatch
from streamdedup.keys.extract import Extractor, json_keys
from streamdedup.keys.formats import json_column, json_exact
from streamdedup.keys.formats.json_column import DEPTH_MAX as PLAIN_DEPTH_MAX
from streamdedup.keys.formats.json_column import NODES_MAX, located, located_all
from streamdedup.keys.formats.json_kinds import Kind
from streamdedup.keys.hashing import ROWS_A_CALL
from streamdedup.keys.join import joined
from streamdedup.keys.words import BYTES_A_CALL
from tests.keys.exact import are_alike, exact_reader, steps_of

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

ORDINARY = [
    b'{"event_id":"5f0c3e1a-77b2-4a55-9a51-0c4cf1bb2b0e","email":"a@b.c","ts":1,"id":"/a/b"}',
    b'{"id":"x","amount":12.50,"ratio":-1e-05,"ok":true,"no":false,"none":null}',
    b'{"id": 7, "tags": ["a", "b"], "where": {"id": 9, "lat": 1.5, "lon": -0.25}}',
    b'\r\n{\t"x" : [ ] ,\n"y" : { } , "id" : -12 }\n',
    '{"id":"straße 1","name":"Ωmega","text":"日本 🦉"}'.encode(),
    b'{"id":"a/b","path":"\\/a\\/b","text":"say \\"hi\\"\\n\\t\\b\\f\\r\\\\ \\u00e9\\u0041"}',
    b'{"id":"","":"","a":[[[{"id":{"id":[{}]}}]]]}',
    b'{"id":0,"ids":"1","Id":"2","i":"3","id ":"4"}',
    b'{"id":999999999999999999,"count":123456789012345678901234567890}',
    b'{"id":-99999999999999999,"big":1E99,"small":1e-99,"plus":1e+9}',
    # What need not decode, since it is no key: halves of surrogate pairs, numbers that no double is.
    b'{"id":7,"x":"\\ud83e","y":["\\udd14\\ud83e",{"z":"a\\uDFFF"}]}',
    b'{"x":{"\\ud83e":1,"\\udd14id":{"\\ud800":[]}},"id":"a"}',
    b'{"id":7,"x":1e999,"y":[-1e400,1e-999,0e1234567890123456789]}',
    b'{"id":7,"x":%s.5,"y":-%s}' % (b"9" * 400, b"9" * 5_000),
    b'{"id":7,"x":NaN,"y":[Infinity,-Infinity,{"z":NaN}]}',
    b'{"id":%s}' % (b"9" * 400),
    b'{"id":-1%s}' % (b"0" * 5_000),
]
ODD = [
    b'{"id":"\\u0061"}',
    b'{"\\u0069d":"a"}',
    b'{"id":"a","\\u0069d":"b"}',
    b'{"id":"a","id":"b"}',
    b'{"id":"a","x":{},"id":null}',
    b'{"id":{},"id":"a"}',
    b'{"user":{"id":"a"},"user":{"id":"b"}}',
    b'{"user":{"id":"a"},"user":{}}',
    b'{"user":{"id":"a"},"user":1}',
    b'{"user":{"id":"a","id":"b"}}',
    b'{"user":[{"id":"a"}],"id":1}',
    b'{"user":["first"],"x":{"0":1}}',
    b'{"id":-0}',
    b'{"id":-0,"x":1}',
    b'{"id":0.0}',
    b'{"id":1.5}',
    b'{"id":1e2}',
    b'{"id":1234567890123456789}',
    b'{"id":-123456789012345678}',
    b'{"id":18446744073709551616}',
    b'{"id":true}',
    b'{"id":null}',
    b'{"id":[1]}',
    b'{"id":{"id":1}}',
    b"{}",
    b"[]",
    b'[{"id":1}]',
    b'"id"',
    b"7",
    b'{"x":"\\ud83e\\udd89","id":"owl"}',
    b'{"id":"\\ud83e\\udd89\\uD83E\\uDD89 \\u0000\\u007f\\u0080\\u07ff\\u0800\\uFFFF"}',
    b'{"id":"\\"\\\\\\/\\b\\f\\n\\r\\t","user":{"id":"\\t","0":"\\n"}}',
    b'{"a.b":{"\\u00e9":"escaped","\\u00E9":"again"}}',
    b'{"a.b":{"\\u00e":1,"\\u00e9 ":2,"\\u00e9":3}}',
    b'{"a\\/b":1,"a/b":2,"a\\u002fb":3}',
    b'{"\\u0075ser":{"\\u0069d":"a"},"user":{"i\\u0064":"b","x":1}}',
    b'{"user":{"id":"a"},"\\u0075ser":{}}',
    b'{"user":{"user":{"id":1},"user":2}}',
    b'{"user":{"user":{"id":1}},"user":{"user":{"id":"b","id":[]}}}',
    b'["a","b"]',
    b'["a",["b"],["c"]]',
    b'[["a",["b"],"c"],["d","e"],["f"]]',
    b"[[[1,2],[3,4]],[5,6],7]",
    b'[[[],"z"],["y"],["x"],["w"]]',
    b"[[[1]],[[[2]]]]",
    b'[{"1":"a"},{"0":"b"},{"0":"c"}]',
    b'[{},[[[9]],8],["c"]]',
    b'{"1":["a"],"0":[["b","c"],"d"]}',
    b'{"0":[[0,"\\n"]],"0":[[1,"\\t"]]}',
    b'{"user":["a",{"id":"b"},{"id":"c"}]}',
    b'{"user":[{"id":"a"},[{"id":"b"},{"id":"c"}]]}',
    b'{"user":["a",{"id":"b"}],"user":["c"]}',
    b'{"user":["a",{"id":"b","id":{"id":1}},{}]}',
    b'{"user":["\\u0061","\\u0062"],"0":"\\u0063"}',
    b'{"id":"\\ud83e"}',
    b'{"id":"\\uD83E\\udd14\\ud83e","user":{"id":"\\udd14\\ud83e"}}',
    b'{"id":"\\ud83e\\ud83e\\udd14\\udd14"}',
    b'{"id":"a\\ud83ez","0":"\\ud83e\\n\\udd14"}',
    b'{"id":NaN}',
    b'{"id":-Infinity,"user":{"id":Infinity}}',
    b'{"id":1e999,"0":-0.0}',
    b'{"id":-0,"x":NaN}',
    b'\xef\xbb\xbf{"id":7}',
    b'\xef\xbb\xbf \n{"id":"\xef\xbb\xbf"}',
    b'\xef\xbb\xbf{"\\u0069d":"a"}',
    b'\xef\xbb\xbf["a",NaN]',
    b"NaN",
    b"-Infinity",
    b"1e999",
]
WRONG = [
    b"",
    b" ",
    b"{",
    b'{"id"',
    b'{"id":',
    b'{"id":"',
    b'{"id":7',
    b'{"id":7,}',
    b'{"id":7}}',
    b'{"id":7} x',
    b'{"id":7}{"id":7}',
    b'{"id":7]',
    b'{"id":7,"x":[1}',
    b'{"id":7,"x":[1,]}',
    b'{"id":7,"x":[,1]}',
    b'{"id":7,,"x":1}',
    b'{,"id":7}',
    b'{"id" 7}',
    b'{"id"::7}',
    b'{"id":7 "x":1}',
    b"{id:7}",
    b"{'id':7}",
    b'{"id":07}',
    b'{"id":+7}',
    b'{"id":-}',
    b'{"id":7,"x":-01}',
    b'{"id":7,"x":1.}',
    b'{"id":7,"x":.5}',
    b'{"id":7,"x":1e}',
    b'{"id":7,"x":1e+}',
    b'{"id":7,"x":1.5.5}',
    b'{"id":7,"x":0x10}',
    b'{"id":7,"x":1_000}',
    b'{"id":7,"x":tru}',
    b'{"id":7,"x":truee}',
    b'{"id":7,"x":True}',
    b'{"id":7,"x":nul}',
    b'{"id":7,"x":fals}',
    b'{"id":7,"x":"\\a"}',
    b'{"id":7,"x":"\\u12g4"}',
    b'{"id":7,"x":"\\u123"}',
    b'{"id":7,"x":"\n"}',
    b'{"id":7,"x":"\x1f"}',
    b'{"id":"\x00"}',
    b'{"id":7,"x":"\x80"}',
    b'{"id":7,"x":"\xc0\xaf"}',
    b'{"id":7,"x":"\xc1\xbf"}',
    b'{"id":7,"x":"\xe0\x9f\xbf"}',
    b'{"id":7,"x":"\xed\xa0\x80"}',
    b'{"id":7,"x":"\xf0\x8f\xbf\xbf"}',
    b'{"id":7,"x":"\xf4\x90\x80\x80"}',
    b'{"id":7,"x":"\xf5\x80\x80\x80"}',
    b'{"id":7,"x":"\xe2\x82"}',
    b'{"id":7,"x":"\xe2\x82',
    b'{"id":7}\x00',
    b'\x0b{"id":7}',
    b'{"id":7,\xa0"x":1}',
    b'{"id":7/**/}',
    b'{"id":7,"x":nan}',
    b'{"id":7,"x":NAN}',
    b'{"id":7,"x":+Infinity}',
    b'{"id":7,"x":Infinit}',
    b'{"id":7,"x":-Inf}',
    b'{"id":7,"x":-NaN}',
    b'{"id":7,"x":Infinityy}',
    b'{"id":7,"x":"\\ud83"}',
    b'{"id":7,"x":"\\ud83e\\udd1"}',
    b'{"id":7,"x":"\\ud83e\\"}',
    b'{"id":7,NaN:1}',
    b"\xef\xbb\xbf",
    b'\xef\xbb{"id":7}',
    b'\xef\xbb\xbf\xef\xbb\xbf{"id":7}',
    b' \xef\xbb\xbf{"id":7}',
    b'{"id":\xef\xbb\xbf7}',
]


# --- which texts the kernel takes ---


@pytest.mark.parametrize("text", ORDINARY, ids=range(len(ORDINARY)))
def test_ordinary_texts_are_taken(text: bytes) -> None:
    """What producers write is found by the kernel, wherever the key stands, also with escapes and accents beside it."""
    assert list(located(("id",), Column.of([text]))) == [exact_reader("id")(text)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_what_a_serializer_writes_is_taken(indent: int | None, *, ascii_only: bool) -> None:
    """A nested document by the standard library, compact or over many lines, needs no other reader."""
    inner = {"id": "deep", "names": ["Zoë", "x\ny", ""], "at": [1.5, -2, 1e300 / 1e250, True, None]}
    document = {"meta": inner, "user": inner, "id": "top", "list": [[], {}, [inner]]}
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()
    for path, key in ((("id",), b"top"), (("user", "id"), b"deep"), (("meta", "id"), b"deep")):
        assert list(located(path, Column.of([text]))) == [key]


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


@pytest.mark.parametrize("paths", SEVERAL)
def test_keys_of_several_paths_are_those_of_each(paths: Sequence[tuple[str, ...]]) -> None:
    """In one pass; a row that has one key that is not plain may be left whole to the exact reader."""
    texts = Column.of([*ORDINARY, *ODD, *WRONG, *(text for _, text in MUTATED)])
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


def test_a_path_of_any_names_is_followed() -> None:
    """Names with dots and accents, of digits, and the empty name are found at every step."""
    text = '{"a.b":{"x":1,"é":"pointer"},"":"no name","0":"digit","user":{"0":"ten"}}'.encode()
    expected = {"/a.b/é": b"pointer", "/": b"no name", "0": b"digit", "user.0": b"ten"}
    for field, key in expected.items():
        assert list(located(steps_of(field), Column.of([text]))) == [key]


# --- that it never differs from the exact reader ---


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("texts", [ORDINARY, ODD, WRONG], ids=["ordinary", "odd", "wrong"])
def test_the_table_of_cases(field: str, texts: list[bytes]) -> None:
    """Keys, and the reasons where there are none, are those of the exact reader."""
    _agree(field, texts)


def test_what_is_wrong_is_never_taken() -> None:
    """Of texts that are no JSON the kernel finds no key, though it stands in them."""
    assert set(located(("id",), Column.of(WRONG)).sizes.tolist()) == {NULL}


def _substituted(text: bytes) -> Iterator[bytes]:
    for at in range(len(text)):
        yield from (text[:at] + bytes([byte]) + text[at + 1 :] for byte in range(256))


def _inserted(text: bytes) -> Iterator[bytes]:
    for at in range(len(text) + 1):
        yield from (text[:at] + bytes([byte]) + text[at:] for byte in range(256))


def _removed(text: bytes) -> Iterator[bytes]:
    """Every piece of the text, taken out; so it is cut short at either end, too."""
    for at in range(len(text)):
        yield from (text[:at] + text[end:] for end in range(at + 1, len(text) + 1))


MUTATED = [
    ("id", b'{"id":"\xc3\xa9k","x":["\\n"],"y":{"id":1}}'),
    ("id", b'{ "x":[true,null,{}],"id":"\xe2\x82\xac"}'),
    ("id", b'{"x":"\\u00e9\xf0\x9f\xa6\x89\xed\x9f\xbf","id":0}'),
    ("user.id", b'{"user":{"id":"k"},"id":-10}'),
    ("user.id", b'{"x":[-0.5e+1,false],"user":{"id":20}}'),
]


@pytest.mark.parametrize("mutations", [_substituted, _inserted, _removed])
@pytest.mark.parametrize(("field", "text"), MUTATED, ids=range(len(MUTATED)))
def test_every_small_change(
    mutations: Callable[[bytes], Iterator[bytes]], field: str, text: bytes
) -> None:
    """With any byte replaced by any other, any byte put in anywhere, or any piece taken out, the two agree."""
    texts = list(mutations(text))
    found = _agree(field, texts)
    assert 0 < np.count_nonzero(found.sizes >= 0) < len(texts)  # some are still right, some are not


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_all_that_utf8_is(size: int) -> None:
    """Bytes that begin, continue and end characters, in each order, are taken only where they are UTF-8."""
    edges = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF]
    leads = [*edges, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    pieces = [bytes([lead]) for lead in leads]
    for _ in range(size - 1):
        pieces = [piece + bytes([byte]) for piece in pieces for byte in edges[:9]]
    found = _agree("id", [b'{"id":"%s"}' % piece for piece in pieces])
    assert (found.sizes >= 0).any()


def test_every_escape_of_four_digits() -> None:
    """Each code of 16 bits beside the key is taken, also if it is half of a character."""
    found = _agree("id", [b'{"x":"\\u%04x","id":1}' % code for code in range(1 << 16)])
    assert (found.sizes == 1).all()


def test_the_limits() -> None:
    """Around the depth at which the exact reader takes over; a number may have any length, as the key or beside it."""
    depths = [1, int(PLAIN_DEPTH_MAX) - 1, int(PLAIN_DEPTH_MAX), 1022, 1023, 1024, 1100]
    deep = [b'{"x":%s%s,"id":1}' % (b"[" * depth, b"]" * depth) for depth in depths]
    deep += [b'{"x":%s0%s,"id":1}' % (b'{"id":' * depth, b"}" * depth) for depth in depths]
    assert (_agree("id", deep).sizes >= 0).tolist() == [True, True, *[False] * 5] * 2
    closed_wrongly = [b'{"id":1,"x":%s%s]' % (b"[" * depth, b"]" * depth) for depth in range(140)]
    assert not (_agree("id", closed_wrongly).sizes >= 0).any()
    digits = [*range(1, 25), 100, 308, 309, 5000]
    whole = [b'{"id":%s%s}' % (sign, b"9" * count) for sign in (b"", b"-") for count in digits]
    assert (_agree("id", whole).sizes >= 0).all()
    sizes = [1, 308, 309, 400]
    forms = (b"%s", b"-%s", b"%se99", b"%se-99", b"%se100", b"0.%s", b"%s.5", b"%se0099")
    numbers = [b'{"id":1,"x":%s}' % (form % (b"9" * size)) for form in forms for size in sizes]
    assert (_agree("id", numbers).sizes == 1).all()


def test_the_deepest_nesting() -> None:
    """Around the level at which a text is no JSON any more, of arrays, of objects and of both."""
    for depth in (*range(60, 68), *range(125, 131), *range(1020, 1028)):
        around = [
            (b"[" * depth, b"]" * depth),
            (b'{"id":' * depth, b"}" * depth),
            (b'[{"id":' * (depth // 2), b"}]" * (depth // 2)),
            (b'{"id":[' * (depth // 2), b"]}" * (depth // 2)),
            (b'{"id":"a","x":' * (depth - 1) + b"[", b"]" + b"}" * (depth - 1)),
            (b'{"x":' * (depth - 1) + b"{", b"}" + b',"id":"b"}' * (depth - 1)),
            (b'{"x":[],"id":"\\n","x":' + b"[" * (depth - 1), b"]" * (depth - 1) + b"}"),
        ]
        texts = [head + tail for head, tail in around]
        texts += [text[:-1] for text in texts] + [text[:-1] + b"]" for text in texts]
        texts += [b'{"id":"b","x":%s}' % text for text in texts] + [text + b"]" for text in texts]
        _agree("id", texts)
        paths = "/".join(["", *["id"] * depth]), "/".join(["", *["0"] * depth])
        for path, (head, tail) in zip(paths, (around[1], around[0]), strict=True):
            _agree(
                path, [head + inner + tail for inner in (b"7", b'"\\n"', b"[]", b"{}", b"", b"]")]
            )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "-"]),
            st.from_regex(r"(0|[1-9][0-9]{0,20})", fullmatch=True),
            st.sampled_from(["", "0", "9"]),
            st.integers(0, 330),
            st.from_regex(r"(\.0{0,330}[0-9]{1,30})?", fullmatch=True),
            st.from_regex(r"([eE][+-]?0{0,5}[0-9]{1,20})?|[eE]-?[23][0-9]{2}", fullmatch=True),
        ),
        min_size=1,
        max_size=20,
    )
)
@settings(deadline=None, max_examples=100)
def test_any_numbers(parts: list[tuple[str, str, str, int, str, str]]) -> None:
    """Numbers of any length, with any exponent, as the key and beside it."""
    numbers = [
        f"{sign}{digits}{(digits != '0') * more * count}{fraction}{exponent}".encode()
        for sign, digits, more, count, fraction, exponent in parts
    ]
    _agree("id", [b'{"id":%s}' % number for number in numbers])
    _agree("id", [b'{"id":"\\n","x":[%s]}' % number for number in numbers])


def test_every_pair_of_escapes_at_the_edges() -> None:
    """Halves of characters are one if a first one precedes a second one, in either case of their letters."""
    edges = (0x0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000, 0xFFFF)
    pairs = [b"\\u%04x\\u%04X" % (one, two) for one in edges for two in edges]
    triples = [pair + b"\\u%04x" % code for pair in pairs for code in (0xD800, 0xDC00, 0x41)]
    cut = [pair[:size] for pair in pairs[72:108] for size in range(1, 12)]
    for pieces in (pairs, triples, cut):
        _agree("id", [b'{"id":"a%sz"}' % piece for piece in pieces])
        _agree("id", [b'{"%s":1,"id":2}' % piece for piece in pieces])


def test_every_escape_in_a_key_and_in_a_name() -> None:
    """Each code of 16 bits, and each letter after a backslash, is the character that Python reads."""
    _agree("id", [b'{"id":"\\u%04x"}' % code for code in range(1 << 16)])
    _agree("id", [b'{"id":"\\%s"}' % bytes([letter]) for letter in range(256)])
    for code in (0, 0x22, 0x5C, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF):
        name = chr(code)
        escaped = json.dumps(name)
        texts = [f'{{{escaped}:"a"}}', f'{{{escaped[:-1]}x":"a"}}', f'{{"x{escaped[1:]}:"a"}}']
        found = _agree(f"/{name}", [text.encode() for text in texts])
        assert not (found.sizes >= 0).any() or code == 0x7F  # the plain kernel leaves them


BLANKS = st.sampled_from(["", "", "", " ", "\n", "\t\r", "  "])
PIECES = st.sampled_from(
    [
        *"aid0.~/é€🦉",
        "user",
        "\\n",
        '\\"',
        "\\\\",
        "\\u0069",
        "\\ud83e\\udd89",
        "\\ud83e",
        "\\udd89",
        "\x7f",
    ]
)
STRINGS = st.lists(PIECES, max_size=4).map(lambda pieces: '"' + "".join(pieces) + '"')
ESCAPED_NAMES = [
    '"\\u0069d"',
    '"i\\u0064"',
    '"us\\u0065r"',
    '"\\u0030"',
    '"a\\u002eb"',
    '"\\u00e9"',
    '"a\\/b"',
]
PLAIN_NAMES = ['"id"', '"id"', '"user"', '"user"', '"0"', '"1"', '""', '"a.b"', '"é"', '"a/b"']
NAMES = st.sampled_from(PLAIN_NAMES) | st.sampled_from(ESCAPED_NAMES) | STRINGS
NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)
SCALARS = STRINGS | NUMBERS | st.sampled_from(["true", "false", "null"])


def _spaced(token: str, blanks: tuple[str, str]) -> str:
    return blanks[0] + token + blanks[1]


def _containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    around = st.tuples(BLANKS, BLANKS)
    value = st.builds(_spaced, inner, around)
    member = st.builds(
        lambda name, value: f"{name}:{value}", st.builds(_spaced, NAMES, around), value
    )
    objects = st.lists(member, min_size=1, max_size=4).map(
        lambda members: f"{{{','.join(members)}}}"
    )
    arrays = st.lists(value, min_size=1, max_size=3).map(lambda elements: f"[{','.join(elements)}]")
    return objects | objects | arrays | arrays | BLANKS.map(lambda blank: f"{{{blank}}}")


DOCUMENTS = _containers(st.recursive(SCALARS, _containers, max_leaves=8)).map(str.encode)


@given(st.lists(DOCUMENTS, min_size=1, max_size=8), st.sampled_from(FIELDS), st.data())
@settings(deadline=None, max_examples=100)
def test_any_documents(texts: list[bytes], field: str, data: st.DataObject) -> None:
    """Names that come again, escapes, numbers of all forms, white space: as they are, and with a fault put in."""
    _agree(field, texts)
    at = data.draw(st.integers(0, max(map(len, texts))))
    fault = data.draw(
        st.binary(max_size=2) | st.sampled_from([b'"', b",", b":", b"}", b"]", b"\\"])
    )
    removed = data.draw(st.integers(0, 3))
    _agree(field, [text[:at] + fault + text[at + removed :] for text in texts])


@given(st.lists(st.binary(max_size=30) | st.text(max_size=20).map(str.encode), max_size=8))
@settings(deadline=None)
def test_any_bytes(texts: list[bytes]) -> None:
    """Bytes of any kind, alone and as the value of a name."""
    _agree("id", [*texts, *(b'{"id":%s}' % text for text in texts)])


# --- that it reads no byte of another row ---


@pytest.mark.parametrize("text", [*ORDINARY, *(text for _, text in MUTATED)], ids=repr)
def test_what_is_cut_short_is_not_completed_by_what_follows(text: bytes) -> None:
    """Each beginning of a text is judged alone, though the rest of it follows in the buffer, or another end."""
    expected, _ = json_keys(["id"], Column.of([text[:size] for size in range(len(text) + 1)]))
    for after in (text, *AFTER):
        sizes = np.arange(len(text) + 1)
        for before in (b"", b'{"id":"', b'{"x":[\\'):
            starts = np.full(len(sizes), len(before))
            column = Column(before + text + after, starts, sizes)
            for keys in (json_keys(["id"], column)[0], _cut_anywhere(text, after)):
                assert list(keys) == list(expected)


def _cut_anywhere(text: bytes, after: bytes) -> Column:
    """The same beginnings, each with `after` behind it."""
    pieces = [text[:size] for size in range(len(text) + 1)]
    starts = np.cumsum([0, *(len(piece) + len(after) for piece in pieces[:-1])])
    buffer = after.join([*pieces, b""])
    return json_keys(["id"], Column(buffer, starts, np.arange(len(pieces))))[0]


def read_alone() -> None:
    """Read every beginning of the cases, each alone in a buffer of its own size. For proof/test_bounds.py."""
    texts = (*ORDINARY, *ODD, *WRONG, *(text for _, text in MUTATED))
    pieces = {text[:size] for text in texts for size in range(len(text) + 1)}
    for piece in sorted(pieces):
        located(("user", "id"), Column.of([piece]))
        located(("id",), Column.of([piece]))
        located_all([("user", "id"), ("user", "name"), ("id",)], Column.of([piece]))
        for steps in (("user", "id"), ("id",), ("0", "0")):
            _all_exact(steps, Column.of([piece]))
    assert len(pieces) > 1000


def faulty() -> Any:
    """What `fill` is given, with ends of names that are beyond the names."""
    tree = np.array([0, 2]), np.array([0, 0]), np.array([1, 2, 2]), np.array([-1, 0])
    names, buffer = np.zeros(0, dtype=np.uint8), np.frombuffer(b'{"id":1}', dtype=np.uint8)
    given = names, *tree, buffer, np.array([0]), np.array([8])
    for array in given:
        array.flags.writeable = False
    return *given, np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.int64)


@pytest.mark.parametrize(
    ("start", "size"), [(0, 100), (-1, 5), (7, 2), (90, 1), (2, -7), (2**62, 2**62)]
)
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


def test_rows_of_all_sorts_stay_in_their_places() -> None:
    """Keys of the kernel, of the exact reader, nulls and malformed values stand each in its own row."""
    values = [
        b'{"id":1}',
        None,
        b'{"id":"\\t"}',
        b"{",
        b"\0\0\0\1\2Avro",
        b'{"id":""}',
        b'{"id":"z"}',
    ]
    batch = EventBatch(
        topic="t",
        partition=0,
        offsets=np.arange(7),
        timestamps=np.arange(7),
        keys=Column.of([None] * 7),
        values=Column.of(values),
        headers=[[]] * 7,
        next_offset=7,
    )
    found = Extractor("json", ("id",)).extract(batch)
    assert list(found.keys) == [b"1", None, b"\t", None, None, b"", b"z"]
    assert list(found.malformed) == [3, 4]
    assert list(found.unjudged) == [1]
    assert list(Extractor("json", ("id",), "judge").extract(batch).malformed) == [1, 3, 4]


def test_no_more_is_kept_than_lies_between_the_keys() -> None:
    """Of a whole fetch, a few rows with one odd text among them."""
    texts = Column.of([b'{"id":"%d"}' % n for n in range(10_000)] + [b'{"id":"\\u0041"}'] * 2)
    found, reasons = json_keys(["id"], texts.take(slice(9_998, 10_001)))
    assert list(found) == [b"9998", b"9999", b"A"]
    assert not reasons
    assert len(found.buffer) < 40


def test_only_rows_of_the_exact_reader() -> None:
    """Where the kernel finds nothing the values are not copied either."""
    keys, malformed = json_keys(["id"], Column.of([b'{"id":"\\t"}', b"{"]))
    assert (keys.buffer, list(keys), list(malformed)) == (b"\t", [b"\t", None], [1])


def test_an_empty_column() -> None:
    """Of no texts there are no keys."""
    keys, malformed = json_keys(["id"], Column.of([]))
    assert (len(keys), malformed) == (0, {})


def test_many_rows_and_long_ones() -> None:
    """Columns of more rows, or bytes, than one call takes are read to the end."""
    many = [b'{"id":%d}' % number for number in range(ROWS_A_CALL + 10)]
    assert list(located(("id",), Column.of(many))) == [b"%d" % row for row in range(len(many))]
    long = [b'{"x":"%s","id":%d}' % (b"y" * (BYTES_A_CALL // 2), number) for number in range(5)]
    assert list(located(("id",), Column.of(long))) == [b"%d" % row for row in range(5)]


# --- what is no JSON at all ---


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\0\0\0\0\7", "the value looks like Schema Registry data, schema id 7: "),
        (b"\0\0\1\0\2\x02a", "the value looks like Schema Registry data, schema id 65538: "),
        (
            b'\0\xff\xff\xff\xff{"id":1}',
            "the value looks like Schema Registry data, schema id 4294967295: ",
        ),
        (b"\0\0\0\7", "the value is not valid JSON: a value is missing or wrong, at byte 1"),
        (b" \0\0\0\0\7", "the value is not valid JSON: a value is missing or wrong, at byte 2"),
        (
            b'{"id":1}\0\0\0\0\7',
            "the value is not valid JSON: something follows its end, at byte 9",
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("fields", [("id",), ("id", "user.id")], ids=["one", "several"])
def test_data_of_a_schema_registry_is_told_as_such(
    value: bytes, reason: str, fields: Sequence[str]
) -> None:
    """A zero byte and a schema's number in front are named, with what to do; the data is not."""
    _, malformed = json_keys(fields, Column.of([value]))
    assert malformed[0].startswith(reason)
    assert malformed[0].endswith("(key.from: key)") is reason.endswith(": ")


def _agree(field: str, texts: Sequence[bytes]) -> Column:
    """What the plain kernel finds in `texts`; it and the exact one find what Python code reads there, and no more."""
    read, steps = exact_reader(field), steps_of(field)
    starts = np.cumsum(
        [0, *(len(text) + len(AFTER[i % len(AFTER)]) for i, text in enumerate(texts))]
    )
    buffer = b"".join(text + AFTER[i % len(AFTER)] for i, text in enumerate(texts))
    column = Column(buffer, starts[:-1], np.array([len(text) for text in texts], dtype=np.int64))
    found = located(steps, column)
    keys, reasons = json_keys([field], column)
    exact = _all_exact(steps, column)
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


def _all_exact(steps: Sequence[str], column: Column) -> list[bytes | None]:
    """The keys of all rows by the exact kernels, which otherwise read only what the plain one leaves."""
    found, kinds, _ = json_exact.read(steps, column)
    rows = np.flatnonzero(kinds == Kind.ESCAPED)
    return list(found.replaced(rows, json_exact.decoded(found.take(rows))))
