"""Bombs: small for the wire, since they compress well, and dear for whoever reads them without care.

Each is a function of the bytes that it may take, at least 4,000; it takes nearly as many. `JSON` has values of events,
with or without a key at the path `FIELD`. Other kinds of bombs are dicts of their own beside it.
"""

from collections.abc import Callable

Bomb = Callable[[int], bytes]

FIELD = "id"


def _filled(head: bytes, piece: bytes, tail: bytes) -> Bomb:
    """Repeat `piece` between `head` and `tail`."""

    def made(size: int) -> bytes:
        return head + piece * ((size - len(head) - len(tail)) // len(piece)) + tail

    return made


def _nested(head: bytes, opening: bytes, inner: bytes, closing: bytes, tail: bytes) -> Bomb:
    """Nest `inner` in as many containers as there is room for."""

    def made(size: int) -> bytes:
        around = len(head) + len(inner) + len(tail)
        deep = (size - around) // (len(opening) + len(closing))
        return head + opening * deep + inner + closing * deep + tail

    return made


JSON: dict[str, Bomb] = {
    "arrays": _filled(b'{"id":"a","x":[', b"[],", b"0]}"),
    "arrays beside an escaped key": _filled(b'{"id":"\\u0061","a":[', b"[],", b"0]}"),
    "arrays without a key": _filled(b'{"x":[', b"[],", b"0]}"),
    "arrays in a text cut short": _filled(b'{"id":"a","x":[', b"[],", b"0"),
    "objects": _filled(b'{"x":[', b'{"id":0},', b'0],"id":"\\u0061"}'),
    "deep but allowed": _filled(b'{"id":"\\u0061","x":[', b"[" * 1000 + b"]" * 1000 + b",", b"0]}"),
    "deep": _nested(b'{"id":"a","x":', b"[", b"0", b"]", b"}"),
    "deep objects": _nested(b"", b'{"id":', b"0", b"}", b""),
    "never closed": _filled(b'{"id":', b"[", b""),
    "a key of escapes": _filled(b'{"id":"', b"\\u0061", b'"}'),
    "a key of surrogate pairs": _filled(b'{"id":"', b"\\ud83e\\udd89", b'"}'),
    "a key with one escape": _filled(b'{"id":"\\n', b"a", b'"}'),
    "a key without an escape": _filled(b'{"id":"', b"a", b'"}'),
    "halves of pairs": _filled(b'{"id":"a","x":"', b"\\ud83e\\ud83e", b'"}'),
    "a name repeated": _filled(b"{", b'"id":"\\u0062",', b'"id":"\\u0061"}'),
    "an escaped name repeated": _filled(b"{", b'"\\u0069d":"b",', b'"\\u0069d":"a"}'),
    "a name repeated with objects": _filled(b"{", b'"id":{"id":[]},', b'"id":"\\u0061"}'),
    "short names": _filled(b"{", b'"a":0,', b'"id":"\\u0061"}'),
    "a long name": _filled(b'{"', b"a", b'":0,"id":"\\u0061"}'),
    "a long name of escapes": _filled(b'{"id', b"\\u0000", b'":0,"id":"\\u0061"}'),
    "a long integer": _filled(b'{"id":"\\u0061","x":1', b"0", b"}"),
    "a long integer as the key": _filled(b'{"id":1', b"0", b"}"),
    "a long fraction": _filled(b'{"id":"\\u0061","x":0.', b"1", b"}"),
    "a long exponent": _filled(b'{"id":"\\u0061","x":1e-', b"9", b"}"),
    "many large integers": _filled(
        b'{"id":18446744073709551616,"x":[', b"18446744073709551616,", b"0]}"
    ),
    "white space": _filled(b'{"id":"\\u0061"', b" ", b"}"),
    "letters beyond ASCII": _filled(b'{"x":"', "🦉".encode(), b'","id":"\\u0061"}'),
    "no JSON": _filled(b"", b"\xff", b""),
}

# Those whose key is nearly the whole text.
LONG_KEYS = {
    "a key of escapes",
    "a key of surrogate pairs",
    "a key with one escape",
}
