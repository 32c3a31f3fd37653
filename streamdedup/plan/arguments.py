"""The options of `streamdedup plan`. What it takes to read a value is imported when one is there: --help is quick."""

import argparse
from collections.abc import Callable
from typing import Any


def add_options(plan: argparse.ArgumentParser) -> None:
    """All of its options but --key, which is that of `pipe`."""
    plan.add_argument("--keys", type=_read("keys"), metavar="N", help="distinct keys, as in 100M")
    plan.add_argument(
        "--error-rate",
        type=_read("error_rate"),
        metavar="P",
        help="share of new events that may be dropped wrongly, at capacity (default: 1e-6)",
    )
    plan.add_argument(
        "--removable", action="store_true", help="only kinds from which keys can be taken back"
    )
    plan.add_argument(
        "--window",
        type=_read("window"),
        metavar="TIME",
        help="only kinds that forget what is older, as in 7d",
    )
    plan.add_argument(
        "--rate",
        type=_read("rate"),
        metavar="EVENTS/TIME",
        help="events, as in 2000/s or 100M/d; with --window it tells how many keys there are",
    )
    plan.add_argument(
        "--partitions",
        type=_read("partitions"),
        metavar="N",
        help="for a worker, with a filter a partition (default: one filter)",
    )
    plan.add_argument(
        "--sample", metavar="FILE|-", help="lines of the stream, whose distinct keys are counted"
    )
    plan.add_argument("--json", action="store_true", help="print the same figures as JSON")
    plan.add_argument(
        "--table",
        action="store_true",
        help="print the false-positive table of the literature instead, tab-separated",
    )


_OF_A_FILTER = {"keys": "capacity", "error_rate": "error_rate"}


def _read(name: str) -> Callable[[str], Any]:
    """Read an option as the configuration reads one of its kind, within bounds."""

    def read(text: str) -> Any:  # noqa: ANN401 - an option's own type
        from streamdedup import settings
        from streamdedup.plan.job import QUANTITIES

        try:
            if name in _OF_A_FILTER:
                return settings.filter_option(_OF_A_FILTER[name], text)
            return QUANTITIES[name].parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return read
