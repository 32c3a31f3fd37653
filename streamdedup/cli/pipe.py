"""The arguments of `streamdedup pipe`, and the filter that they describe."""

import argparse
import re
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from streamdedup.cli.arguments import Commands, add_key, as_configured
from streamdedup.cli.streams import compiling, is_unread, refuse_output, say, stdin, write
from streamdedup.errors import ConfigError
from streamdedup.filters import GROWTH, KINDS, STATIC

WAKE_S = 0.25  # at most this long a system call blocks before Python handles a signal
_INSTEAD = "give it lines: streamdedup pipe <FILE"


def add_pipe(commands: Commands) -> None:
    """Add the command `pipe`."""
    pipe = commands.add_parser(
        "pipe",
        help="copy standard input to standard output, first occurrences only",
        description="Copy the lines of standard input, or of FILE, whose key has not come before. "
        "A line may have up to 64 MiB.",
    )
    pipe.add_argument(
        "file",
        nargs="*",
        default=[],  # without a default, argparse calls the argument required
        metavar="FILE|-",
        help="the input (default: -, which is standard input)",
    )
    pipe.add_argument(
        "--kind",
        type=_kind_for_streams,
        choices=sorted(KINDS.keys() - STATIC),
        default="cuckoo",
        help="the kind of filter (default: cuckoo)",
    )
    pipe.add_argument(
        "--capacity",
        type=as_configured("capacity"),
        default=10_000_000,
        metavar="N",
        help="the number of distinct keys to make room for, for example 100_000 or 5M (default: 10M)",
    )
    pipe.add_argument(
        "--error-rate",
        type=as_configured("error_rate"),
        default=1e-6,
        metavar="P",
        help="the share of new lines that may be dropped wrongly, at capacity (default: 1e-6)",
    )
    add_key(pipe)
    pipe.add_argument(
        "--hash",
        choices=("murmur3", "siphash"),
        default="siphash",
        help="siphash, under a new random secret; or murmur3, a little faster, if no outsider chooses the lines"
        " (default: siphash)",
    )
    pipe.add_argument(
        "--on-full",
        choices=("stop", "grow", "warn"),
        help="at capacity: grow, up to --max-size; stop with exit status 1; or warn and go on with more errors"
        " (default: grow, or stop for kinds that cannot grow)",
    )
    pipe.add_argument(
        "--max-size",
        type=as_configured("max_size"),
        metavar="BYTES",
        help=f"the most memory that the filter grows to, for example 500MB or 4GiB (default: {GROWTH} times the"
        " first)",
    )
    pipe.set_defaults(call=_pipe)


def _kind_for_streams(name: str) -> str:
    if name in STATIC:
        raise argparse.ArgumentTypeError(
            f"{name!r} is static: it is built once, from all keys, and cannot take keys from a stream; choose another"
            " kind"
        )
    return name


def _pipe(arguments: argparse.Namespace) -> int:
    from streamdedup.commands.lines import line_reader, opened, url_rules
    from streamdedup.commands.pipe import Summary, deduplicate
    from streamdedup.filters import build

    if len(arguments.file) > 1:
        raise ConfigError("pipe takes one FILE; to join several: cat FILE FILE | streamdedup pipe")
    (file,) = arguments.file or ["-"]
    write(b"")  # fails if standard output is closed
    if file != "-":
        refuse_output(file)
    read = line_reader(
        arguments.key or ["line"],
        arguments.normalize or "none",
        url_rules(arguments.normalize, arguments.url_rule, arguments.url_ignore),
        arguments.separator,
    )
    arguments.on_full = _on_full(arguments)
    try:
        filter_ = build(_filter_of(arguments))
    except ConfigError as error:
        raise ConfigError(_as_arguments(str(error))) from None
    with opened(file, "FILE", lambda: stdin(_INSTEAD)) as source:
        summary = Summary("record" if (arguments.key or [""])[0].startswith("csv:") else "line")
        try:
            # A broken pipe: the reader of standard output has stopped.
            with _terminable(), compiling(), suppress(BrokenPipeError):
                deduplicate(
                    source,
                    write,
                    filter_,
                    read=read,
                    on_full=arguments.on_full,
                    summary=summary,
                    warn=lambda text: say(f"streamdedup: warning: {text}"),
                    is_unread=is_unread,
                )
        finally:
            say(summary.text(filter_))
    return 0


def _on_full(arguments: argparse.Namespace) -> str:
    """Return what happens at capacity: what is asked for, or else `grow` if the kind can grow."""
    from streamdedup.filters.options import can_grow

    grows = can_grow(arguments.kind, arguments.error_rate)
    on_full = arguments.on_full or ("grow" if grows else "stop")
    if arguments.kind == "window" and (on_full == "grow" or arguments.max_size is not None):
        option = "--on-full grow" if on_full == "grow" else "--max-size"
        raise ConfigError(
            f"{option} is not for --kind window, which counts lines here and is never full; leave it out"
        )
    if arguments.max_size is not None and on_full != "grow":
        instead = "give --on-full grow" if grows else "choose a --kind that can grow"
        raise ConfigError(
            f"--max-size is the size to which a filter may grow; {instead}, or leave it out"
        )
    return str(on_full)


def _filter_of(arguments: argparse.Namespace) -> dict[str, Any]:
    config = {name: getattr(arguments, name) for name in ("kind", "capacity", "error_rate")}
    if arguments.hash == "siphash":  # the filter ends with the command, so its secret is not kept
        config |= {"hash": arguments.hash, "hash_key": secrets.token_bytes(16)}
    if arguments.on_full == "grow":
        config |= {"on_full": "grow"}
    if arguments.max_size is not None:
        config |= {"max_size": arguments.max_size}
    return config


def _as_arguments(text: str) -> str:
    """Return the same message with the options of the `filter` section under their names on this command line."""
    return re.sub(r"\bfilter\.(\w+)", lambda option: "--" + option[1].replace("_", "-"), text)


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM leave this context as SIGINT does, unless it is ignored. Later SIGTERMs end the process at once."""
    terminates = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if terminates:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with _woken():
            yield
    finally:
        if terminates:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _woken() -> Iterator[None]:
    """Interrupt reads regularly, so that no signal waits for the next line.

    Otherwise a signal that comes just before a read begins would be handled only after it. If the caller has an alarm
    of its own, that alarm stays.
    """
    if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, WAKE_S, WAKE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
