"""The arguments `--worker URL` and `--token-file FILE`, of commands that ask a worker that runs."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streamdedup.errors import ConfigError

if TYPE_CHECKING:
    from streamdedup.commands.worker_server import WorkerServer


def add_worker(command: argparse.ArgumentParser, text: str) -> None:
    """Add the options; `text` says what they do for this command."""
    command.add_argument(
        "--worker",
        metavar="URL",
        help=f"{text}: its server.host and server.port, like http://127.0.0.1:9464; needs --token-file",
    )
    command.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="with --worker: a file with the token of the worker's server.token_file",
    )


def check_worker(arguments: argparse.Namespace, instead: Mapping[str, str]) -> None:
    """ConfigError if `--worker` and `--token-file` are not together, or beside an option that it replaces.

    `instead` has these options, each with its attribute.
    """
    if arguments.worker is None:
        if arguments.token_file is not None:
            raise ConfigError(
                "--token-file is for --worker; give the worker's URL, or delete --token-file"
            )
        return
    if arguments.token_file is None:
        raise ConfigError(
            "--worker needs --token-file FILE, with the token of the worker's server.token_file"
        )
    for option, name in instead.items():
        if getattr(arguments, name):
            raise ConfigError(f"{option} is not for --worker, which decides by itself; delete it")


def worker_server(arguments: argparse.Namespace) -> "WorkerServer":
    """Return the worker's server."""
    from streamdedup.commands.worker_server import WorkerServer

    return WorkerServer(arguments.worker, arguments.token_file)
