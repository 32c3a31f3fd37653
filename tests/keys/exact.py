"""The reader of JSON keys that the kernels are held against: Python code over `json`, a row at a time.

`json` reads what the worker reads: RFC 8259's grammar, and `NaN`, `Infinity` and `-Infinity`.
"""

import json
import re
import sys
from collections.abc import Callable

from streamdedup.errors import MalformedError
from streamdedup.keys.formats.json_kinds import AT_BYTE, DEPTH_MAX, FAULTS, NOT_JSON, Kind
from streamdedup.keys.formats.schema_registry import looks_registered

MISSING = object()
MARK = b"\xef\xbb\xbf"
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")  # RFC 6901: no leading zeros
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]')  # strings, so that their brackets do not count
sys.setrecursionlimit(max(sys.getrecursionlimit(), 8 * DEPTH_MAX))  # `json` reads by recursion


class Integer(str):
    """The digits of an integer, however many there are."""


def exact_reader(field: str) -> Callable[[bytes], bytes]:
    """Return a function from a JSON text to its key; it raises MalformedError."""
    steps = steps_of(field)

    def read(text: bytes) -> bytes:
        return _text(_follow(_parse(text), steps), steps)

    return read


def steps_of(field: str) -> tuple[str, ...]:
    """Return the steps of a path, or of a JSON Pointer."""
    if not field.startswith("/"):
        return tuple(field.split("."))
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in field[1:].split("/"))


def are_alike(told: str | None, expected: str | None, size: int) -> bool:
    """Whether a reason for a text of `size` bytes is the one of the exact reader, which names no construct."""
    if told is None or expected != NOT_JSON:
        return told == expected
    what, _, place = told.partition(AT_BYTE)
    if place:
        return what in FAULTS.values() and 1 <= int(place) <= size + 1
    return what == FAULTS[Kind.EMPTY]


def _parse(text: bytes) -> object:
    try:
        if _depth(text) > DEPTH_MAX:
            raise MalformedError(NOT_JSON)
        return json.loads(text.removeprefix(MARK).decode(), parse_int=Integer)
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise MalformedError(_why_not_json(text)) from None


def _depth(text: bytes) -> int:
    """Return how deep brackets are nested; of a text that is wrong, any number."""
    depth = deepest = 0
    if text.count(b"[") + text.count(b"{") > DEPTH_MAX:
        for token in _TOKENS.findall(text):
            depth += (token in (b"[", b"{")) - (token in (b"]", b"}"))
            deepest = max(deepest, depth)
    return deepest


def _why_not_json(text: bytes) -> str:
    looks = looks_registered(text)
    if looks is None:
        return NOT_JSON
    return f"the value {looks}: set key.format to that of its serializer, or take the record key (key.from: key)"


def _text(found: object, steps: tuple[str, ...]) -> bytes:
    if type(found) is str:  # half of a surrogate pair is as it would be if UTF-8 had it
        return found.encode("utf-8", "surrogatepass")
    if isinstance(found, Integer):
        return b"0" if found == "-0" else found.encode()
    raise MalformedError(f"the field {_name(steps)} is {_kind(found)}")


def _follow(document: object, steps: tuple[str, ...]) -> object:
    for step in steps:
        if isinstance(document, dict):
            document = document.get(step, MISSING)
        elif isinstance(document, list) and _INDEX.fullmatch(step):
            document = document[int(step)] if int(step) < len(document) else MISSING
        else:
            return MISSING
    return document


def _name(steps: tuple[str, ...]) -> str:
    return "/" + "/".join(steps) if any("." in step for step in steps) else ".".join(steps)


def _kind(found: object) -> str:
    kinds = {dict: "an object", list: "an array", bool: "a boolean", float: "not an integer"}
    if found is MISSING:
        return "missing"
    return "null" if found is None else kinds.get(type(found), "of another type")
