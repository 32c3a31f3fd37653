"""Claims about keys that a kernel finds in JSON: with every small change, escape and depth, as the exact reader."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from proof.keys.json_texts import ODD, ORDINARY, WRONG
from streamdedup.events import Column
from streamdedup.keys.formats.json_column import DEPTH_MAX as PLAIN_DEPTH_MAX
from streamdedup.keys.formats.json_column import located, located_all
from tests.keys.test_json_column import (
    FIELDS,
    SEVERAL,
    agrees,
    all_agree,
    all_exact,
    is_taken,
    keys_are_those_of_each,
)
from tests.rows import every


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


def test_the_table_of_cases() -> None:
    """Keys, and the reasons where there are none, are those of the exact reader, of one path and of several."""
    every(ORDINARY, is_taken)
    texts = [*ORDINARY, *ODD, *WRONG, *(text for _, text in MUTATED)]
    every(FIELDS, lambda field: all_agree(field, texts))
    every(SEVERAL, lambda paths: keys_are_those_of_each(paths, Column.of(texts)))


@pytest.mark.parametrize("mutations", [_substituted, _inserted, _removed])
def test_every_small_change(mutations: Callable[[bytes], Iterator[bytes]]) -> None:
    """With any byte replaced by any other, any byte put in anywhere, or any piece taken out, the two agree."""

    def check(row: tuple[str, bytes]) -> None:
        field, text = row
        texts = list(mutations(text))
        found = agrees(field, texts)
        assert 0 < np.count_nonzero(found.sizes >= 0) < len(texts)  # some are right, some are not

    every(MUTATED, check)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_all_that_utf8_is(size: int) -> None:
    """Bytes that begin, continue and end characters, in each order, are taken only where they are UTF-8."""
    edges = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF]
    leads = [*edges, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    pieces = [bytes([lead]) for lead in leads]
    for _ in range(size - 1):
        pieces = [piece + bytes([byte]) for piece in pieces for byte in edges[:9]]
    found = agrees("id", [b'{"id":"%s"}' % piece for piece in pieces])
    assert (found.sizes >= 0).any()


def test_the_limits() -> None:
    """Around the depth at which the exact reader takes over; a number may have any length, as the key or beside it."""
    depths = [1, int(PLAIN_DEPTH_MAX) - 1, int(PLAIN_DEPTH_MAX), 1022]
    deep = [b'{"x":%s%s,"id":1}' % (b"[" * depth, b"]" * depth) for depth in depths]
    assert (agrees("id", deep).sizes >= 0).tolist() == [True, True, False, False]
    digits = [*range(1, 25), 100, 308, 309, 5000]
    whole = [b'{"id":%s%s}' % (sign, b"9" * count) for sign in (b"", b"-") for count in digits]
    assert (agrees("id", whole).sizes >= 0).all()
    sizes = [1, 308, 309, 400]
    forms = (b"%s", b"-%s", b"%se99", b"%se-99", b"%se100", b"0.%s", b"%s.5", b"%se0099")
    numbers = [b'{"id":1,"x":%s}' % (form % (b"9" * size)) for form in forms for size in sizes]
    assert (agrees("id", numbers).sizes == 1).all()


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
        agrees("id", texts)
        paths = "/".join(["", *["id"] * depth]), "/".join(["", *["0"] * depth])
        for path, (head, tail) in zip(paths, (around[1], around[0]), strict=True):
            agrees(
                path, [head + inner + tail for inner in (b"7", b'"\\n"', b"[]", b"{}", b"", b"]")]
            )


def test_every_pair_of_escapes_at_the_edges() -> None:
    """Halves of characters are one if a first one precedes a second one, in either case of their letters."""
    edges = (0x0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000, 0xFFFF)
    pairs = [b"\\u%04x\\u%04X" % (one, two) for one in edges for two in edges]
    triples = [pair + b"\\u%04x" % code for pair in pairs for code in (0xD800, 0xDC00, 0x41)]
    cut = [pair[:size] for pair in pairs[72:108] for size in range(1, 12)]
    for pieces in (pairs, triples, cut):
        agrees("id", [b'{"id":"a%sz"}' % piece for piece in pieces])
        agrees("id", [b'{"%s":1,"id":2}' % piece for piece in pieces])


def test_every_escape_in_a_key_and_in_a_name() -> None:
    """Each code of 16 bits, and each letter after a backslash, is the character that Python reads."""
    agrees("id", [b'{"id":"\\u%04x"}' % code for code in range(1 << 16)])
    agrees("id", [b'{"id":"\\%s"}' % bytes([letter]) for letter in range(256)])
    for code in (0, 0x22, 0x5C, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF):
        name = chr(code)
        escaped = json.dumps(name)
        texts = [f'{{{escaped}:"a"}}', f'{{{escaped[:-1]}x":"a"}}', f'{{"x{escaped[1:]}:"a"}}']
        found = agrees(f"/{name}", [text.encode() for text in texts])
        assert not (found.sizes >= 0).any() or code == 0x7F  # the plain kernel leaves them


def read_alone() -> None:
    """Read every beginning of the cases, each alone in a buffer of its own size. For proof/test_bounds.py."""
    texts = (*ORDINARY, *ODD, *WRONG, *(text for _, text in MUTATED))
    pieces = {text[:size] for text in texts for size in range(len(text) + 1)}
    for piece in sorted(pieces):
        located(("user", "id"), Column.of([piece]))
        located(("id",), Column.of([piece]))
        located_all([("user", "id"), ("user", "name"), ("id",)], Column.of([piece]))
        for steps in (("user", "id"), ("id",), ("0", "0")):
            all_exact(steps, Column.of([piece]))
    assert len(pieces) > 1000


def faulty() -> Any:
    """What `fill` is given, with ends of names that are beyond the names."""
    tree = np.array([0, 2]), np.array([0, 0]), np.array([1, 2, 2]), np.array([-1, 0])
    names, buffer = np.zeros(0, dtype=np.uint8), np.frombuffer(b'{"id":1}', dtype=np.uint8)
    given = names, *tree, buffer, np.array([0]), np.array([8])
    for array in given:
        array.flags.writeable = False
    return *given, np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.int64)
