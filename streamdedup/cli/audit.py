"""The arguments of `streamdedup audit`, and its progress on a terminal."""

import argparse
import sys
import time
from collections.abc import Callable

from streamdedup.cli.arguments import Commands, add_settings
from streamdedup.cli.streams import put

TELL_EVERY_S = 0.5
CLEARED = "\r\x1b[K"  # back to the line's begin, and empty it


def add_audit(commands: Commands) -> None:
    """The command `audit`."""
    audit = commands.add_parser(
        "audit",
        help="check that the output holds what was promised",
        description="Read input and output up to the committed offsets, while workers run or not, and say what is lost,"
        " doubled or foreign. Status 1 where the promise is broken. Nothing is written to Kafka.",
    )
    add_settings(audit)
    audit.add_argument("--json", action="store_true", help="print the same as one JSON object")
    audit.set_defaults(call=_audit)


def _audit(arguments: argparse.Namespace) -> int:
    import asyncio
    import json

    from streamdedup import logs, settings
    from streamdedup.commands.audit import audit

    tree = settings.load(arguments.config, arguments.overrides)
    logs.set_up()
    telling = sys.stderr is not None and sys.stderr.isatty()
    try:
        report = asyncio.run(audit(tree, tell=_teller() if telling else lambda _: None))
    finally:
        if telling:
            sys.stderr.write(CLEARED)
    put(json.dumps(report.as_json()) + "\n" if arguments.json else report.as_text())
    return 0 if report.fine else 1


def _teller() -> Callable[[str], None]:
    """Shows one line on the terminal, over and over, now and then."""
    told_at = 0.0

    def tell(text: str) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= TELL_EVERY_S:
            told_at = time.monotonic()
            sys.stderr.write(f"{CLEARED}{text}")
            sys.stderr.flush()

    return tell
