"""The schema of a configuration, without its words: what an editor or another program may write."""

import json
from collections.abc import Mapping
from typing import Any

from proof.golden.command import call


def schema() -> Any:
    """The JSON Schema for editors, without words and without the names of its parts."""
    made = json.loads(call(["config", "schema"]).out)
    parts = made.pop("$defs", {})
    return _plain(made, parts)


_WORDS = ("title", "description", "examples")


def _plain(part: Any, parts: Mapping[str, Any]) -> Any:
    """One schema: references are replaced by what they refer to, words are left out."""
    if not isinstance(part, dict):
        return part
    made: dict[str, Any] = {}
    for name, value in part.items():
        if name == "$ref":
            made |= _plain(parts[value.rpartition("/")[2]], parts)
        elif name == "properties":
            made[name] = {option: _plain(schema, parts) for option, schema in value.items()}
        elif name in ("anyOf", "allOf", "oneOf"):
            made[name] = [_plain(schema, parts) for schema in value]
        elif name not in _WORDS:
            made[name] = _plain(value, parts) if name in _SCHEMAS else value
    return made


_SCHEMAS = ("items", "additionalProperties", "if", "then", "else", "not")
