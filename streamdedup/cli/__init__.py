"""The `streamdedup` command: parse, call, print. Commands import what they need when called, so that --help is quick.

Exit status: 0 success, even if the reader of standard output stops early; 1 failure; 2 wrong configuration or
arguments; 3 events of one key in several partitions, if nothing is worse (`try`, `audit`); 4 and 5 of `try`: more
distinct keys than the capacity; a fifth of the events malformed or rejected, or of one key; 4 and 5 of `explain`: a key
is not known; a false positive; 130 and 143 (SIGINT, SIGTERM) after the second interrupt of `run`, or the first of any
other command.
"""

import os
import resource
import signal
import sys


def _end_when_interrupted() -> None:
    """Have SIGTERM and SIGINT end this process with status 0, and others do nothing, until a worker handles them.

    There is nothing to drain yet. Without a handler, the first process of a container ignores SIGTERM. A handler that
    raises would not do: imports last for a second, and a bare `except` within one of them could catch what it raises.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    for number in (signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


# What follows is imported for a tenth of a second, and longer on a busy machine.
if sys.argv[1:2] == ["run"]:
    _end_when_interrupted()

import argparse
import atexit
import gc
from collections.abc import Sequence

from streamdedup.cli.arguments import Commands, Parser, add_settings, loaded
from streamdedup.cli.audit import add_audit
from streamdedup.cli.doctor import add_doctor, examined, shown
from streamdedup.cli.explain import add_explain
from streamdedup.cli.lists import add_lists
from streamdedup.cli.pipe import add_pipe
from streamdedup.cli.plan import add_plan
from streamdedup.cli.reset import add_reset
from streamdedup.cli.status import add_status
from streamdedup.cli.streams import compiling, is_unread, put, say, write
from streamdedup.cli.trial import EVENTS, add_try
from streamdedup.errors import (
    ConfigError,
    StreamdedupError,
    hide_messages,
    traceback_without_messages,
)
from streamdedup.numba_settings import ignore_file
from streamdedup.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    if argv is None:  # as the process, and not by a program that has hooks of its own
        hide_messages()
        ignore_file()
    # Otherwise Python's exit looks for unused objects among all that there are, most of them numba's, for 0.2 s.
    atexit.register(gc.freeze)
    try:
        arguments = _parser().parse_args(argv)
        return int(arguments.call(arguments))
    except StreamdedupError as error:
        say(f"streamdedup: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # its origin is unknown, so its message may quote a key
        if isinstance(error, BrokenPipeError) and is_unread():
            return 0
        what = (
            str(error) if isinstance(error, OSError) else "a bug in streamdedup, please report it"
        )
        say(
            f"streamdedup: {what}; it came from (no data is quoted):\n{traceback_without_messages(error)}"
        )
        return 1


def _parser() -> Parser:
    parser = Parser(prog="streamdedup", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"streamdedup {__version__}")
    commands: Commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    add_status(commands)
    add_doctor(commands)
    add_try(commands)
    add_audit(commands)
    add_explain(commands)
    add_reset(commands)
    add_pipe(commands)
    add_plan(commands)
    add_lists(commands)
    _add_config(commands)
    _add_compile(commands)
    _add_demo(commands)
    return parser


WARNED = 3  # the exit status of `doctor` and `status` with warnings
_DESCRIPTION = "Drop duplicate events at stream speed, in a few bits a key."


def _add_run(commands: Commands) -> None:
    run = commands.add_parser(
        "run",
        help="de-duplicate a Kafka topic until interrupted",
        description="Run the worker. The first SIGTERM or SIGINT drains, the second exits at once.",
    )
    add_settings(run)
    run.add_argument(
        "--stage",
        choices=("both", "repartition", "deduplicate"),
        default="both",
        help="with source.repartition, run one of its stages alone: `repartition` copies events to the middle topic,"
        " `deduplicate` reads that; they may run on different machines (default: both)",
    )
    run.set_defaults(call=_run)


def _run(arguments: argparse.Namespace) -> int:
    _end_when_interrupted()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold keys and secrets
    from streamdedup import logs
    from streamdedup.worker import process

    tree = loaded(arguments)
    if arguments.stage != "both" and tree.source.repartition is None:
        raise ConfigError(
            f"--stage {arguments.stage} needs source.repartition, which the configuration does not set"
        )
    logs.set_up(queued=True)
    return process.serve(tree, arguments.stage)


def _add_config(commands: Commands) -> None:
    config = commands.add_parser("config", help="check, show or describe the configuration")
    parts = config.add_subparsers(required=True, metavar="PART")
    for name, call, text in (
        ("check", _config_check, "report all errors at once"),
        ("show", _config_show, "print the whole effective configuration, with secrets masked"),
    ):
        part = parts.add_parser(name, help=text, description=text)
        add_settings(part)
        part.set_defaults(call=call)
        if name == "check":
            part.add_argument(
                "--connect",
                action="store_true",
                help="run `streamdedup doctor`, too; here warnings end with status 0",
            )
    schema = parts.add_parser("schema", help="print the JSON Schema, for editors")
    schema.set_defaults(call=_config_schema)


def _config_check(arguments: argparse.Namespace) -> int:
    from streamdedup.keys import foreign_paths

    tree = loaded(arguments)
    put("the configuration is valid\n")
    put("".join(f"warning: {warning}\n" for warning in foreign_paths.warnings(tree.key)))
    if not arguments.connect:
        return 0
    found = examined(tree, EVENTS)
    put(shown(found))
    return 0 if found.exit_status == WARNED else found.exit_status


def _config_show(arguments: argparse.Namespace) -> int:
    from streamdedup import settings

    put(settings.show(loaded(arguments)))
    return 0


def _config_schema(_arguments: argparse.Namespace) -> int:
    import json

    from streamdedup import settings

    put(json.dumps(settings.schema(), indent=2) + "\n")
    return 0


def _add_compile(commands: Commands) -> None:
    text = "compile all inner loops before their first use, into $STREAMDEDUP_CACHE"
    part = commands.add_parser(
        "compile", help=text, description=f"{text}; loops compiled earlier are kept."
    )
    part.set_defaults(call=_compile)


def _compile(_arguments: argparse.Namespace) -> int:
    from streamdedup import kernel, library
    from streamdedup.kafka.records import encoding, origin_header
    from streamdedup.keys.formats import csv_column, line_column
    from streamdedup.rules import warm_up_all

    with compiling():
        warm_up_all()
        library.warm_up()
        encoding.warm_up()
        origin_header.warm_up()
        line_column.warm_up()
        csv_column.warm_up()
    compiled = kernel.compiled()
    put(f"{compiled} loops were compiled\n" if compiled else "all loops were compiled already\n")
    if compiled and kernel.kept_in() is None:
        raise StreamdedupError(
            f"the compiled loops could not be saved; set {kernel.CACHE_ENV} to a directory that can be written to"
        )
    return 0


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser(
        "demo",
        help="run the worker over real data on a mock broker, and compare it with an exact set",
    )
    demo.add_argument(
        "--stay",
        action="store_true",
        help="feed the worker on until interrupted, and print the address of its page",
    )
    demo.set_defaults(call=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from streamdedup.commands.demo import demo

    if arguments.stay:
        from streamdedup.commands.demo.stay import stay

        return stay(write)
    return demo(write)  # ends if its reader has gone
