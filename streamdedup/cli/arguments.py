"""Arguments that several commands share: a key, and values that are parsed only if given, so that --help is quick."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Reader = Callable[[str], Any]


class _NoOption(str):
    """An argument after `--`. It is never an option, whatever its first character."""

    __slots__ = ()


class Intermixed(argparse.ArgumentParser):
    """Takes options before, between and after a command's arguments. Not all versions of Python do so by themselves.

    Some versions fill `FILE KEY...` with the first group of arguments, so a KEY after an option belongs to nothing.
    `parse_known_intermixed_args` parses in two steps, and the second step no longer knows what followed `--`. So these
    arguments are marked as `_NoOption`.
    """

    _is_within = False

    def parse_known_args(  # type: ignore[override]  # one of the base's overloads; all calls come here
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does. It calls this once for a command and, if it parses in two steps, again for each."""
        if self._is_within:
            return super().parse_known_args(args, namespace)
        given = list(sys.argv[1:] if args is None else args)
        if "--" in given:
            at = given.index("--")
            given[at:] = [_NoOption(text) for text in given[at + 1 :]]
        self._is_within = True
        try:
            return self.parse_known_intermixed_args(given, namespace)
        finally:
            self._is_within = False

    def _parse_optional(self, arg_string: str) -> Any:  # noqa: ANN401 - it differs among Python's versions
        if isinstance(arg_string, _NoOption):
            return None
        return super()._parse_optional(arg_string)


def add_settings(command: argparse.ArgumentParser) -> None:
    """Add the options that name the configuration."""
    command.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration (default: $STREAMDEDUP_CONFIG)",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override one setting, for example --set kafka.group_id=x; may be repeated",
    )


def add_key(command: argparse.ArgumentParser) -> None:
    """Add the options that define which lines are equal."""
    command.add_argument(
        "--key",
        action="append",
        metavar="line|json:FIELD",
        help="the key: lines with equal keys are duplicates (default: the line); if repeated, all the fields together",
    )
    command.add_argument(
        "--normalize",
        choices=("none", "trim", "lowercase", "email"),
        help="trim: ignore white space at both ends of a key; lowercase: also ignore case; email: also ignore how an"
        " address is written (default: none)",
    )


def as_configured(name: str) -> Reader:
    """Return a reader that parses an argument as the configuration parses `filter.<name>`, with the same bounds."""

    def read(text: str) -> Any:  # noqa: ANN401 - an option's own type
        from streamdedup import settings

        return settings.filter_option(name, text)

    return refusing(read)


def refusing(read: Reader) -> Reader:
    """Return a type for argparse: `read`, whose ValueError says what is wrong with the text."""

    def checked(text: str) -> Any:  # noqa: ANN401 - whatever is read
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return checked
