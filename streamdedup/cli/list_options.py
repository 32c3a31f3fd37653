"""Arguments that several parts of `streamdedup lists` share: a worker's configuration, a secret, standard input."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from streamdedup.cli import streams
from streamdedup.cli.arguments import refusing
from streamdedup.errors import ConfigError

if TYPE_CHECKING:
    from streamdedup.settings import Settings


def add_config(part: argparse.ArgumentParser, takes: str) -> None:
    """Add the option that names the worker's configuration. `takes` is its help: what the part takes from there."""
    part.add_argument("-c", "--config", type=Path, metavar="FILE", help=takes)


def add_hash_key(part: argparse.ArgumentParser) -> None:
    """Add the option that names the secret of siphash."""
    part.add_argument(
        "--hash-key-file",
        type=refusing(_hash_key, near_secret=True),
        default=b"",
        dest="hash_key",
        metavar="FILE",
        help="the file with the secret of siphash, 32 hexadecimal digits; the same as filter.hash_key_file",
    )


def configured(arguments: argparse.Namespace, instead_of: Sequence[str]) -> "Settings | None":
    """Return the configuration that `-c` names. ConfigError if an option that it replaces is given, too."""
    if arguments.config is None:
        return None
    for name in instead_of:
        if getattr(arguments, name):
            option = "--hash-key-file" if name == "hash_key" else "--" + name.replace("_", "-")
            raise ConfigError(f"-c takes {option} from the configuration; delete one of the two")
    return settings_of(arguments.config, [])


def settings_of(config: Path | None, overrides: Sequence[str]) -> "Settings":
    """Return the configuration. Whether its lists have been built yet does not matter."""
    from streamdedup import settings

    there = [f"{which}.file={__file__}" for which in ("allowlist", "blocklist")]
    return settings.load(config, [*overrides, *there])


def stdin() -> BinaryIO:
    """Return standard input. StreamdedupError if it is closed."""
    return streams.stdin("give it lines: streamdedup lists ... <FILE")


def _hash_key(text: str) -> bytes:
    from streamdedup import settings

    return settings.hash_key_in(text)
