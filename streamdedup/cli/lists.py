"""The arguments of `streamdedup lists build | inspect | check | add | remove`."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from streamdedup.cli.arguments import (
    Commands,
    Intermixed,
    add_settings,
    as_configured,
    refusing,
)
from streamdedup.cli.streams import binary, put, say
from streamdedup.errors import ConfigError
from streamdedup.filters import KINDS

if TYPE_CHECKING:
    from streamdedup.keys.hashing import Hash
    from streamdedup.lists.normalizing import Normalizing
    from streamdedup.settings import Settings

_OF_KEYS = ("normalize", "email_preset", "hash", "hash_key")


def add_lists(commands: Commands) -> None:
    """The command `lists`."""
    lists = commands.add_parser(
        "lists", help="build a list of keys to block or to allow, and ask it"
    )
    parts: Commands = lists.add_subparsers(required=True, metavar="PART", parser_class=Intermixed)
    _add_build(parts)
    _add_inspect(parts)
    _add_check(parts)
    _add_changes(parts)


def _add_build(parts: Commands) -> None:
    build = parts.add_parser(
        "build",
        help="from text, CSV or JSON lines to one file",
        description="Build a list from the entries of all inputs, a line each: text (blank lines and those that begin"
        " with # are passed over), CSV or JSON lines, compressed by gzip or zstd or not, told by the endings of their"
        " names. With --normalize email, @example.com stands for all addresses of that domain, .example.com for those"
        " of it and of all below it. The file is replaced whole, when all is in it, or not at all.",
    )
    build.add_argument("inputs", nargs="+", metavar="INPUT", help="a file, or - for standard input")
    build.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="where the list is put"
    )
    build.add_argument("--name", help="what it is called in logs and headers (default: as FILE)")
    _add_kind(build)
    _add_keys(build)
    _add_format(build)
    _add_bad(build)
    build.add_argument(
        "--exact",
        action="store_true",
        help="put an exact store of all entries beside the list, in FILE.exact: for blocklist.on_positive: verify",
    )
    build.add_argument(
        "--check",
        action="store_true",
        help="afterwards, read all inputs once more and see that every entry is found",
    )
    build.add_argument(
        "--progress",
        action="store_true",
        help="tell how far it is also where standard error is no terminal",
    )
    build.set_defaults(call=_build)


def _add_kind(build: argparse.ArgumentParser) -> None:
    build.add_argument(
        "--kind",
        choices=sorted(KINDS.keys() - {"window"}),
        default="fuse",
        help="kind of filter (default: fuse, the smallest)",
    )
    build.add_argument(
        "--error-rate",
        type=as_configured("error_rate"),
        default=1e-6,
        metavar="P",
        help="share of keys that are not on the list and match all the same (default: 1e-6)",
    )
    build.add_argument(
        "--capacity",
        type=as_configured("capacity"),
        metavar="N",
        help="entries to make room for, as in 100M (default: as many as the inputs have, which are read twice)",
    )


def _add_keys(build: argparse.ArgumentParser) -> None:
    build.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="take the four options that follow from the configuration of the worker that will ask the list; and"
        " --exact, unless --kind is exact, where its blocklist.on_positive is verify",
    )
    build.add_argument(
        "--normalize",
        choices=("none", "trim", "lowercase", "email"),
        help="what is done to each entry, as key.normalize of the worker (default: none)",
    )
    build.add_argument(
        "--email-preset",
        choices=("provider", "strict"),
        help="with --normalize email: by the rules of the mailbox provider, or capitals and IDN only"
        " (default: provider)",
    )
    build.add_argument(
        "--hash",
        choices=("murmur3", "siphash"),
        help="as filter.hash of the worker; siphash where outsiders choose the keys (default: murmur3)",
    )
    _add_hash_key(build)


def _add_hash_key(part: argparse.ArgumentParser) -> None:
    part.add_argument(
        "--hash-key-file",
        type=refusing(_hash_key),
        default=b"",
        dest="hash_key",
        metavar="FILE",
        help="the secret of siphash, 32 hexadecimal digits, as filter.hash_key_file",
    )


def _add_format(build: argparse.ArgumentParser) -> None:
    build.add_argument(
        "--format", choices=("text", "csv", "jsonl"), help="of all inputs (default: by their names)"
    )
    build.add_argument(
        "--column",
        metavar="NAME|NUMBER",
        help="of CSV: the column, by its name in the first line, or by its number from 1 where there is no such line",
    )
    build.add_argument(
        "--field", metavar="PATH", help="of JSON lines: the field, as user.email or /user/email"
    )


def _add_bad(build: argparse.ArgumentParser) -> None:
    build.add_argument(
        "--bad-max",
        type=refusing(_whole),
        default=1000,
        metavar="N",
        help="lines that may be no entries; one more, and nothing is built (default: 1000)",
    )
    build.add_argument(
        "--rejects",
        type=Path,
        metavar="FILE",
        help="where these lines are written, if there are any (default: OUTPUT.rejects)",
    )
    build.add_argument(
        "--allow-empty", action="store_true", help="publish a list without an entry, too"
    )


def _hash_key(text: str) -> bytes:
    from streamdedup import settings

    path: Path = settings.filter_option("hash_key_file", text)  # which has looked into it
    return bytes.fromhex(path.read_text().strip())


def _whole(text: str) -> int:
    from streamdedup.units import parse_count

    return parse_count(text)


def _build(arguments: argparse.Namespace) -> int:
    from streamdedup.kernel import compiling
    from streamdedup.lists.building import Recipe, build
    from streamdedup.lists.inputs import STDIN, inputs_of
    from streamdedup.lists.progress import Progress
    from streamdedup.lists.proving import prove
    from streamdedup.lists.rejects import Rejects
    from streamdedup.lists.store_facts import place_of

    output: Path = arguments.output
    if arguments.check and STDIN in arguments.inputs:
        raise ConfigError(
            "--check reads the inputs once more, which standard input cannot be; name files"
        )
    given = arguments.format, arguments.column, arguments.field
    inputs = inputs_of(arguments.inputs, _stdin, *given)
    normalizing, hash_ = _of_keys(arguments)
    exact = arguments.exact or _is_verified(arguments)
    recipe = Recipe(
        name=arguments.name if arguments.name is not None else output.stem,
        kind=arguments.kind,
        error_rate=arguments.error_rate,
        normalizing=normalizing,
        hash=hash_,
        capacity=arguments.capacity,
        allow_empty=arguments.allow_empty,
        exact=exact,
    )
    rejects = Rejects(
        arguments.rejects or output.with_name(f"{output.name}.rejects"), arguments.bad_max
    )
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    progress = Progress(sys.stderr, live=arguments.progress or is_seen)
    with compiling(lambda: progress.say("compiling, which a first run does for some seconds")):
        made = build(recipe, inputs, output, rejects, progress)
        if rejects.count:
            progress.say(rejects.told())
        if arguments.check:
            found = prove(output, recipe, inputs, progress)
            also = f" and in {place_of(output)}" if exact else ""
            progress.say(f"all {found:,} entries are found in {output}{also}")
    progress.say(f"{output} is {made.told()}")
    if exact:
        progress.say(f"{place_of(output) / made.version} is its exact store")
    return 0


def _of_keys(arguments: argparse.Namespace) -> "tuple[Normalizing, Hash]":
    """How entries become digests, as the options say, or as a worker's configuration has it."""
    from streamdedup.keys.hashing import Hash
    from streamdedup.keys.options import EmailRules
    from streamdedup.lists.normalizing import Normalizing

    if arguments.config is None:
        if arguments.email_preset and arguments.normalize != "email":
            raise ConfigError("--email-preset is for --normalize email; give that, or delete it")
        rules = EmailRules.of(arguments.email_preset or "provider")
        return (
            Normalizing.of(arguments.normalize or "none", rules),
            Hash(arguments.hash or "murmur3", arguments.hash_key),
        )
    for name in _OF_KEYS:
        if getattr(arguments, name):
            option = "--hash-key-file" if name == "hash_key" else "--" + name.replace("_", "-")
            raise ConfigError(
                f"{option} is what -c takes from the configuration; delete one of the two"
            )
    tree = _settings_of(arguments.config, [])
    return (
        Normalizing.of(tree.key.normalize, tree.key.email_rules),
        Hash(tree.filter.hash, tree.filter.hash_key_bytes),
    )


def _is_verified(arguments: argparse.Namespace) -> bool:
    """Whether the worker of `-c` refuses a block list without an exact store."""
    if arguments.config is None or arguments.kind == "exact":
        return False
    return _settings_of(arguments.config, []).blocklist.on_positive == "verify"


def _settings_of(config: Path | None, overrides: Sequence[str]) -> "Settings":
    """The configuration; whether its lists are built yet does not matter."""
    from streamdedup import settings

    there = [f"{which}.file={__file__}" for which in ("allowlist", "blocklist")]
    return settings.load(config, [*overrides, *there])


def _add_inspect(parts: Commands) -> None:
    text = "print what the header of a list tells, and whether its checksums hold"
    inspect = parts.add_parser("inspect", help=text, description=f"{text[0].upper()}{text[1:]}.")
    inspect.add_argument("file", type=Path, metavar="FILE")
    inspect.set_defaults(call=_inspect)


def _inspect(arguments: argparse.Namespace) -> int:
    from streamdedup.lists.inspecting import inspected

    text, is_whole = inspected(arguments.file)
    put(text)
    return 0 if is_whole else 1


def _add_check(parts: Commands) -> None:
    check = parts.add_parser(
        "check",
        help="tell of keys whether a list blocks them, and by which rule",
        description="Print a line for each KEY: blocked, pass or malformed; address, domain, allowlist or -, or why it"
        " is malformed; and the KEY. By tabs. Each is normalized as the list was built. With --exact, what the list"
        " matches wrongly is told as: pass, false-positive. Of single changes (`lists add`) the file knows nothing. The"
        " exit status tells of errors only, not of what was found.",
    )
    check.add_argument("file", type=Path, metavar="FILE", help="the list")
    check.add_argument(
        "keys",
        nargs="*",
        default=[],  # without one, argparse says that there must be some
        metavar="KEY",
        help="- or none: the lines of standard input",
    )
    check.add_argument(
        "--allow", type=Path, metavar="FILE", help="a list that exempts from the other"
    )
    check.add_argument(
        "--exact",
        action="store_true",
        help="ask the exact store in FILE.exact, too, as with blocklist.on_positive: verify",
    )
    check.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="take the secret of siphash from the configuration of the worker",
    )
    _add_hash_key(check)
    check.set_defaults(call=_check)


def _check(arguments: argparse.Namespace) -> int:
    from streamdedup.kernel import compiling
    from streamdedup.lists.exact_store import ExactStore
    from streamdedup.lists.store_facts import place_of
    from streamdedup.lists.verdicts import Verdicts, loaded

    hash_key = arguments.hash_key
    if arguments.config is not None:
        if hash_key:
            raise ConfigError("--hash-key-file is what -c takes from the configuration; delete one")
        hash_key = _settings_of(arguments.config, []).filter.hash_key_bytes
    block = loaded(arguments.file, hash_key)
    allow = loaded(arguments.allow, hash_key) if arguments.allow else None
    store = ExactStore.open(place_of(arguments.file), block) if arguments.exact else None
    verdicts = Verdicts(block, allow, store)
    out = binary(sys.stdout, "standard output is closed; give it a place")
    with compiling(lambda: say("streamdedup: compiling, which a first run does for some seconds")):
        if arguments.keys in ([], ["-"]):
            for told in verdicts.of_lines(iter(_read1(), b"")):
                out.write(told)
                out.flush()
        else:
            keys = [key.encode("utf-8", "surrogateescape") for key in arguments.keys]
            out.write(verdicts.of_keys(keys))
    return 0


def _stdin() -> BinaryIO:
    return binary(sys.stdin, "standard input is closed; give it lines: streamdedup lists ... <FILE")


def _read1() -> Callable[[], Any]:
    from streamdedup.lists.inputs import CHUNK_BYTES

    source: Any = _stdin()
    return lambda: source.read1(CHUNK_BYTES)


def _add_changes(parts: Commands) -> None:
    for op, text in (
        ("add", "have entries blocked from now on, on every worker, whatever the list says"),
        ("remove", "have entries pass from now on, whatever the list says"),
        ("undo", "take changes of entries back: the list's file says again what becomes of them"),
    ):
        part = parts.add_parser(
            op,
            help=text,
            description=f"Write to blocklist.control_topic: {text}. Workers follow within two seconds.",
        )
        add_settings(part)
        part.add_argument(
            "entries",
            nargs="+",
            metavar="ENTRY",
            help="an address, @example.com, .example.com, or - for one a line of standard input",
        )
        part.add_argument(
            "--reason", default="", metavar="TEXT", help="for whoever reads the topic; not of undo"
        )
        part.set_defaults(call=_change, op=op)


def _change(arguments: argparse.Namespace) -> int:
    import asyncio

    from streamdedup import logs
    from streamdedup.relisting import write
    from streamdedup.units import counted

    tree = _settings_of(arguments.config, arguments.overrides)
    logs.set_up()
    entries = [entry for given in arguments.entries for entry in _entries(given)]
    written = asyncio.run(write(tree, arguments.op, entries, arguments.reason))
    say(f"streamdedup: {counted(written, 'change')} written to {tree.blocklist.control_topic}")
    return 0


def _entries(given: str) -> list[bytes]:
    """One, or those of standard input, a line each."""
    if given != "-":
        return [os.fsencode(given)]
    stdin = binary(sys.stdin, "standard input is closed; give the entries as arguments")
    return [line for raw in stdin if (line := raw.strip()) and not line.startswith(b"#")]
