"""The arguments of `streamdedup try`."""

import argparse

from streamdedup.cli.arguments import (
    ACROSS_PARTITIONS,
    BEYOND_CAPACITY,
    ODD_EVENTS,
    Commands,
    add_settings,
    loaded,
    refusing,
)
from streamdedup.cli.streams import compiling, put

EVENTS = 10_000  # of the sample, unless given


def add_try(commands: Commands) -> None:
    """Add the command `try`."""
    command = commands.add_parser(
        "try",
        help="judge the newest events of the input, and write nothing",
        description="Read the newest events of the input without joining the group, and report what the configuration"
        " would do with them: verdicts, why events have no usable key, distinct keys, and how they fit filter.capacity."
        " Duplicates are found only among these events. Nothing is written to Kafka. The exit status is 5 if a"
        " fifth of the events is malformed or rejected, or has one key; else 3 if keys come in several partitions, 4 if"
        " more are distinct than the capacity.",
    )
    add_settings(command)
    add_events(command)
    command.add_argument("--json", action="store_true", help="print the report as one JSON object")
    command.set_defaults(call=_try)


def add_events(command: argparse.ArgumentParser) -> None:
    """Add the option for the size of the sample."""
    command.add_argument(
        "--events",
        type=refusing(_events),
        default=EVENTS,
        metavar="N",
        help="how many events, evenly from all partitions, for example 100k (default: 10,000, at most 1M)",
    )


def _events(text: str) -> int:
    from streamdedup.commands.trial import EVENTS_MAX
    from streamdedup.units import parse_count

    events = parse_count(text)
    if not 1 <= events <= EVENTS_MAX:
        raise ValueError(f"must be from 1 to {EVENTS_MAX:,} events")
    return events


def _try(arguments: argparse.Namespace) -> int:
    import asyncio
    import json

    from streamdedup import logs
    from streamdedup.commands.trial import tried

    tree = loaded(arguments)
    logs.set_up()
    with compiling():
        found = asyncio.run(tried(tree, arguments.events))
    put(json.dumps(found.as_json()) + "\n" if arguments.json else found.as_text())
    if found.is_odd:  # before all that is counted by keys, which are probably wrong
        return ODD_EVENTS
    if found.evidence:
        return ACROSS_PARTITIONS
    return BEYOND_CAPACITY if found.fit and found.fit.is_too_small else 0
