"""The names by which others call what we do: log events, metrics, commands, exit statuses, pages, JSON, the API."""

import argparse
import ast
import functools
import importlib
import inspect
import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from structlog.testing import capture_logs

import streamdedup
from proof.golden import deployment
from proof.golden.command import call
from streamdedup import errors, lists
from streamdedup.cli import main, streams
from streamdedup.commands.audit import audit
from streamdedup.commands.explain import explain, explain_at
from streamdedup.commands.trial import tried
from streamdedup.kafka.base import Connect
from streamdedup.kafka.partitions import InputPartition
from streamdedup.metrics.catalogue import DOUBTS, METRICS, TAKEN_BACK
from streamdedup.server.listener import Listener
from streamdedup.server.request import Page
from streamdedup.server.route import Routes, at_once
from streamdedup.settings import Settings
from streamdedup.testing import VirtualLoop, connected_to
from tests.lists.files import list_file
from tests.settings.minimal import MINIMAL

PACKAGE = Path(streamdedup.__file__).parent
UNLOGGED = ("testing", "contrib")  # they are no part of a worker
LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
_EVENT = re.compile(r"[a-z*]+(_[a-z*]+)*")


def log_events() -> Any:
    """Every event of the log with its levels and fields; `**` stands for fields that are gathered elsewhere."""
    found: dict[str, dict[str, set[str]]] = {}
    for module in _modules():
        assigned = _assigned(module)
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and (levels := _levels(node.func, assigned)):
                for event in _events(node, assigned):
                    of = found.setdefault(event, {"levels": set(), "fields": set()})
                    of["levels"] |= levels
                    of["fields"] |= {keyword.arg or "**" for keyword in node.keywords}
    sets = sorted(found.items())
    return {event: {name: sorted(of) for name, of in told.items()} for event, told in sets}


@functools.cache
def _modules() -> list[ast.Module]:
    """All of the package that is part of a worker."""
    return [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in UNLOGGED
    ]


def bound_fields() -> Any:
    """The fields that loggers are bound to."""
    calls = [
        node for module in _modules() for node in ast.walk(module) if isinstance(node, ast.Call)
    ]
    return sorted(
        sorted(keyword.arg or "**" for keyword in node.keywords)
        for node in calls
        if isinstance(node.func, ast.Attribute) and node.func.attr == "bind" and node.keywords
    )


def _assigned(module: ast.Module) -> Mapping[str, list[ast.expr]]:
    """What is assigned to each plain name."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return found


def _levels(function: ast.expr, assigned: Mapping[str, list[ast.expr]]) -> set[str]:
    """The levels at which a call logs; none if it is another call."""
    if isinstance(function, ast.Name):
        chosen = [value for value in assigned.get(function.id, ()) if isinstance(value, ast.IfExp)]
        return {
            level
            for value in chosen
            for branch in (value.body, value.orelse)
            for level in _levels(branch, {})
        }
    is_level = isinstance(function, ast.Attribute) and function.attr in LEVELS
    return {function.attr} if is_level and isinstance(function, ast.Attribute) else set()


def _events(node: ast.Call, assigned: Mapping[str, list[ast.expr]]) -> Iterator[str]:
    first = node.args[0] if len(node.args) == 1 else None
    values = assigned.get(first.id, []) if isinstance(first, ast.Name) else [first]
    for value in values:
        for part in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
            text = _text(part)
            if text and _EVENT.fullmatch(text):
                yield text


def _text(node: ast.expr | None) -> str | None:
    """A constant, or a text with `*` for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "*" for part in node.values)
    return None


def metrics() -> Any:
    """Every metric: kind, unit, labels, buckets; and the causes that are values of labels."""
    return {
        "metrics": {
            one.name: [one.kind, one.unit, [*one.labels], [*one.bounds]] for one in METRICS
        },
        "causes of doubts": [*DOUBTS],
        "causes of events taken back": [*TAKEN_BACK],
    }


def commands() -> Any:
    """Every command with its arguments: their names, values and defaults, and not their words."""
    caught: list[argparse.ArgumentParser] = []

    def catch(parser: argparse.ArgumentParser, *_: object) -> None:
        caught.append(parser)
        raise SystemExit(0)

    with patch.object(argparse.ArgumentParser, "parse_args", catch), suppress(SystemExit):
        main([])
    return dict(_commands(caught[0], ()))


def _commands(
    parser: argparse.ArgumentParser, above: tuple[str, ...]
) -> Iterator[tuple[str, list[Any]]]:
    arguments = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, part in action.choices.items():
                yield from _commands(part, (*above, name))
            arguments.append({"name": action.metavar, "parts": [*action.choices]})
        elif "--help" not in action.option_strings and action.help != argparse.SUPPRESS:
            arguments.append(_argument(action))
    yield " ".join(above), arguments


def _argument(action: argparse.Action) -> dict[str, Any]:
    told = {
        "name": [*action.option_strings] or action.metavar,
        "metavar": action.metavar,
        "takes": action.nargs,
        "default": action.default,
        "choices": action.choices and [*action.choices],
        "required": action.required,
    }
    empty: list[Any] = [None, "", b"", [], argparse.SUPPRESS]
    return {
        name: value if isinstance(value, list) else str(value)
        for name, value in told.items()
        if value not in empty and value is not False
    }


def configuration_schema() -> Any:
    """The JSON Schema of a configuration, for editors, without words and without the names of its parts."""
    made = json.loads(call(["config", "schema"]).out)
    parts = made.pop("$defs", {})
    return _plain(made, parts)


_WORDS = ("title", "description", "examples")
_SCHEMAS = ("items", "additionalProperties", "if", "then", "else", "not")


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


def exit_statuses() -> Any:
    """The exit status by the error that ends a command, and by what an operator does."""
    causes: dict[str, BaseException] = {
        name: kind("it")
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.StreamdedupError)
    }
    causes |= {kind.__name__: kind() for kind in (KeyboardInterrupt, ValueError, OSError)}
    by_error = {name: _status_of(error) for name, error in causes.items()}
    files = {
        "dedup.yaml": MINIMAL,
        "bad.yaml": "x",
        "empty": "",
        "entries.txt": "a\nb\n",
        "no.list": "x",
    }
    with patch.object(signal, "signal"):  # which `run` sets at once
        by_command = {" ".join(line): call(line, {}, files).status for line in _LINES}
    return {"by error": by_error, "by command": by_command}


def _status_of(error: BaseException) -> int:
    """The status if a command fails while it prints."""
    written = streams._write
    causes = iter([error])

    def fail(*args: Any, **options: Any) -> None:
        for cause in causes:
            raise cause
        written(*args, **options)

    with patch.object(streams, "_write", fail):
        return call(["config", "schema"]).status


_LINES = [
    line.split()
    for line in (
        "",
        "no-such-command",
        "--version",
        "--help",
        "run --help",
        "run",
        "run --no-such-option",
        "run -c none.yaml",
        "run -c bad.yaml",
        "config",
        "config check dedup.yaml",
        "config check bad.yaml",
        "config check none.yaml",
        "config show",
        "config schema",
        "audit",
        "audit -c none.yaml",
        "explain",
        "explain -c none.yaml key",
        "explain -c dedup.yaml key --at in/0:1",
        "explain -c dedup.yaml --at in",
        "reset -c dedup.yaml",
        "reset -c dedup.yaml --to yesterday",
        "try -c none.yaml",
        "try -c dedup.yaml --events 0",
        "plan",
        "plan --keys 0",
        "plan --keys many",
        "plan --table",
        "plan --table --keys 5",
        "pipe --no-such-option",
        "pipe --normalize email --url-rule www",
        "plan --keys 5 --url-rule www",
        "lists",
        "lists build entries.txt",
        "lists build none.txt -o out.list",
        "lists build empty -o out.list",
        "lists build entries.txt -o out.list --kind none",
        "lists build entries.txt -o out.list --normalize email --bad-max 1",
        "lists build entries.txt -o out.list --hash siphash",
        "lists build entries.txt -o out.list --url-rule www",
        "lists build entries.txt -o out.list --url-ignore sid",
        "lists build entries.txt -o out.list --entries hosts",
        "lists inspect none.list",
        "lists inspect no.list",
        "lists check no.list a",
        "lists check",
        "lists check --live -c none.yaml a",
        "lists key",
        "lists key -c none.yaml a",
        "lists changes -c none.yaml",
        "lists changes --limit 0",
        "lists add",
        "lists remove -c dedup.yaml",
        "lists undo -c none.yaml a",
    )
]


def pages() -> Any:
    """What the server answers, by method and path: status, type, other headers that are no dates."""
    made: dict[str, Any] = {}
    paths = ["/metrics", "/metrics?x=1", "/livez", "/readyz", "/", "/health", "/metrics/"]
    with TemporaryDirectory() as directory:
        settings = deployment.settings_of(Path(directory))
        ran = deployment.run(settings, deployment.broker_with(deployment.STREAM[1:]))
    for phase, of in (("serving", ran.pages), ("connecting", deployment.pages_before(settings))):
        listener = Listener(
            "127.0.0.1", 0, Routes(at_once(path, _always(page)) for path, page in of.items())
        )
        try:
            for method in ("GET", "HEAD", "POST"):
                for path in paths:
                    made[f"{phase}: {method} {path}"] = _answer(listener.port, method, path)
        finally:
            listener.close()
    return made


def _always(page: Page) -> Callable[[], Page]:
    return lambda: page


def _answer(port: int, method: str, path: str) -> list[Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    has_body = bool(answer.read())
    connection.close()
    kept = {
        name: value
        for name, value in answer.getheaders()
        if name not in ("Date", "Content-Length", "Server")
    }
    return [answer.status, kept, "with a body" if has_body else "empty"]


def json_outputs() -> Any:
    """What is printed for programs: `plan`, `audit`, `try`, `explain`; of plans and answers only the types."""
    plan = json.loads(call(["plan", "--keys", "1000", "--error-rate", "0.01", "--json"]).out)
    table = json.loads(call(["plan", "--table", "--json"]).out)
    with TemporaryDirectory() as name:
        directory = Path(name)
        settings = deployment.settings_of(
            directory,
            sink=deployment.SIDES,
            blocklist={"file": list_file(directory / "block.list", [b"listed"])},
        )
        broker = deployment.broker_with(deployment.STREAM, *deployment.SIDES.values())
        deployment.run(settings, broker)
        loop = VirtualLoop()
        with capture_logs():
            report = loop.run_until_complete(audit(settings, connected_to(broker)))
            trial = loop.run_until_complete(tried(settings, 100, connected_to(broker)))
            asked = loop.run_until_complete(_explained(settings, connected_to(broker)))
        loop.close()
    told, tried_json = report.as_json(), trial.as_json()
    return {
        "plan": _types(plan),
        "plan --table": _types(table),
        "audit": {**told, "notes": len(told["notes"]), "breaches": len(told["breaches"])},
        "try": {**tried_json, "notes": len(tried_json["notes"])},
        **{name: _types(answer) for name, answer in asked.items()},
    }


async def _explained(settings: Settings, connect: Connect) -> dict[str, Any]:
    """The answers about keys and events: known, not known, blocked; passed, duplicate, blocked, malformed."""
    made = dict[str, Any]()
    for key in (b"a", b"nobody", b"listed"):
        report = await explain(settings, [key], connect)
        with closing(report):
            made[f"explain {key.decode()}"] = report.as_json(next(report.answers()))
    for offset, what in ((0, "passed"), (2, "a duplicate"), (3, "blocked"), (4, "malformed")):
        at = InputPartition(settings.source.topic, 0)
        answer = await explain_at(settings, at, offset, connect)
        made[f"explain --at, {what}"] = answer.as_json()
    return made


def _types(value: Any) -> Any:
    """The names in an object, with the types of values; of a list, those of its first."""
    if isinstance(value, dict):
        return {name: _types(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_types(value[0])] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


API = ("streamdedup", "streamdedup.testing")


def public_api() -> Any:
    """What `import streamdedup` offers: names and signatures; and what filters of each kind offer."""
    offered = {
        module: {name: _signature(getattr(of, name)) for name in sorted(of.__all__)}
        for module in API
        for of in [importlib.import_module(module)]
    }
    built = {kind: streamdedup.build(given) for kind, given in _BUILT.items()}
    surfaces = {f"a filter: {kind}": _surface(made) for kind, made in built.items()}
    return {**offered, "streamdedup.lists.load": _signature(lists.load), **surfaces}


_SIZE: Mapping[str, Any] = {"capacity": 100, "error_rate": 0.01}
_BUILT: Mapping[str, Mapping[str, Any]] = {
    **{kind: {"kind": kind, **_SIZE} for kind in ("bloom", "blocked", "bitmap", "counting")},
    **{kind: {"kind": kind, **_SIZE} for kind in ("cuckoo", "dleft", "dlcbf", "exact", "window")},
    "bitmap of a range": {"kind": "bitmap", "range": [0, 100]},
    "fuse": {"kind": "fuse", "keys": ["a"], "error_rate": 0.01},
    "window by time": {"kind": "window", "retention": "7d", **_SIZE},
    "chain": {"kind": "bloom", "on_full": "grow", **_SIZE},
    "window that grows": {"kind": "window", "retention": "7d", "on_full": "grow", **_SIZE},
}


def _signature(of: object) -> Any:
    """The parameters with their kinds and defaults, without types; of a class, its constructor's."""
    if not callable(of):
        return type(of).__name__
    if isinstance(of, type) and issubclass(of, BaseException):
        return "raised"
    parameters = inspect.signature(of).parameters.values()
    return [
        f"{one.kind.name.lower()} {one.name}"
        + ("" if one.default is one.empty else f" = {_default(one.default)}")
        for one in parameters
    ]


def _default(value: object) -> str:
    return "a function" if inspect.isroutine(value) else repr(value)


_OF_FILTERS = (
    *("add", "add_many", "digests", "contains_many", "discard", "remove_many"),
    *("capacity", "error_rate", "error_rate_now", "expected_error", "fill_ratio", "watermark"),
    *("hash", "kind", "size_bytes"),
    *("__contains__", "__ior__", "__len__"),
)


def _surface(made: object) -> dict[str, Any]:
    """What a program may call of a filter, and read; not what only this package does."""
    there = [name for name in _OF_FILTERS if hasattr(made, name)]
    return {name: _member(getattr(made, name)) for name in there}


def _member(value: object) -> Any:
    return _signature(value) if inspect.isroutine(value) else "a value"
