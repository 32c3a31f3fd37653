"""The arguments of `streamdedup lists build`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streamdedup.cli.arguments import (
    Commands,
    add_error_rate,
    add_separator,
    add_url_rule,
    as_configured,
    refusing,
)
from streamdedup.cli.list_options import add_config, add_hash_key, configured, stdin
from streamdedup.errors import ConfigError
from streamdedup.filters.kinds import LISTABLE

if TYPE_CHECKING:
    from streamdedup.keys.hashing import Hash
    from streamdedup.lists.normalization import Normalizing
    from streamdedup.settings import Settings

_OF_KEYS = ("normalize", "email_preset", "url_rule", "url_ignore", "hash", "hash_key")


def add_build(parts: Commands) -> None:
    """Add the part `build`."""
    build = parts.add_parser(
        "build",
        help="build one file from text, CSV or JSON lines",
        description="Build a list from the entries of all inputs, one a line: text (blank lines and lines that begin"
        " with # are skipped), CSV or JSON lines, plain or compressed by gzip or zstd. The endings of the names give"
        " the format. With --normalize email, @example.com stands for all addresses of that domain, and .example.com"
        " for those of that domain and all its subdomains; with --normalize url, for all URLs of such hosts. The file"
        " is replaced as a whole when the list is complete, or not at all.",
    )
    build.add_argument(
        "inputs", nargs="+", metavar="INPUT", help="a file, a pipe, or - for standard input"
    )
    build.add_argument(
        "-o",
        "--output",
        type=refusing(_file),
        required=True,
        metavar="FILE",
        help="the file of the list",
    )
    build.add_argument("--name", help="the name in logs and headers (default: as FILE)")
    _add_kind(build)
    _add_keys(build)
    _add_format(build)
    _add_bad(build)
    build.add_argument(
        "--exact",
        action="store_true",
        help="also build an exact store of all entries, in FILE.exact, for blocklist.on_positive: verify",
    )
    build.add_argument(
        "--check",
        action="store_true",
        help="afterwards, read all inputs once more and check that every entry is found",
    )
    build.add_argument(
        "--progress",
        action="store_true",
        help="report progress even if standard error is not a terminal",
    )
    build.set_defaults(call=_build)


def _add_kind(build: argparse.ArgumentParser) -> None:
    build.add_argument(
        "--kind",
        choices=LISTABLE,
        default="fuse",
        help="the kind of filter (default: fuse, the smallest)",
    )
    add_error_rate(build, "keys not on the list that match by mistake", 1e-6)
    build.add_argument(
        "--capacity",
        type=as_configured("capacity"),
        metavar="N",
        help="the greatest number of entries, for example 100M (default: the inputs are read twice and counted)",
    )


def _add_keys(build: argparse.ArgumentParser) -> None:
    add_config(
        build,
        "take the next six options from the configuration of the worker that will use the list; and --exact, if its"
        " blocklist.on_positive is verify and --kind is not exact",
    )
    build.add_argument(
        "--normalize",
        choices=("none", "trim", "lowercase", "email", "url"),
        help="how each entry is normalized; the same as key.normalize of the worker (default: none)",
    )
    build.add_argument(
        "--email-preset",
        choices=("provider", "strict"),
        help="with --normalize email: apply the rules of the mailbox provider, or only those for capitals and IDN"
        " (default: provider)",
    )
    add_url_rule(build)
    build.add_argument(
        "--hash",
        choices=("murmur3", "siphash"),
        help="siphash, with --hash-key-file, for a worker with filter.hash_key: if outsiders choose the keys; murmur3,"
        " the default, for every other worker",
    )
    add_hash_key(build)


def _add_format(build: argparse.ArgumentParser) -> None:
    build.add_argument(
        "--entries",
        choices=("addresses", "mailboxes", "domains", "hosts"),
        default="addresses",
        help="with --normalize email or url, what an entry is: an address or a URL, or a domain that is written"
        " @example.com or .example.com (default); mailboxes: also Anna <a@example.com> and mailto:a@example.com;"
        " domains: example.com, for @example.com; hosts: 0.0.0.0 example.com of hosts files, for @example.com, and"
        " ||example.com^ of filter lists, for .example.com",
    )
    build.add_argument(
        "--format",
        choices=("text", "csv", "jsonl"),
        help="the format of all inputs (default: by their names)",
    )
    build.add_argument(
        "--column",
        metavar="NAME|NUMBER",
        help="for CSV: the column, by its name in the first line, or by its number from 1 if there is no such line",
    )
    add_separator(build, "for CSV")
    build.add_argument(
        "--field",
        metavar="PATH",
        help="for JSON lines: the field, such as user.email or /user/email",
    )


def _add_bad(build: argparse.ArgumentParser) -> None:
    build.add_argument(
        "--bad-max",
        type=refusing(_whole),
        metavar="N",
        help="how many bad lines are accepted; with one more, nothing is built (default: 1 %% of the lines)",
    )
    build.add_argument(
        "--rejects",
        type=refusing(_file),
        metavar="FILE",
        help="the file for the bad lines, if there are any (default: OUTPUT.rejects)",
    )
    build.add_argument("--allow-empty", action="store_true", help="accept a list without entries")


def _file(text: str) -> Path:
    if text == "-":
        raise ValueError("it is no file, and what is written here takes a file; name one")
    return Path(text)


def _whole(text: str) -> int:
    from streamdedup.units import parse_count

    return parse_count(text)


def _build(arguments: argparse.Namespace) -> int:
    from streamdedup.kernel import COMPILING, compiling
    from streamdedup.lists.build.builder import BuildRequest, build
    from streamdedup.lists.build.inputs import inputs_of
    from streamdedup.lists.build.proof import prove
    from streamdedup.lists.build.rejects import Rejects
    from streamdedup.lists.exact_store import place_of
    from streamdedup.progress import Progress

    output: Path = arguments.output
    given = arguments.format, arguments.column, arguments.field
    inputs = inputs_of(arguments.inputs, stdin, *given, separator=arguments.separator)
    if arguments.check and any(given.is_read_once for given in inputs):
        raise ConfigError(
            "--check reads the inputs twice, and standard input or a pipe can be read only once; name files"
        )
    tree = configured(arguments, _OF_KEYS)
    normalizing, hash_ = _of_keys(arguments, tree)
    exact = arguments.exact or _is_verified(tree, arguments.kind)
    recipe = BuildRequest(
        name=arguments.name if arguments.name is not None else output.stem,
        kind=arguments.kind,
        error_rate=arguments.error_rate,
        normalizing=normalizing,
        hash=hash_,
        capacity=arguments.capacity,
        allow_empty=arguments.allow_empty,
        exact=exact,
        entries=arguments.entries,
    )
    rejects = Rejects(
        arguments.rejects or output.with_name(f"{output.name}.rejects"), arguments.bad_max
    )
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    progress = Progress(sys.stderr, live=arguments.progress or is_seen)
    with compiling(lambda: progress.say(COMPILING)):
        made = build(recipe, inputs, output, rejects, progress)
        if said := rejects.summary():
            progress.say(said)
        if said := rejects.swallowed():
            progress.say(f"warning: {said}")
        if arguments.check:
            found = prove(output, recipe, inputs, rejects, progress)
            also = f" and in {place_of(output)}" if exact else ""
            progress.say(f"all {found:,} entries are found in {output}{also}")
    progress.say(f"{output} is {made.summary()}")
    if exact:
        progress.say(f"{place_of(output) / made.version} is its exact store")
    return 0


def _of_keys(arguments: argparse.Namespace, tree: "Settings | None") -> "tuple[Normalizing, Hash]":
    """Return how entries become digests, by a worker's configuration if there is one, otherwise by the options."""
    from streamdedup.commands.lines import url_rules
    from streamdedup.keys.hashing import Hash
    from streamdedup.keys.options import EmailRules, Normalization
    from streamdedup.lists.normalization import Normalizing

    if tree is not None:
        return (
            Normalizing(tree.key.normalize, tree.key.rules),
            Hash.under(tree.filter.hash_key_bytes),
        )
    if arguments.email_preset and arguments.normalize != "email":
        raise ConfigError(
            "--email-preset is for --normalize email; give --normalize email, or delete --email-preset"
        )
    name: Normalization = arguments.normalize or "none"
    rules = (
        EmailRules.of(arguments.email_preset or "provider")
        if name == "email"
        else url_rules(arguments.normalize, arguments.url_rule, arguments.url_ignore)
    )
    return (
        Normalizing(name, rules),
        Hash(arguments.hash or "murmur3", arguments.hash_key),
    )


def _is_verified(tree: "Settings | None", kind: str) -> bool:
    """Return whether the worker with this configuration refuses a blocklist of that kind without an exact store."""
    from streamdedup.lists.exact_store import EXACT_KIND

    return tree is not None and tree.blocklist.on_positive == "verify" and kind != EXACT_KIND
