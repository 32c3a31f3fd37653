"""The arguments of `streamdedup audit`, and its progress line on a terminal."""

import argparse
import sys
import time
from collections.abc import Callable

from streamdedup.cli.arguments import ACROSS_PARTITIONS, Commands, add_settings, loaded
from streamdedup.cli.streams import compiling, put

TELL_EVERY_S = 0.5
CLEARED = "\r\x1b[K"  # go to the beginning of the line and erase it


def add_audit(commands: Commands) -> None:
    """Add the command `audit`."""
    audit = commands.add_parser(
        "audit",
        help="check that the output holds what was promised",
        description="Read input and output up to the committed offsets, and report lost, doubled and foreign events."
        " Workers may run meanwhile. Exit status 1 if the promise is broken, 3 if it holds within each partition only,"
        " because events of one key come in several. Nothing is written to Kafka.",
    )
    add_settings(audit)
    audit.add_argument(
        "--across",
        action="store_true",
        help="judge across partitions, too: a key in the output of two is doubled (without it, a sample is compared)",
    )
    audit.add_argument("--json", action="store_true", help="print the report as one JSON object")
    audit.set_defaults(call=_audit)


def _audit(arguments: argparse.Namespace) -> int:
    import asyncio
    import json

    from streamdedup import logs
    from streamdedup.commands.audit import audit

    tree = loaded(arguments)
    logs.set_up()
    shows_progress = sys.stderr is not None and sys.stderr.isatty()
    try:
        with compiling():
            report = asyncio.run(
                audit(
                    tree,
                    across=arguments.across,
                    on_progress=_progress_printer() if shows_progress else lambda _: None,
                )
            )
    finally:
        if shows_progress:
            sys.stderr.write(CLEARED)
    put(json.dumps(report.as_json()) + "\n" if arguments.json else report.as_text())
    if report.breaches:
        return 1
    return ACROSS_PARTITIONS if report.evidence else 0


def _progress_printer() -> Callable[[str], None]:
    """Return a function that shows its text on one line of the terminal, at most every `TELL_EVERY_S`."""
    told_at = 0.0

    def on_progress(text: str) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= TELL_EVERY_S:
            told_at = time.monotonic()
            sys.stderr.write(f"{CLEARED}{text}")
            sys.stderr.flush()

    return on_progress
