"""The arguments of `streamdedup audit`."""

import argparse

from streamdedup.cli.arguments import ACROSS_PARTITIONS, Commands, add_settings, loaded
from streamdedup.cli.streams import compiling, progress, put


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
    with progress() as on_progress, compiling():
        report = asyncio.run(audit(tree, across=arguments.across, on_progress=on_progress))
    put(json.dumps(report.as_json()) + "\n" if arguments.json else report.as_text())
    if report.breaches:
        return 1
    return ACROSS_PARTITIONS if report.evidence else 0
