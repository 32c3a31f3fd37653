"""The arguments of `streamdedup doctor`."""

import argparse
from typing import TYPE_CHECKING

from streamdedup.cli.arguments import Commands, add_settings, loaded
from streamdedup.cli.streams import compiling, put
from streamdedup.cli.trial import add_events

if TYPE_CHECKING:
    from streamdedup.doctor.lines import Report
    from streamdedup.settings import Settings


def add_doctor(commands: Commands) -> None:
    """Add the command `doctor`."""
    command = commands.add_parser(
        "doctor",
        help="look for all that can be wrong: brokers, topics, rights, group, output, events, machine",
        description="Look at brokers, topics, rights, the group, the output, a sample of the newest events, lists, the"
        " registry and this machine, and print a line for each: ok, warning, failure, or unknown (no right to see it,"
        " or no answer), with the remedy. Workers may run meanwhile. Nothing is changed but one file of its own beside"
        " the snapshots, which is removed. The exit status is 0, 3 with warnings, 2 with failures, 1 if no broker"
        " answered.",
    )
    add_settings(command)
    add_events(command)
    command.add_argument("--json", action="store_true", help="print the report as one JSON object")
    command.set_defaults(call=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    import json

    found = examined(loaded(arguments), arguments.events)
    put(json.dumps(found.as_json()) + "\n" if arguments.json else shown(found))
    return found.exit_status


def examined(tree: "Settings", events: int) -> "Report":
    """Return what all checks find."""
    import asyncio
    import logging

    from streamdedup import logs
    from streamdedup.commands.doctor import doctor

    logs.set_up(logging.ERROR)  # what a check finds is in its lines
    with compiling():
        return asyncio.run(doctor(tree, events))


def shown(found: "Report") -> str:
    """Return the report for a person; what others chose in it is escaped."""
    from streamdedup.units import escaped_lines

    return escaped_lines(found.as_text().splitlines())
