"""The arguments of `streamdedup reset`, and the question that it asks."""

import argparse
import sys
from typing import TYPE_CHECKING

from streamdedup.cli.arguments import Commands, add_settings, loaded, refusing
from streamdedup.cli.streams import put, say
from streamdedup.errors import ConfigError

if TYPE_CHECKING:
    from streamdedup.commands.reset_plan import Target


def add_reset(commands: Commands) -> None:
    """Add the command `reset`."""
    reset = commands.add_parser(
        "reset",
        help="move the group's offsets; with --forget, begin with empty filters",
        description="Move the committed offsets of all partitions of the input, while no worker runs. First it prints"
        " what will happen, and asks. Exit status 1 if the group is active or the answer is no.",
    )
    add_settings(reset)
    reset.add_argument(
        "--to",
        type=refusing(_target),
        required=True,
        metavar="earliest|latest|TIME",
        help="where reading goes on; TIME is a time like 2026-01-31T08:00Z (UTC unless it has a zone) or how long ago,"
        " like 2h: reading goes on at the first event from then on",
    )
    reset.add_argument(
        "--forget",
        action="store_true",
        help="forget what was emitted: the filters start empty, and events that are read again are emitted again",
    )
    reset.add_argument("--yes", action="store_true", help="do not ask")
    reset.set_defaults(call=_reset)


def _target(text: str) -> "Target":
    from streamdedup.commands.reset_plan import target_of
    from streamdedup.delivery.services import wall_clock_ms

    return target_of(text, wall_clock_ms())


def _reset(arguments: argparse.Namespace) -> int:
    import asyncio

    from streamdedup import logs
    from streamdedup.commands import reset
    from streamdedup.commands.reset_text import as_text

    tree = loaded(arguments)
    logs.set_up()
    planned = asyncio.run(reset.plan(tree, arguments.to, forget=arguments.forget))
    put(as_text(tree, planned))
    if planned.idle:
        return 0
    if not arguments.yes and not _agreed():
        say("streamdedup: nothing was moved")
        return 1
    asyncio.run(reset.move(tree, planned))
    say("streamdedup: moved")
    return 0


def _agreed() -> bool:
    """Ask on the terminal whether to move the offsets. ConfigError if standard input is no terminal."""
    if sys.stdin is None or sys.stderr is None or not sys.stdin.isatty():
        raise ConfigError(
            "nothing was moved: standard input is not a terminal, so nobody can be asked; add --yes"
        )
    sys.stderr.write("Move the offsets? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
