"""The arguments of `streamdedup plan`."""

import argparse
from typing import Any

from streamdedup.cli.arguments import (
    Commands,
    Reader,
    add_error_rate,
    add_key,
    as_configured,
    refusing,
)
from streamdedup.cli.streams import compiling, put, stdin


def add_plan(commands: Commands) -> None:
    """Add the command `plan`."""
    plan = commands.add_parser(
        "plan",
        help="print what each kind of filter costs for a job, and which one to pick",
        description="Print, for each kind of filter that can do the job, its memory and its speed on this machine, and "
        "which one to pick. The first run on a machine compiles for half a minute, later ones take two seconds.",
    )
    plan.add_argument(
        "--keys",
        type=as_configured("capacity"),
        metavar="N",
        help="the number of distinct keys, for example 100M",
    )
    add_error_rate(plan, "new events that may be dropped wrongly, at capacity")
    plan.add_argument(
        "--removable", action="store_true", help="only kinds from which keys can be removed"
    )
    plan.add_argument(
        "--window",
        type=_quantity("window"),
        metavar="TIME",
        help="only kinds that forget older keys, for example 7d",
    )
    plan.add_argument(
        "--rate",
        type=_quantity("rate"),
        metavar="EVENTS/TIME",
        help="the rate of events, for example 2000/s or 100M/d; with --window it gives the number of keys",
    )
    plan.add_argument(
        "--partitions",
        type=_quantity("partitions"),
        metavar="N",
        help="the partitions of a worker, each with its own filter (default: one filter)",
    )
    plan.add_argument(
        "--sample", metavar="FILE|-", help="lines of the stream; their distinct keys are counted"
    )
    plan.add_argument("--json", action="store_true", help="print the same figures as JSON")
    plan.add_argument(
        "--table",
        action="store_true",
        help="print the false-positive table of the literature instead, tab-separated",
    )
    add_key(plan)
    plan.set_defaults(call=_plan)


def _quantity(name: str) -> Reader:
    def read(text: str) -> Any:  # noqa: ANN401 - an option's own type
        from streamdedup.commands.plan.job import QUANTITIES

        return QUANTITIES[name].parse(text)

    return refusing(read)


def _plan(arguments: argparse.Namespace) -> int:
    from streamdedup.commands.plan import command

    instead = "give it lines: streamdedup plan --sample - <FILE"
    with compiling():
        text = command.output(vars(arguments), stdin=lambda: stdin(instead))
    put(text + "\n")
    return 0
