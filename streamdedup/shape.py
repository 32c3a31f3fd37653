"""The shape of the document of `/api/status`: its JSON Schema, and what of another worker's document has that shape.

A worker's document comes over the network, from a peer of another version or from who took its address: `fit` keeps
what the schema knows, so that whoever shows it meets no other types. docs/status.schema.json is made from here.
"""

# Within version 1 names are added, with `optional`, and never changed or removed: a test holds it.

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Schema = dict[str, Any]
Fit = Callable[[object], Any]

VERSION: Final = 1
SHARDS_MAX = 4096
FINDINGS_MAX = 300
NOT_PASSED_MAX = 256
OTHERS_MAX = 1000
LISTS_MAX = 16
PEERS_MAX = 32
MINUTES = 60
TEXT_MAX = 4000  # characters; longer texts are cut
NUMBER_MAX = 1e18

_VERDICTS = ("pass", "duplicate", "blocked", "malformed", "rejected")


def _number(about: str) -> Schema:
    return {"type": "number", "description": about}


def _integer(about: str) -> Schema:
    return {"type": "integer", "description": about}


def _flag(about: str) -> Schema:
    return {"type": "boolean", "description": about}


def _text(about: str) -> Schema:
    return {"type": "string", "description": about}


def _word(about: str, *known: str) -> Schema:
    """Return the schema of one of some words, to which later versions may add."""
    pattern = "^[a-z_]{1,40}$"
    return {"type": "string", "pattern": pattern, "description": f"{about}: {', '.join(known)}"}


def _or_null(schema: Schema, why: str = "unknown") -> Schema:
    about = schema.get("description", "")
    return {**schema, "type": [schema["type"], "null"], "description": f"{about}; null: {why}"}


def _list(about: str, items: Schema, most: int) -> Schema:
    return {"type": "array", "description": about, "items": items, "maxItems": most}


def _object(
    about: str, properties: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None
) -> Schema:
    return {
        "type": "object",
        "description": about,
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
    }


def _by_verdict(about: str, of: Callable[[str], Schema]) -> Schema:
    return _object(about, {verdict: of(verdict) for verdict in _VERDICTS})


_MOMENT = "s since 1970"

_WORKER = _object(
    "the worker that answers",
    {
        "instance": _text("of this process alone: another one, and it has another text"),
        "name": _text("how people call it: its group instance id, or its host and port"),
        "version": _text("of streamdedup"),
        "python": _text("the version of Python"),
        "up_since": _number(f"when it started, {_MOMENT}"),
        "phase": _word("its phase", "connecting", "joining", "serving", "draining"),
        "meaning": _or_null(_text("the name of its meaning, hexadecimal")),
        "group": _text("kafka.group_id"),
        "topic": _text("the input of its shards"),
        "output": _text("sink.topic"),
        "delivery": _word("its guarantee", "exactly_once", "at_least_once"),
        "filter": _text("filter.kind"),
        "window_s": _or_null(_number("for how long keys are remembered, s"), "for ever"),
        "shadow": _flag("whether all events pass (sink.shadow)"),
        "judges": _flag("whether it has shards; not if it only copies"),
        "address": _or_null(_text("where it serves this, host:port")),
        "can_act": _flag("whether a token may ask and act (server.token_file)"),
    },
)

_READY = _object(
    "whether it is ready, as /readyz has it",
    {
        "is": _flag("whether it is ready"),
        "since": _number(f"since when, {_MOMENT}"),
        "sentence": _text("the same, for a person"),
    },
)

_FINDING = _object(
    "what is not as an operator wants it (docs/operate.md)",
    {
        "id": _text("of the finding; docs/runbook.md has a section for it"),
        "severity": {
            "type": "string",
            "enum": ["failure", "warning", "note"],
            "description": "failure: events wait; warning: events are decided, but not as wanted; note",
        },
        "place": _or_null(_text("a partition, a topic or a list"), "the whole worker"),
        "sentence": _text("what is found"),
        "remedy": _or_null(_text("what to do"), "nobody need act"),
        "since": _or_null(_number(f"since when, {_MOMENT}")),
    },
)

_FOLD = _object(
    "the fold of the output that runs",
    {
        "start": _integer("the output offset at which it began"),
        "position": _integer("the output offset at which it is"),
        "end": _integer("the output offset at which it ends"),
        "ratio": _number("how much of it is done, 0 to 1"),
        "seconds": _number("for how long it runs, s"),
        "left_s": _or_null(_number("for how long it will run, s")),
    },
)

_SNAPSHOT = _object(
    "its newest snapshot",
    {
        "age_s": _number("how old it is, s"),
        "bytes": _integer("its size"),
        "behind": _integer("how many offsets of the output it lacks"),
    },
)

_SHARD = _object(
    "a partition that the worker has",
    {
        "partition": _integer("its number"),
        "state": _word("its state", "assigned", "fencing", "folding", "live", "full", "stopped"),
        "since": _or_null(_number(f"since when it is in that state, {_MOMENT}")),
        "trouble": _or_null(_text("why no event of it is decided"), "there is no trouble"),
        "lag": _or_null(_integer("how many offsets of the input are not committed")),
        "oldest_unread_s": _or_null(
            _number(
                "how long the oldest event has waited that is not committed, s; 0 if there is none"
            )
        ),
        "rate": _number("events a second now"),
        "verdicts": _by_verdict("events since the worker has it", _integer),
        "per_second": _by_verdict("events a second now", _number),
        "minute": _by_verdict("events of the last 60 s", _integer),
        "keys": _or_null(_integer("the keys in its filter")),
        "capacity": _or_null(_integer("the keys for which its filter is made")),
        "error_rate": _or_null(_number("the error rate of its filter now")),
        "error_rate_allowed": _or_null(_number("the error rate at capacity")),
        "full_in_s": _or_null(_number("when its filter is full, s"), "unknown, or never"),
        "filter_bytes": _or_null(_integer("the size of its filter in memory")),
        "fold": _or_null(_FOLD, "none runs"),
        "snapshot": _or_null(_SNAPSHOT, "there is none, or it is unknown"),
    },
)

_TOTALS = _object(
    "of all partitions that the worker has",
    {
        "lag": _integer("how many offsets of the input are not committed"),
        "rate": _number("events a second now"),
        "verdicts": _by_verdict("events since the worker has them", _integer),
        "minute": _by_verdict("events of the last 60 s", _integer),
    },
)


def _minutes_of(verdict: str) -> Schema:
    count = _or_null(_integer("events of one minute"), "the worker had not started")
    return _list(f"{verdict}, a value a minute, the oldest first", count, MINUTES)


_MINUTES = _object(
    "the worker's last 60 minutes; the last one still runs",
    {
        "first": _number(f"when the first of them began, {_MOMENT}"),
        **{verdict: _minutes_of(verdict) for verdict in _VERDICTS},
    },
)

_COPYING = _object(
    "the first stage",
    {
        "topic": _text("the input, or inputs"),
        "middle": _text("the middle topic"),
        "ready": _flag("whether it copies"),
        "partitions": _integer("how many partitions of the inputs the worker has"),
        "lag": _integer("how many offsets of them are not copied"),
        "copied": _integer("events since the worker started"),
        "rate": _number("events a second now"),
        "paused": _or_null(_text("why it pauses"), "it does not"),
        "held": _integer("partitions at which an open transaction holds it"),
        "stopped": _integer("partitions that are stopped"),
        "left_out": _integer("topics that source.pattern matches and that are not read"),
        "unread": _or_null(_integer("events of the middle topic that are not judged")),
    },
)

_JUDGING = _object(
    "the second stage",
    {
        "middle": _text("the middle topic"),
        "partitions": _integer("how many partitions of it the worker has"),
        "lag": _integer("how many offsets of them are not committed"),
        "uncopied": _or_null(_integer("offsets of the inputs that are not copied"), "see copying"),
    },
)

_STAGES = _object(
    "the stages of source.repartition",
    {
        "copying": _or_null(_COPYING, "another process copies"),
        "judging": _or_null(_JUDGING, "this process only copies"),
    },
)

_LIST = _object(
    "a list in force",
    {
        "list": _word("which", "allowlist", "blocklist"),
        "name": _text("its name"),
        "version": _text("its version"),
        "keys": _or_null(_integer("its keys")),
        "changes": _or_null(_integer("single changes in force beside it")),
        "refused": _or_null(_text("why its file as it is now is refused"), "it is not"),
    },
)

_NOT_PASSED = _object(
    "an event that did not pass",
    {
        "topic": _text("of the input"),
        "partition": _integer("of the input"),
        "offset": _integer("of the input"),
        "verdict": _word("its verdict", *_VERDICTS[1:]),
        "reason": _text("why it did not pass"),
        "event_time_ms": _or_null(_integer("its timestamp, ms since 1970"), "it has none"),
        "list": _or_null(_text("the list that blocked it"), "none did"),
        "list_version": _or_null(_text("its version"), "no list blocked it"),
        "list_source": _or_null(_text("file or change"), "no list blocked it"),
        "rule": _or_null(_text("address or domain"), "no list blocked it"),
    },
)

_OTHER = _object(
    "a partition of the group that this worker does not have, by what Kafka says",
    {
        "topic": _text("of the input"),
        "partition": _integer("its number"),
        "owner": _or_null(_text("the client id of its member"), "unknown, or nobody has it"),
        "host": _or_null(_text("where its member runs"), "unknown, or nobody has it"),
        "lag": _or_null(_integer("how many offsets are not committed")),
    },
)

_LOCAL = {
    "version": _integer("of this document; names are only added within a version"),
    "at": _number(f"when it was made, {_MOMENT}"),
    "worker": _WORKER,
    "ready": _READY,
    "findings": _list("the worst first", _FINDING, FINDINGS_MAX),
    "shards": _list("by partition", _SHARD, SHARDS_MAX),
    "totals": _TOTALS,
    "minutes": _MINUTES,
    "stages": _or_null(_STAGES, "without source.repartition"),
    "lists": _list("the lists in force", _LIST, LISTS_MAX),
    "not_passed": _list("the last events that did not pass, the newest first", _NOT_PASSED, NOT_PASSED_MAX),
    "others": _list("the partitions that others have", _OTHER, OTHERS_MAX),
}  # fmt: skip

_PEER = _object(
    "another worker, of server.peers",
    {
        "address": _text("host:port"),
        "answers": _flag("whether it answers"),
        "asked_at": _number(f"when it was asked last, {_MOMENT}"),
        "since": _or_null(_number(f"since when it answers, or does not, {_MOMENT}")),
        "error": _or_null(_text("why it does not answer"), "it answers"),
        "status": _or_null(
            _object("its own document, without peers", _LOCAL), "it does not answer"
        ),
    },
)

SCHEMA: Final[Schema] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "GET /api/status of a streamdedup worker",
    **_object(
        "how a worker is",
        _LOCAL,
        {
            "peers": _or_null(
                _list("the other workers of server.peers; missing with ?local", _PEER, PEERS_MAX),
                "server.peers is not set",
            )
        },
    ),
}


def paths(schema: Schema, above: str = "") -> list[str]:
    """Return the path of each value that a schema has, and its types, in the order of the schema."""
    types = _types(schema)
    found = [f"{above or '.'}: {' or '.join(types)}"]
    for name, part in schema.get("properties", {}).items():
        found += paths(part, f"{above}.{name}")
    if "items" in schema:
        found += paths(schema["items"], f"{above}[]")
    return found


def read(text: bytes) -> dict[str, Any] | None:
    """Return what of the JSON object in `text` has the shape of a worker's document; None if too little has."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fit(value)


def fit(value: object) -> dict[str, Any] | None:
    """Return what of a value has the shape of a worker's document of this version; None if too little has.

    What is null or a member of a list, and does not fit, is null or left out. Names that the schema lacks are left out.
    """
    found = _FIT(value)
    return found if isinstance(found, dict) and found["version"] == VERSION else None


class _Misfit:
    """The result for a value that does not fit."""


_MISFIT = _Misfit()


def _types(schema: Schema) -> list[str]:
    types = schema["type"]
    return types if isinstance(types, list) else [types]


def _fitting(schema: Schema) -> Fit:
    """Return the function that returns what of a value fits `schema`, or `_MISFIT`."""
    kind, *null = _types(schema)
    fits = _MAKERS[kind](schema)
    if not null:
        return fits

    def fits_or_null(value: object) -> object:
        found = None if value is None else fits(value)
        return None if found is _MISFIT else found

    return fits_or_null


def _fitting_object(schema: Schema) -> Fit:
    required = frozenset(schema["required"])
    of_each = [
        (name, name in required, _fitting(part)) for name, part in schema["properties"].items()
    ]

    def fits(value: object) -> object:
        if type(value) is not dict:
            return _MISFIT
        found = {}
        for name, is_required, fits_part in of_each:
            part = fits_part(value[name]) if name in value else _MISFIT
            if part is not _MISFIT:
                found[name] = part
            elif is_required:
                return _MISFIT
        return found

    return fits


def _fitting_list(schema: Schema) -> Fit:
    fits_item, most = _fitting(schema["items"]), schema["maxItems"]

    def fits(value: object) -> object:
        if type(value) is not list:
            return _MISFIT
        found = map(fits_item, value[:most])
        return [item for item in found if item is not _MISFIT]

    return fits


def _fitting_text(schema: Schema) -> Fit:
    words: Sequence[str] | None = schema.get("enum")
    pattern = re.compile(schema.get("pattern", "(?s).*"))

    def fits(value: object) -> object:
        if type(value) is not str or (words and value not in words) or not pattern.fullmatch(value):
            return _MISFIT
        return value[:TEXT_MAX]

    return fits


def _fitting_number(schema: Schema) -> Fit:
    types = {"integer": (int,), "number": (int, float), "boolean": (bool,)}[_types(schema)[0]]

    def fits(value: object) -> object:
        if type(value) not in types or not abs(value) <= NUMBER_MAX:  # type: ignore[arg-type]
            return _MISFIT
        return value

    return fits


_MAKERS: Mapping[str, Callable[[Schema], Fit]] = {
    "object": _fitting_object,
    "array": _fitting_list,
    "string": _fitting_text,
    "integer": _fitting_number,
    "number": _fitting_number,
    "boolean": _fitting_number,
}

_FIT = _fitting(SCHEMA)
