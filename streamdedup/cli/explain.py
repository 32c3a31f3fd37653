"""The arguments of `streamdedup explain`, and how its answers are printed."""

import argparse
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from streamdedup.cli.arguments import Commands, add_overrides, loaded, refusing
from streamdedup.cli.asked_worker import add_worker, check_worker, worker_server
from streamdedup.cli.streams import compiling, progress, put, say, stdin
from streamdedup.errors import ConfigError

if TYPE_CHECKING:
    from streamdedup.explain.of_keys import KeysReport
    from streamdedup.explain.run import Scope
    from streamdedup.kafka.partitions import InputPartition
    from streamdedup.settings import Settings

NICENESS = 10  # a worker beside it goes first
_NO_KEY = "standard input has no key: give it keys, one a line"


def add_explain(commands: Commands) -> None:
    """Add the command `explain`."""
    command = commands.add_parser(
        "explain",
        help="say whether a key is known and by which event, or what became of one event",
        description="Ask for a key, or for one event of the input (--at). The newest snapshots and the output answer;"
        " workers may run meanwhile, and nothing is written. An argument stands in the machine's list of processes, so"
        " give a key that is nobody's business on standard input: `-` reads keys from there, one a line. Exit status 0"
        " if all keys are known, or the event passed or is a duplicate; 4 if not; 5 if one is a false positive, proven;"
        " 1 if a broker went away, with what was found so far.",
    )
    add_overrides(command)
    command.add_argument(
        "key",
        nargs="?",
        metavar="KEY",
        help="a key as an event has it, before key.normalize; `-`: each line of standard input is one; if a key joins"
        " several fields, a JSON array of their texts",
    )
    command.add_argument(
        "--at",
        type=refusing(_place),
        metavar="TOPIC/PARTITION:OFFSET",
        help="what became of this event of the input; neither its key nor a digest is printed",
    )
    command.add_argument(
        "--since",
        type=refusing(_since),
        metavar="TIME",
        help="search from this time on: a time like 2026-01-31T08:00Z (UTC unless it has a zone) or how long ago, like"
        " 2h",
    )
    command.add_argument(
        "--partition",
        type=refusing(_number),
        action="append",
        default=[],
        metavar="N",
        help="ask this partition of the output alone; may be repeated",
    )
    command.add_argument(
        "--all",
        action="store_true",
        help="read on after the first hit, to find a key in every partition",
    )
    command.add_argument(
        "--quick",
        action="store_true",
        help="ask the snapshots, and do not search the output for the event",
    )
    command.add_argument(
        "--show-key",
        action="store_true",
        help="with --at, print the key of the event in its normal form",
    )
    command.add_argument(
        "--json", action="store_true", help="print one JSON object a line, for each key"
    )
    add_worker(command, "ask a worker that runs, by its own configuration")
    command.set_defaults(call=_explain, file=None)


def _place(text: str) -> "tuple[InputPartition, int]":
    from streamdedup.kafka.partitions import InputPartition

    topic, _, place = text.rpartition("/")
    number, _, offset = place.partition(":")
    if not topic or not _is_number(number) or not _is_number(offset):
        raise ValueError("must be TOPIC/PARTITION:OFFSET, like signups/3:1042")
    return InputPartition(topic, int(number)), int(offset)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _number(text: str) -> int:
    if not _is_number(text):
        raise ValueError("must be the number of a partition, from 0")
    return int(text)


def _since(text: str) -> int:
    from streamdedup.commands.reset_plan import target_of
    from streamdedup.delivery.services import wall_clock_ms

    target = target_of(text, wall_clock_ms())
    if target.name != "time":
        raise ValueError("must be a time like 2026-01-31T08:00Z, or how long ago, like 2h")
    return target.time_ms


def _explain(arguments: argparse.Namespace) -> int:
    from streamdedup import logs
    from streamdedup.explain.run import Scope

    if (arguments.at is None) == (arguments.key is None):
        raise ConfigError(
            "give a KEY, or - for keys on standard input, or --at TOPIC/PARTITION:OFFSET: one of these"
        )
    if arguments.show_key and arguments.at is None:
        raise ConfigError(
            "--show-key is for --at: a key that you give is shown anyway; delete --show-key"
        )
    if arguments.at is not None and (arguments.partition or arguments.all):
        raise ConfigError(
            "--partition and --all are for keys: an event of the input has one partition; delete them, or ask for a"
            " key"
        )
    check_worker(arguments, {"-c": "config", "--set": "overrides", "--show-key": "show_key"})
    if arguments.worker is not None:
        return _of_worker(arguments)
    tree = loaded(arguments)
    with suppress(OSError):
        os.nice(NICENESS)
    logs.set_up(_WARNING)
    scope = Scope(
        since_ms=arguments.since,
        partitions=tuple(dict.fromkeys(arguments.partition)),
        quick=arguments.quick,
        every=arguments.all,
    )
    call = _of_keys if arguments.at is None else _of_event
    return call(arguments, tree, scope)


_WARNING = 30  # logging's own number: what lists log when they are loaded is no answer


def _of_event(arguments: argparse.Namespace, tree: "Settings", scope: "Scope") -> int:
    import asyncio

    from streamdedup.commands.explain import explain_at
    from streamdedup.explain import printed

    at, offset = arguments.at
    with progress() as on_progress, compiling():
        report = asyncio.run(
            explain_at(
                tree,
                at,
                offset,
                scope=scope,
                show_key=arguments.show_key,
                on_progress=on_progress,
            )
        )
    as_json: bool = arguments.json
    put(printed.as_line(report.as_json()) if as_json else printed.event_text(report))
    _say_all(printed.said(report, as_json=as_json))
    return report.status


def _of_keys(arguments: argparse.Namespace, tree: "Settings", scope: "Scope") -> int:
    import asyncio

    from streamdedup.commands.explain import explain
    from streamdedup.explain import printed

    as_json: bool = arguments.json
    with progress() as on_progress, compiling():
        report = asyncio.run(
            explain(tree, _given(arguments.key), scope=scope, on_progress=on_progress)
        )
    try:
        if not report.wanted.count:
            raise ConfigError(_NO_KEY)
        status = report.status(_printed(report, as_json=as_json))
        if not as_json:
            put(printed.notes_below(report.all_notes()))
    finally:
        report.close()
    _say_all(printed.said(report, as_json=as_json))
    return status


def _of_worker(arguments: argparse.Namespace) -> int:
    """Print what a worker answers, as the command without `--worker` prints its own answer."""
    import json

    from streamdedup.commands.asked_worker import explained
    from streamdedup.units import escaped

    question = _question(arguments)
    with progress() as on_progress:
        found = explained(worker_server(arguments), question, on_progress)
    if arguments.json:
        put("".join(json.dumps(answer) + "\n" for answer in found["answers"]))
    else:
        put(escaped(found["text"], keep="\n\t"))
    _say_all(found["said_with_json" if arguments.json else "said"])
    return int(found["status"])


def _question(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the question for a worker."""
    from streamdedup.commands.asked_worker import KEYS_MAX, question_about

    scope = {"since_ms": arguments.since, "quick": arguments.quick or None}
    if arguments.at is not None:
        place, offset = arguments.at
        question = {"at": f"{place.topic}/{place.number}/{offset}"}
    else:
        keys = list(islice(_given(arguments.key), KEYS_MAX + 1))
        if not keys:
            raise ConfigError(_NO_KEY)
        if len(keys) > KEYS_MAX:
            raise ConfigError(
                f"a worker answers at most {KEYS_MAX} keys at once; ask for less, or without --worker"
            )
        question = question_about(keys)
        scope |= {"partitions": arguments.partition or None, "all": arguments.all or None}
    return {**question, **{name: value for name, value in scope.items() if value is not None}}


def _given(key: str) -> Iterator[bytes]:
    """Return the keys that the argument KEY stands for."""
    if key != "-":
        return iter([os.fsencode(key)])
    return _lines(stdin("give it keys, one a line, or a KEY"))


def _lines(source: BinaryIO) -> Iterator[bytes]:
    from streamdedup.explain.wanted import KEY_BYTES_MAX

    while line := source.readline(KEY_BYTES_MAX + 2):
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _printed(report: "KeysReport", *, as_json: bool) -> Iterator[int]:
    """Print the answers; yield the exit status of each."""
    from streamdedup.explain import printed

    for answer in report.answers():
        put(
            printed.as_line(report.as_json(answer)) if as_json else printed.key_text(report, answer)
        )
        yield answer.status


def _say_all(lines: Iterable[str]) -> None:
    for line in lines:
        say(f"streamdedup: {line}")
