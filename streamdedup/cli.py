"""The `streamdedup` command: parse, call, print. Imports stand inside the commands, so that --help is quick.

Exit status: 0 done, also where the reader of standard output has had enough; 1 failed; 2 the configuration or the
arguments do not fit; 130 and 143 (SIGINT, SIGTERM) for the second interrupt of `run`, the first of any other command.
"""

import argparse
import os
import re
import select
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from streamdedup import __version__
from streamdedup.errors import ConfigError, StreamdedupError, trace
from streamdedup.filters import KINDS


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        return _status(_parser().parse_args(argv))
    finally:
        _settle_stdout()


def _status(arguments: argparse.Namespace) -> int:
    try:
        status = int(arguments.call(arguments))
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except StreamdedupError as error:
        _say(f"streamdedup: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # of unknown origin: its message may quote a key
        if isinstance(error, BrokenPipeError) and _is_unread():
            return 0
        what = str(error) if isinstance(error, OSError) else "a fault of ours, please report it"
        _say(f"streamdedup: {what}; it came from (no data is quoted):\n{trace(error)}")
        return 1


def _settle_stdout() -> None:
    """Write out what is left; where that fails, keep Python from trying again, and complaining, at its exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _silence_stdout()


def _silence_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_unread() -> bool:
    """Whether standard output is a pipe or a socket from which nobody will read any more."""
    if sys.stdout is None:
        return False
    descriptor = sys.stdout.fileno()
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    poll = select.poll()
    # Linux tells of errors and hang-ups always, macOS of those that are asked for.
    poll.register(descriptor, select.POLLHUP)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def _say(text: str) -> None:
    """Write to standard error if anybody listens; where it is closed, `print` would take standard output."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(text, file=sys.stderr)


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
        description="Copy the lines of standard input whose key was not seen before. "
        "A line may have up to 64 MiB.",
    )
    pipe.add_argument(
        "--kind", choices=sorted(KINDS), default="bloom", help="kind of filter (default: bloom)"
    )
    pipe.add_argument(
        "--capacity",
        type=_as_configured("capacity"),
        default=10_000_000,
        metavar="N",
        help="distinct keys to make room for; takes 100_000, 5M (default: 10M)",
    )
    pipe.add_argument(
        "--error-rate",
        type=_as_configured("error_rate"),
        default=1e-6,
        metavar="P",
        help="share of new lines that may be dropped wrongly, at capacity (default: 1e-6)",
    )
    pipe.add_argument(
        "--key",
        action="append",
        metavar="line|json:FIELD",
        help="what makes two lines equal (default: the line); given several times, all the fields together",
    )
    pipe.add_argument(
        "--on-full",
        choices=("stop", "warn"),
        default="stop",
        help="at capacity: stop with status 1, or go on with more errors (default: stop)",
    )
    pipe.set_defaults(call=_pipe)


def _as_configured(name: str) -> Callable[[str], Any]:
    """Read an argument as the configuration reads `filter.<name>`, within the same bounds."""

    def read(text: str) -> Any:  # noqa: ANN401 - an option's own type
        from streamdedup import settings

        try:
            return settings.filter_option(name, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return read


def _pipe(arguments: argparse.Namespace) -> int:
    from streamdedup.filters import build
    from streamdedup.pipe import Summary, deduplicate, key_reader

    source = _binary(sys.stdin, "standard input is closed; give it lines: streamdedup pipe <FILE")
    sink = _binary(sys.stdout, "standard output is closed; give it a place: streamdedup pipe >FILE")
    key = key_reader(arguments.key or ["line"])
    config = {"capacity": arguments.capacity, "error_rate": arguments.error_rate}
    try:
        seen = build({"kind": arguments.kind, **config})
    except ConfigError as error:
        raise ConfigError(_as_arguments(str(error))) from None
    summary = Summary()
    try:
        with _terminable(), suppress(BrokenPipeError):  # its reader has had enough
            deduplicate(
                cast("BufferedReader", source),
                sink,
                seen,
                key=key,
                on_full=arguments.on_full,
                summary=summary,
                warn=lambda text: _say(f"streamdedup: warning: {text}"),
                is_unread=_is_unread,
            )
    finally:
        _silence_stdout()  # what passed is out; what an interrupt cut off would keep us until it is read
        _say(summary.text(seen))
    return 0


def _as_arguments(text: str) -> str:
    """The same message with the options of the `filter` section by the names that they have here."""
    return re.sub(r"\bfilter\.(\w+)", lambda option: "--" + option[1].replace("_", "-"), text)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM leaves this context as SIGINT does, unless it is ignored; after it, the process ends where it stands."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _binary(stream: TextIO | None, closed: str) -> BinaryIO:
    if stream is None:  # so Python tells of a descriptor that was closed before it began
        raise StreamdedupError(closed)
    return stream.buffer
