"""The command `streamdedup lists`: its parts, and the arguments of those that look up or change a list."""

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamdedup.cli.arguments import Commands, add_overrides, refusing
from streamdedup.cli.asked_worker import add_worker, check_worker, worker_server
from streamdedup.cli.list_build import add_build
from streamdedup.cli.list_options import add_config, add_hash_key, configured, settings_of, stdin
from streamdedup.cli.streams import compiling, put, say, write
from streamdedup.errors import ConfigError

if TYPE_CHECKING:
    from streamdedup.lists.check import Verdicts
    from streamdedup.settings import Settings

_FROM_INPUT = "- for the lines of standard input, which are not in the machine's list of processes"


def add_lists(commands: Commands) -> None:
    """Add the command `lists`."""
    lists = commands.add_parser(
        "lists", help="build, inspect, look up and change a list of keys to block or to allow"
    )
    parts: Commands = lists.add_subparsers(required=True, metavar="PART")
    add_build(parts)
    _add_inspect(parts)
    _add_check(parts)
    _add_key(parts)
    _add_changes(parts)
    _add_in_force(parts)


def _add_inspect(parts: Commands) -> None:
    text = "print the header of a list, and whether its checksums hold"
    inspect = parts.add_parser("inspect", help=text, description=f"{text[0].upper()}{text[1:]}.")
    inspect.add_argument("file", type=Path, metavar="FILE")
    inspect.set_defaults(call=_inspect)


def _inspect(arguments: argparse.Namespace) -> int:
    from streamdedup.lists.inspect import inspected

    text, is_whole = inspected(arguments.file)
    put(text)
    return 0 if is_whole else 1


def _add_check(parts: Commands) -> None:
    check = parts.add_parser(
        "check",
        help="print whether a list blocks keys, and by which rule",
        description="Print a line for each KEY, with three fields separated by tabs: blocked, pass or malformed;"
        " address, domain, allowlist or -, or why the KEY is malformed; and the KEY. Each KEY is normalized as the list"
        " was built. With --exact, false positives of the list are printed as: pass, false-positive. The file does not"
        " contain single changes (`lists add`). With --live -c CONFIG, and without FILE, the lists in force answer, and"
        " a field before the KEY has what decides: file, change or -; a KEY that passes because a change removed it is"
        " printed as: pass, removed, change. The exit status reports errors only, not what was found.",
    )
    check.add_argument("file", nargs="?", metavar="FILE", help="the list; not with --live")
    check.add_argument(
        "keys",
        nargs="*",
        default=[],  # without a default, argparse calls the argument required
        metavar="KEY",
        help="- or no KEY: the lines of standard input",
    )
    check.add_argument(
        "--allow", type=Path, metavar="FILE", help="an allowlist, which exempts keys from the list"
    )
    check.add_argument(
        "--exact",
        action="store_true",
        help="also ask the exact store in FILE.exact, as with blocklist.on_positive: verify",
    )
    add_config(check, "take the secret of siphash from the configuration of the worker")
    check.add_argument(
        "--live",
        action="store_true",
        help="answer by what is in force: the lists that the configuration (-c) names, as their files are now, and the"
        " changes of blocklist.control_topic",
    )
    add_hash_key(check)
    add_worker(check, "answer as with --live, by the lists in force in a worker that runs")
    check.set_defaults(call=_check)


def _check(arguments: argparse.Namespace) -> int:
    check_worker(
        arguments,
        {
            "-c": "config",
            "--live": "live",
            "--allow": "allow",
            "--exact": "exact",
            "--hash-key-file": "hash_key",
        },
    )
    if arguments.worker is not None:
        _print_worker_verdicts(arguments)
    elif arguments.live:
        configured(arguments, ["hash_key", "allow", "exact"])
        tree = _live_settings(arguments)
        given = [] if arguments.file is None else [arguments.file]
        if given and Path(arguments.file) == tree.blocklist.file:
            raise ConfigError("--live takes FILE from the configuration; leave it out")
        _print_verdicts(_live_verdicts(tree), [*given, *arguments.keys])
    elif arguments.file is None:
        raise ConfigError(
            "FILE is missing; name the list, or ask what is in force by --live -c CONFIG"
        )
    else:
        _print_verdicts(_file_verdicts(arguments), arguments.keys)
        say(
            "streamdedup: by the file alone; the single changes are asked with --live -c CONFIG, instead of FILE"
        )
    return 0


def _print_worker_verdicts(arguments: argparse.Namespace) -> None:
    from streamdedup.commands.asked_worker import checked

    given = [] if arguments.file is None else [arguments.file, *arguments.keys]
    keys = _lines() if given in ([], ["-"]) else map(os.fsencode, given)
    for lines in checked(worker_server(arguments), keys):
        write(lines)


def _lines() -> Iterator[bytes]:
    """Yield the lines of standard input, empty ones included."""
    from streamdedup.lists.build.blocks import blocks

    for block in blocks(iter(_read1(), b"")):
        yield from (line or b"" for line in block.lines)


def _live_settings(arguments: argparse.Namespace) -> "Settings":
    from streamdedup import logs, settings

    tree = settings.load(arguments.config, [])
    logs.set_up()
    return tree


def _live_verdicts(tree: "Settings") -> "Verdicts":
    from streamdedup.commands.lists import ask

    with compiling():
        return ask.live_verdicts(tree)


def _file_verdicts(arguments: argparse.Namespace) -> "Verdicts":
    from streamdedup.lists.check import Verdicts, loaded
    from streamdedup.lists.exact_store import ExactStore, place_of
    from streamdedup.lists.key_list import load_for_worker

    tree = configured(arguments, ["hash_key"])
    hash_key = tree.filter.hash_key_bytes if tree else arguments.hash_key
    load, file = load_for_worker if tree else loaded, Path(arguments.file)
    block = load(file, hash_key)
    allow = load(arguments.allow, hash_key) if arguments.allow else None
    store = ExactStore.open(place_of(file), block) if arguments.exact else None
    return Verdicts.of_files(block, allow, store)


def _print_verdicts(verdicts: "Verdicts", given: Sequence[str]) -> None:
    with compiling():
        if given in ([], ["-"]):
            for verdict in verdicts.of_lines(iter(_read1(), b"")):
                write(verdict)
        else:
            write(verdicts.of_keys([os.fsencode(key) for key in given]))


def _read1() -> Callable[[], Any]:
    from streamdedup.lists.build.inputs import CHUNK_BYTES

    source: Any = stdin()
    return lambda: source.read1(CHUNK_BYTES)


def _add_changes(parts: Commands) -> None:
    for op, text in (
        ("add", "block entries from now on, on every worker, whether or not they are on the list"),
        ("remove", "let entries pass from now on, whether or not they are on the list"),
        ("undo", "take back changes of entries: the list's file decides about them again"),
    ):
        part = parts.add_parser(
            op,
            help=text,
            description=f"Write to blocklist.control_topic: {text}. Workers follow within two seconds.",
        )
        add_overrides(part)
        part.add_argument(
            "entries",
            nargs="+",
            metavar="ENTRY",
            help="an address, @example.com, .example.com, or - for the lines of standard input",
        )
        part.add_argument(
            "--reason",
            default="",
            metavar="TEXT",
            help="why, for people: `lists changes` and blocked events have it; not with undo",
        )
        part.add_argument(
            "--actor",
            default="",
            metavar="NAME",
            help="who, for people: `lists changes` has it; not with undo",
        )
        part.set_defaults(call=_change, op=op)


def _change(arguments: argparse.Namespace) -> int:
    import asyncio

    from streamdedup import logs
    from streamdedup.commands.lists.write import write
    from streamdedup.units import counted

    tree = settings_of(arguments.config, arguments.overrides)
    logs.set_up()
    entries = [entry for given in arguments.entries for entry in _entries(given)]
    written = asyncio.run(write(tree, arguments.op, entries, arguments.reason, arguments.actor))
    say(f"streamdedup: {counted(written, 'change')} written to {tree.blocklist.control_topic}")
    return 0


def _add_key(parts: Commands) -> None:
    part = parts.add_parser(
        "key",
        help="print the normal form of keys, and which entries of the list match them",
        description="Print, for each KEY, its normal form, and then each entry by which a list could hold it: address"
        " or domain; the entry; and what has it: file, that of blocklist.file; change, one that added it; removed, if a"
        " change has removed it; or -. The fields are separated by tabs. Without --live, changes are not asked.",
    )
    add_config(part, "the configuration of the worker (default: $STREAMDEDUP_CONFIG)")
    part.add_argument(
        "keys",
        nargs="+",
        metavar="KEY",
        help=f"a key, @example.com, .example.com, or {_FROM_INPUT}",
    )
    part.add_argument(
        "--live", action="store_true", help="also ask the changes of blocklist.control_topic"
    )
    part.set_defaults(call=_key)


def _key(arguments: argparse.Namespace) -> int:
    from streamdedup.commands.lists import ask

    tree = _live_settings(arguments)
    texts = [text for given in arguments.keys for text in _entries(given)]
    with compiling():
        for line in ask.key_lines(tree, texts, live=arguments.live):
            write(f"{line}\n")
    if not arguments.live:
        say("streamdedup: by the file alone; the single changes are asked with --live")
    return 0


def _add_in_force(parts: Commands) -> None:
    part = parts.add_parser(
        "changes",
        help="print the single changes that are in force: who made them, when and why",
        description="Print a line for each change of blocklist.control_topic that is in force, the newest first, with"
        " fields separated by tabs: partition/offset of its message; add or remove; address or domain; actor; time;"
        " reason; and the entry, if an ENTRY is given or with --show-entries. Without ENTRY, all changes are printed.",
    )
    add_overrides(part)
    part.add_argument(
        "entries",
        nargs="*",
        default=[],
        metavar="ENTRY",
        help=f"an address (with the changes of its domains), @example.com, .example.com, or {_FROM_INPUT}",
    )
    part.add_argument(
        "--show-entries", action="store_true", help="print the entries, which may be addresses"
    )
    part.add_argument(
        "--limit",
        type=refusing(_limit),
        default=1000,
        metavar="N",
        help="how many changes, the newest (default: 1,000, at most 100k)",
    )
    part.add_argument("--json", action="store_true", help="print one JSON object")
    part.set_defaults(call=_in_force)


def _limit(text: str) -> int:
    from streamdedup.commands.lists.in_force import LIMIT_MAX
    from streamdedup.units import parse_count

    limit = parse_count(text)
    if not 1 <= limit <= LIMIT_MAX:
        raise ValueError(f"must be from 1 to {LIMIT_MAX:,} changes")
    return limit


def _in_force(arguments: argparse.Namespace) -> int:
    import asyncio
    import json

    from streamdedup import logs
    from streamdedup.commands.lists.in_force import in_force

    tree = settings_of(arguments.config, arguments.overrides)
    logs.set_up()
    asked = [entry for given in arguments.entries for entry in _entries(given)]
    with compiling():
        report = asyncio.run(
            in_force(tree, asked, limit=arguments.limit, shows_entries=arguments.show_entries)
        )
    put(json.dumps(report.as_json()) + "\n" if arguments.json else report.as_text())
    for note in report.notes():
        say(f"streamdedup: {note}")
    return 0


def _entries(given: str) -> list[bytes]:
    """Return one entry, or those on the lines of standard input."""
    from streamdedup.keys.formats.texts import BYTE_ORDER_MARK, refuse_utf16

    if given != "-":
        return [os.fsencode(given)]
    text = stdin().read()
    refuse_utf16(text)
    lines = text.removeprefix(BYTE_ORDER_MARK).replace(b"\r", b"\n").split(b"\n")
    return [line for raw in lines if (line := raw.strip()) and not line.startswith(b"#")]
