"""The exact reader of JSON keys that the kernels are held against: Python code over orjson, a row at a time.

The worker read its keys like this before `json_exact`, so the two must agree on every text.
"""

import json
import re
from collections.abc import Callable

import orjson

from streamdedup.errors import MalformedError
from streamdedup.keys.extract import NOT_JSON
from streamdedup.keys.formats.schema_registry import looks_registered

MISSING = object()
FLOATS_FROM = 2.0**63  # from here on, orjson returns a float for an integer, too
_DIGITS = re.compile(rb"[0-9]{19}")  # the fewest digits of such an integer
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")  # RFC 6901: no leading zeros


def exact_reader(field: str) -> Callable[[bytes], bytes]:
    """Return a function from a JSON text to its key; it raises MalformedError."""
    steps = steps_of(field)

    def read(text: bytes) -> bytes:
        found = _follow(_parse(text), steps)
        if type(found) is float and abs(found) >= FLOATS_FROM and _DIGITS.search(text):
            found = _follow(json.loads(text), steps)
        return _text(found, steps)

    return read


def steps_of(field: str) -> tuple[str, ...]:
    """Return the steps of a path, or of a JSON Pointer."""
    if not field.startswith("/"):
        return tuple(field.split("."))
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in field[1:].split("/"))


def _parse(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise MalformedError(_why_not_json(text)) from None


def _why_not_json(text: bytes) -> str:
    looks = looks_registered(text)
    if looks is None:
        return NOT_JSON
    return f"the value {looks}: set key.format to that of its serializer, or take the record key (key.from: key)"


def _text(found: object, steps: tuple[str, ...]) -> bytes:
    if type(found) is str:
        return found.encode()
    if type(found) is int:
        return b"%d" % found
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
