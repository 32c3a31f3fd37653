"""The arguments of `streamdedup status`."""

import argparse
import shutil

from streamdedup.cli.arguments import Commands
from streamdedup.cli.streams import put


def add_status(commands: Commands) -> None:
    """Add the command `status`."""
    command = commands.add_parser(
        "status",
        help="show how a worker that runs is",
        description="Ask a worker for its /api/status, and print it: whether it is ready, what is wrong and what to"
        " do, its partitions (those in trouble first), stages, lists, and the last events that did not pass. `watch"
        " streamdedup status URL` shows it again and again. The exit status is 0, 3 if there is a warning, 2 if there"
        " is a failure, 1 if no worker answers.",
    )
    command.add_argument(
        "url",
        metavar="URL",
        help="where the worker serves it: server.host and server.port, as 127.0.0.1:9464 or http://127.0.0.1:9464",
    )
    command.add_argument("--json", action="store_true", help="print it as one JSON object")
    command.set_defaults(call=_status)


def _status(arguments: argparse.Namespace) -> int:
    from streamdedup.commands.status import Seen
    from streamdedup.commands.worker_server import WorkerServer
    from streamdedup.units import escaped_lines

    url = arguments.url if "://" in arguments.url else f"http://{arguments.url}"
    seen = Seen(WorkerServer(url, argument="URL"))
    if arguments.json:
        put(seen.as_json() + "\n")
    else:
        columns = shutil.get_terminal_size().columns  # `watch` sets COLUMNS
        put(escaped_lines(seen.as_text(columns)))
    return seen.exit_status
