"""Change bytes by chance: flipped bits, odd numbers, parts cut out, doubled, moved, or taken from another input."""

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

SIZE_BYTES_MAX = 1 << 16  # of an input; a mutation that makes it longer is cut
STEPS = (1, 1, 1, 2, 3, 5)  # changes to one input; most parsers refuse what was changed often
NEAR_BYTES = 256  # parts are seldom longer; heads and tails of files are this long
NUMBERS = [
    *(0, 1, -1, 2, 7, 8, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 1 << 20, 1 << 24),
    *((1 << 31) - 1, -(1 << 31), 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 53),
    *((1 << 63) - 1, -(1 << 63), 1 << 63, (1 << 64) - 1),
]
SHAPES = (">b", ">h", ">i", ">q", "<h", "<i", "<q")
TOKENS = (
    *(b"null", b"true", b'""', b"[]", b"{}", b"-0", b"1e999", b"1E400", b"9" * 20, b"9" * 400),
    *(b"\\ud800", b"\\u0000", b"\xed\xa0\x80", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"[" * 70),
    *(b'{"id":' * 70, b"\x80" * 10, b"\x80\x80\x80\x80\x08", b"\xff" * 9 + b"\x01", b"\0" * 8),
)
LEAVES: Sequence[Any] = (
    *(None, True, False, "", "x", "\ud7ff", "a" * 300, [], [1], {}, {"a": 1}, 0.5, -0.0, 1e308),
    *NUMBERS,
)

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\w.+-]+|.', re.DOTALL)

Mutator = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""Makes an input of one that is there, `data`, and of all that are."""


def mutated(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return `data` after some changes, at most SIZE_BYTES_MAX long."""
    made = bytearray(data)
    for _ in range(random.choice(STEPS)):
        random.choice(_STEPS)(random, made, others)
        del made[SIZE_BYTES_MAX:]
    return bytes(made)


def mutated_json(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return the JSON text `data` with a value of it replaced, removed or renamed; or changed as any bytes are."""
    try:
        document = json.loads(data)
    except ValueError:
        return mutated(random, data, others)
    if random.random() < 0.15:
        return mutated(random, data, others)
    for _ in range(random.randint(1, 3)):
        document = _with_another_leaf(random, document)
    return json.dumps(document, separators=(",", ":")).encode("utf-8", "surrogatepass")


def repeated_json(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return the JSON text `data` with an item of one of its arrays repeated, once or many times."""
    try:
        document = json.loads(data)
    except ValueError:
        return mutated(random, data, others)
    arrays = [each for each in _parts_of(document) if isinstance(each, list) and each]
    if arrays:
        array = random.choice(arrays)
        at = random.randrange(len(array))
        array[at:at] = [array[at]] * random.choice((1, 1, 2, 200))
    return json.dumps(document, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _parts_of(document: Any) -> Iterator[Any]:
    yield document
    for part in document.values() if isinstance(document, dict) else document:
        if isinstance(part, dict | list):
            yield from _parts_of(part)


def mutated_base64(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return what is in base64 after some changes, in base64."""
    decoded = [base64.b64decode(each) for each in others]
    return base64.b64encode(mutated(random, base64.b64decode(data), decoded))


def mutated_text(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return the JSON text `data` with a token replaced, doubled or removed, or changed in one of the other ways."""
    way = random.random()
    if way < 0.3:
        return mutated(random, data, others)
    if way < 0.5:
        return mutated_json(random, data, others)
    tokens = _TOKEN.findall(data)
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(tokens) or 1)
        another = random.choice((random.choice(TOKENS), *_TOKEN.findall(random.choice(others))))
        tokens[at : at + random.randint(0, 1)] = random.choice(
            ([another], [another], tokens[at : at + 1] * 2, [])
        )
    return b"".join(tokens)


def _with_another_leaf(random: Random, document: Any) -> Any:
    """Return `document` with another value somewhere; the deeper, the less often."""
    if not document or not isinstance(document, dict | list) or random.random() < 0.05:
        if type(document) is int and random.random() < 0.5:
            return document + random.choice((-1, 1, 2, 1 << 32))
        return random.choice(LEAVES)
    copy: Any = document.copy()
    at = random.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
    what = random.random()
    if what < 0.1:
        del copy[at]
    elif what < 0.15 and isinstance(copy, dict):
        copy[random.choice(("", "x", "é", *copy))] = copy.pop(at)
    else:
        copy[at] = _with_another_leaf(random, copy[at])
    return copy


def _place(random: Random, made: bytearray) -> int:
    """Return a place in `made` or at its end: as often near one of its ends as anywhere."""
    size = len(made)
    near = random.randint(0, min(size, NEAR_BYTES))
    return random.choice((near, size - near, random.randint(0, size)))


def _part(random: Random, made: bytearray) -> slice:
    start = _place(random, made)
    return slice(
        start, min(len(made), start + random.choice((1, 2, 4, 8, random.randint(1, NEAR_BYTES))))
    )


def _flip(random: Random, made: bytearray, _others: Sequence[bytes]) -> None:
    if made:
        made[min(_place(random, made), len(made) - 1)] ^= 1 << random.randrange(8)


def _any_byte(random: Random, made: bytearray, _others: Sequence[bytes]) -> None:
    if made:
        made[min(_place(random, made), len(made) - 1)] = random.randrange(256)


def _number(random: Random, made: bytearray, _others: Sequence[bytes]) -> None:
    shape = struct.Struct(random.choice(SHAPES))
    at, bits = _place(random, made), 8 * shape.size
    number = random.choice(NUMBERS) & (1 << bits) - 1
    made[at : at + shape.size] = shape.pack(number - (number >> bits - 1 << bits))


def _delete(random: Random, made: bytearray, _others: Sequence[bytes]) -> None:
    del made[_part(random, made)]


def _double(random: Random, made: bytearray, _others: Sequence[bytes]) -> None:
    at = _place(random, made)
    made[at:at] = made[_part(random, made)] * random.choice((1, 1, 2, 40))


def _insert(random: Random, made: bytearray, _others: Sequence[bytes]) -> None:
    at = _place(random, made)
    made[at:at] = random.choice((random.choice(TOKENS), random.randbytes(random.randint(1, 16))))


def _overwrite(random: Random, made: bytearray, _others: Sequence[bytes]) -> None:
    made[_part(random, made)] = random.choice(TOKENS)


def _cut(random: Random, made: bytearray, _others: Sequence[bytes]) -> None:
    del made[_place(random, made) :]


def _splice(random: Random, made: bytearray, others: Sequence[bytes]) -> None:
    other = bytearray(random.choice(others))
    made[_part(random, made)] = other[_part(random, other)]


def _append(random: Random, made: bytearray, others: Sequence[bytes]) -> None:
    made += random.choice(others)[:SIZE_BYTES_MAX]


_STEPS = (
    *(_flip, _any_byte, _number, _delete, _double, _insert, _overwrite, _splice),
    *(_flip, _any_byte, _number, _cut, _append),
)
