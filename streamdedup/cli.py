"""The `streamdedup` command: parse, call, print. Imports stand inside the commands, so that --help is quick.

Exit status: 0 done, 1 failed, 2 the configuration or the arguments do not fit, 130 and 143 for a second interrupt.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from streamdedup import __version__
from streamdedup.errors import StreamdedupError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.call(arguments))
    except StreamdedupError as error:
        print(f"streamdedup: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="streamdedup", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"streamdedup {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    _add_pipe(commands)
    _add_config(commands)
    _add_demo(commands)
    return parser


_DESCRIPTION = "Drop duplicate events at stream speed, in a few bits a key."

if TYPE_CHECKING:
    from io import BufferedReader

    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def _add_run(commands: "_Commands") -> None:
    run = commands.add_parser(
        "run",
        help="de-duplicate a Kafka topic until interrupted",
        description="Run the worker. The first SIGTERM or SIGINT drains, the second exits at once.",
    )
    _add_settings(run)
    run.set_defaults(call=_run)


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration (default: $STREAMDEDUP_CONFIG)",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override one setting, as in --set kafka.group_id=x; may be repeated",
    )


def _run(arguments: argparse.Namespace) -> int:
    from streamdedup import logs, settings, worker

    tree = settings.load(arguments.config, arguments.overrides)
    logs.set_up()
    return worker.serve(tree)


def _add_config(commands: "_Commands") -> None:
    config = commands.add_parser("config", help="check, show or describe the configuration")
    parts = config.add_subparsers(required=True, metavar="PART")
    for name, call, text in (
        ("check", _config_check, "report everything that is wrong, at once"),
        ("show", _config_show, "print the whole effective tree, secrets masked"),
    ):
        part = parts.add_parser(name, help=text, description=text)
        part.add_argument("file", nargs="?", type=Path, metavar="FILE", help="the same as -c FILE")
        _add_settings(part)
        part.set_defaults(call=call)
    schema = parts.add_parser("schema", help="print the JSON Schema, for editors")
    schema.set_defaults(call=_config_schema)


def _config_check(arguments: argparse.Namespace) -> int:
    from streamdedup import settings

    settings.load(arguments.file or arguments.config, arguments.overrides)
    print("the configuration is valid")
    return 0


def _config_show(arguments: argparse.Namespace) -> int:
    from streamdedup import settings

    print(
        settings.show(settings.load(arguments.file or arguments.config, arguments.overrides)),
        end="",
    )
    return 0


def _config_schema(_arguments: argparse.Namespace) -> int:
    import json

    from streamdedup import settings

    print(json.dumps(settings.schema(), indent=2))
    return 0


def _add_demo(commands: "_Commands") -> None:
    demo = commands.add_parser("demo", help="the worker over real data on an embedded broker")
    demo.set_defaults(call=_demo)


def _demo(_arguments: argparse.Namespace) -> int:
    from streamdedup.demo import demo

    return demo()


def _add_pipe(commands: "_Commands") -> None:
    pipe = commands.add_parser(
        "pipe",
        help="standard input to standard output, first occurrences only",
        description="Copy the lines of standard input whose key was not seen before.",
    )
    pipe.add_argument("--kind", default="bloom", help="kind of filter (default: bloom)")
    pipe.add_argument(
        "--capacity",
        type=_count,
        default=10_000_000,
        metavar="N",
        help="distinct keys to make room for; takes 100_000, 5M (default: 10M)",
    )
    pipe.add_argument(
        "--error-rate",
        type=float,
        default=1e-6,
        metavar="P",
        help="share of new lines that may be dropped wrongly, at capacity (default: 1e-6)",
    )
    pipe.add_argument(
        "--key",
        default="line",
        metavar="line|json:FIELD",
        help="what makes two lines equal (default: the line)",
    )
    pipe.add_argument(
        "--on-full",
        choices=("stop", "warn"),
        default="stop",
        help="at capacity: stop with status 1, or go on with more errors (default: stop)",
    )
    pipe.set_defaults(call=_pipe)


def _count(text: str) -> int:
    from streamdedup.units import parse_count

    try:
        return parse_count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _silence_stdout() -> None:
    """Keep Python from writing again, and failing again, at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _pipe(arguments: argparse.Namespace) -> int:
    from streamdedup.filters import build
    from streamdedup.pipe import Summary, deduplicate

    config = {"capacity": arguments.capacity, "error_rate": arguments.error_rate}
    seen = build({"kind": arguments.kind, **config})
    summary = Summary()
    try:
        deduplicate(
            cast("BufferedReader", sys.stdin.buffer),
            sys.stdout.buffer,
            seen,
            key=arguments.key,
            on_full=arguments.on_full,
            summary=summary,
        )
    except BrokenPipeError:  # the reader has had enough
        _silence_stdout()
    except OSError as error:
        _silence_stdout()
        raise StreamdedupError(f"the output cannot be written: {error.strerror}") from None
    finally:
        with suppress(BrokenPipeError):
            print(summary.text(seen), file=sys.stderr)
    return 0
