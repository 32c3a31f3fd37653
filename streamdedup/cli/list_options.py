"""What several parts of `streamdedup lists` take: a worker's configuration, the secret of a hash, standard input."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from streamdedup.cli.arguments import refusing
from streamdedup.cli.streams import binary
from streamdedup.errors import ConfigError

if TYPE_CHECKING:
    from streamdedup.settings import Settings


def add_config(part: argparse.ArgumentParser, takes: str) -> None:
    """The option that names the configuration of the worker, of which the part `takes` something."""
    part.add_argument("-c", "--config", type=Path, metavar="FILE", help=takes)


def add_hash_key(part: argparse.ArgumentParser) -> None:
    """The option that names the secret of siphash."""
    part.add_argument(
        "--hash-key-file",
        type=refusing(_hash_key),
        default=b"",
        dest="hash_key",
        metavar="FILE",
        help="the secret of siphash, 32 hexadecimal digits, as filter.hash_key_file",
    )


def configured(arguments: argparse.Namespace, instead_of: Sequence[str]) -> "Settings | None":
    """The configuration that `-c` names; ConfigError where one of the options that it stands for is given, too."""
    if arguments.config is None:
        return None
    for name in instead_of:
        if getattr(arguments, name):
            option = "--hash-key-file" if name == "hash_key" else "--" + name.replace("_", "-")
            raise ConfigError(
                f"{option} is what -c takes from the configuration; delete one of the two"
            )
    return settings_of(arguments.config, [])


def settings_of(config: Path | None, overrides: Sequence[str]) -> "Settings":
    """The configuration; whether its lists are built yet does not matter."""
    from streamdedup import settings

    there = [f"{which}.file={__file__}" for which in ("allowlist", "blocklist")]
    return settings.load(config, [*overrides, *there])


def stdin() -> BinaryIO:
    """Standard input; ConfigError where it is closed."""
    return binary(sys.stdin, "standard input is closed; give it lines: streamdedup lists ... <FILE")


def _hash_key(text: str) -> bytes:
    from streamdedup import settings

    path: Path = settings.filter_option("hash_key_file", text)  # which has looked into it
    return bytes.fromhex(path.read_text().strip())
