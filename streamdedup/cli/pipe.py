"""`streamdedup pipe`: its arguments, its inputs, and where it writes."""

import argparse
import os
import signal
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from typing_extensions import override

from streamdedup.cli.arguments import Commands, add_key, refusing
from streamdedup.cli.pipe_filter import add_filter, filter_of
from streamdedup.cli.streams import (
    compiling,
    empty_output,
    is_unread,
    put,
    refuse_output,
    say,
    stdin,
    sync_output,
    write,
    writing_to,
)
from streamdedup.errors import ConfigError, StreamdedupError

if TYPE_CHECKING:  # they bring numpy, which --help does without
    from streamdedup.commands.lines import Chunk
    from streamdedup.keys.options import Normalization
    from streamdedup.progress import Progress

WAKE_S = 0.25  # at most this long a system call blocks before Python handles a signal
_INSTEAD = "give it lines: streamdedup pipe <FILE"
# The endings of names that are surely no secret in the wrong place.
_ENDINGS = (".csv", ".dat", ".json", ".jsonl", ".list", ".log", ".ndjson", ".tsv", ".txt")
_UNPACKED_BY = {".bz2": "bzcat", ".gz": "zcat", ".xz": "xzcat", ".zst": "zstdcat"}
_OF_UNIQ = {
    "-c": "to count each line takes all of them: sort FILE | uniq -c; --count counts those that pass, and the others",
    "-d": "--repeated copies each further occurrence, as soon as it comes; one of each line: sort FILE | uniq -d",
    "-i": "--normalize lowercase ignores case",
    "-u": "a line that comes once is known at the end only: sort FILE | uniq -u; without this option, the first"
    " occurrence of each line passes",
}
"""Options of uniq, and what to do instead."""


def add_pipe(commands: Commands) -> None:
    """Add the command `pipe`."""
    pipe = commands.add_parser(
        "pipe",
        help="copy standard input to standard output, first occurrences only",
        description="Copy the lines of standard input, or of all FILEs, whose key has not come before. "
        "A line may have up to 64 MiB.",
    )
    pipe.add_argument(
        "file",
        nargs="*",
        default=[],  # without a default, argparse calls the argument required
        metavar="FILE|-",
        help="the input, several are read one after the other (default: -, which is standard input)",
    )
    _add_lines(pipe)
    add_filter(pipe)
    for option in _OF_UNIQ:
        pipe.add_argument(option, action=_OfUniq, nargs=0, help=argparse.SUPPRESS)
    pipe.set_defaults(call=_pipe)


class _OfUniq(argparse.Action):
    """Refuses an option of uniq, and says what to do instead."""

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        [option] = self.option_strings
        parser.error(f"{option} is an option of uniq: {_OF_UNIQ[option]}")


def _add_lines(pipe: argparse.ArgumentParser) -> None:
    """Add the options that say what a line is, and which lines are written, and where."""
    add_key(pipe)
    ends = pipe.add_mutually_exclusive_group()
    ends.add_argument(
        "-z", "--null", action="store_true", help="lines end with a NUL, not with a newline"
    )
    ends.add_argument(
        "--delimiter",
        type=refusing(_delimiter),
        metavar="CHAR",
        help="lines end with this ASCII character (or tab), not with a newline",
    )
    pipe.add_argument(
        "--repeated",
        action="store_true",
        help="copy the other lines: those whose key has come before",
    )
    pipe.add_argument(
        "--count",
        action="store_true",
        help="copy no lines, but print at the end how many pass, and how many are dropped",
    )
    pipe.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write to this file, which is overwritten if all options are right (default: standard output)",
    )
    pipe.add_argument(
        "--progress", action="store_true", help="report progress on standard error meanwhile"
    )


def _delimiter(text: str) -> bytes:
    end = b"\t" if text in ("tab", r"\t") else text.encode()
    if len(end) != 1:
        raise ValueError("must be one ASCII character, or tab; for NUL give --null")
    return end


def _pipe(arguments: argparse.Namespace) -> int:
    from streamdedup.commands.lines import (
        all_lines,
        line_reader,
        opened,
        refuse_unreadable,
        url_rules,
    )
    from streamdedup.commands.pipe import Summary, deduplicate
    from streamdedup.commands.saved_filter import SavedFilter, lines_of

    keys = arguments.key or ["line"]
    normalize: Normalization = arguments.normalize or "none"
    rules = url_rules(arguments.normalize, arguments.url_rule, arguments.url_ignore)
    end = b"\0" if arguments.null else arguments.delimiter or b"\n"
    read = line_reader(keys, normalize, rules, arguments.separator, end)
    inputs = _named(arguments.file or ["-"])
    for name, file in inputs.items():
        refuse_unreadable(file, name)
        if Path(file).suffix.lower() in _UNPACKED_BY:
            raise ConfigError(
                f"{name} is compressed, by its name, and pipe reads lines as they are; give them by"
                f" {_UNPACKED_BY[Path(file).suffix.lower()]} FILE | streamdedup pipe"
            )
    _check_filter_files(arguments, inputs.values())
    if arguments.output is None:
        write(b"")  # fails if standard output is closed
    lines = lines_of(keys, normalize, rules)
    filter_ = filter_of(arguments, lines)
    summary = Summary("record" if keys[0].startswith("csv:") else "line", arguments.repeated)
    is_saved, has_failed = arguments.save is None, False
    with writing_to(arguments.output):
        for file in arguments.file:
            refuse_output(file)
        # Before the output is emptied, which it may be.
        standard = [stdin(_INSTEAD)] if "-" in inputs.values() else []
        if arguments.output is not None:
            empty_output()
        sources = (opened(file, name, lambda: standard[0]) for name, file in inputs.items())
        progress = _progress(inputs.values()) if arguments.progress else None
        tell = progress.say if progress else lambda text: say(f"streamdedup: {text}")
        try:
            # A broken pipe: the reader of standard output has stopped.
            with (
                _terminable(),
                compiling(),
                suppress(BrokenPipeError),
                closing(all_lines(read, sources)) as chunks,
            ):
                is_whole = deduplicate(
                    _reported(chunks, progress) if progress else chunks,
                    (lambda _: None) if arguments.count else write,
                    filter_,
                    on_full=arguments.on_full,
                    summary=summary,
                    warn=lambda text: tell(f"warning: {text}"),
                    is_unread=is_unread,
                    is_loaded=arguments.load is not None,
                )
                if arguments.save is not None and is_whole:
                    sync_output()
                    SavedFilter(filter_, lines).save(arguments.save)
                    is_saved = True
        except StreamdedupError:
            has_failed = True
            raise
        finally:
            if progress:
                progress.end()
            if summary.lines or not has_failed:  # else the error is all that there is to say
                say(summary.text(filter_))
                if arguments.count:
                    put(f"passed {summary.passed}\ndropped {summary.lines - summary.passed}\n")
            if not is_saved:
                say(
                    f"streamdedup: warning: {arguments.save} is not written, because not all lines were copied: after"
                    " the same --load, the same lines pass again"
                )
    return 0


def _named(files: Sequence[str]) -> dict[str, str]:
    """Return the inputs, by what messages call them: by their places, and by names that are surely no secrets."""
    return {
        (f"FILE {at}" if len(files) > 1 else "FILE")
        + (f" ({file})" if _is_path(file) else ""): file
        for at, file in enumerate(files, 1)
    }


def _is_path(name: str) -> bool:
    """Return whether this is the path of a file, there or not, and surely no secret in its place."""
    path = Path(name)
    with suppress(OSError, ValueError):  # as of a name with a NUL
        is_there = path.exists() or (len(path.parts) > 1 and path.parent.is_dir())
        return is_there or path.suffix.lower() in _ENDINGS
    return False


def _progress(files: Collection[str]) -> "Progress":
    """Return what reports how far the inputs are read."""
    from streamdedup.progress import Progress

    sizes = list[int]()
    for file in files:
        with suppress(OSError):
            found = os.fstat(sys.stdin.fileno()) if file == "-" else Path(file).stat()
            if stat.S_ISREG(found.st_mode):
                sizes.append(found.st_size)
    made = Progress(sys.stderr, live=True)
    made.begin("reading", sum(sizes) if len(sizes) == len(files) else None)
    return made


def _reported(chunks: Iterable["Chunk"], progress: "Progress") -> Iterator["Chunk"]:
    for chunk in chunks:
        progress.advance(len(chunk.text), len(chunk))  # it is read, whatever becomes of it
        yield chunk


def _check_filter_files(arguments: argparse.Namespace, inputs: Iterable[str]) -> None:
    """Refuse a file for --save that cannot be one, before anything is read, and one that would lose what is in it.

    So --save may name no input and no output, and --load not the output.
    """
    output: str | int = _descriptor(sys.stdout) if arguments.output is None else arguments.output
    if arguments.save is not None:
        from streamdedup.snapshot.files import check_target

        check_target(arguments.save)
        files = [_descriptor(sys.stdin) if file == "-" else file for file in inputs]
        if any(_is_same(arguments.save, other) for other in (*files, output)):
            raise ConfigError("--save: the file is also an input or the output; name another one")
    if arguments.load is not None and _is_same(arguments.load, output):
        raise ConfigError("--load: the file is also the output; name another one")


def _descriptor(stream: TextIO | None) -> int:
    """Return the descriptor of a standard stream; -1, which is none, if it is closed or in memory."""
    with suppress(OSError, ValueError):
        return -1 if stream is None else stream.fileno()
    return -1


def _is_same(path: Path, other: str | int) -> bool:
    """Return whether `path` is the file that is open, or is at another path, even if there is none yet."""
    with suppress(OSError, ValueError):
        if isinstance(other, str) and path.resolve() == Path(other).resolve():
            return True
        return os.path.samestat(path.stat(), os.stat(other))  # noqa: PTH116 - or a descriptor
    return False


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
