"""What several commands take: a key, and values that are read when there is one, so that --help is quick."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Reader = Callable[[str], Any]


class _NoOption(str):
    """An argument that stands behind `--`, whatever it begins with."""

    __slots__ = ()


class Intermixed(argparse.ArgumentParser):
    """Takes options before, between and behind the arguments of a command; not all versions of Python do by themselves.

    They take the arguments of `FILE KEY...` together, and so, behind an option, find a KEY that belongs to nothing.
    They parse in two steps, of which the second knows no more what followed `--`: so it is marked.
    """

    _is_within = False

    def parse_known_args(  # type: ignore[override]  # one of its overloads, which all come here
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse calls it for a command, and, where it parses in two steps, for each of them."""
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
    """The options that say where the configuration is."""
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
        help="override one setting, as in --set kafka.group_id=x; may be repeated",
    )


def add_key(command: argparse.ArgumentParser) -> None:
    """The options that say what makes two lines equal."""
    command.add_argument(
        "--key",
        action="append",
        metavar="line|json:FIELD",
        help="what makes two lines equal (default: the line); given several times, all the fields together",
    )
    command.add_argument(
        "--normalize",
        choices=("none", "trim", "lowercase", "email"),
        help="trim: white space at both ends of a key does not count; lowercase: nor do capitals; email: nor does how"
        " an address is written (default: none)",
    )


def as_configured(name: str) -> Reader:
    """Read an argument as the configuration reads `filter.<name>`, within the same bounds."""

    def read(text: str) -> Any:  # noqa: ANN401 - an option's own type
        from streamdedup import settings

        return settings.filter_option(name, text)

    return refusing(read)


def refusing(read: Reader) -> Reader:
    """What argparse takes as a type: `read`, whose ValueError says what is wrong with the text."""

    def checked(text: str) -> Any:  # noqa: ANN401 - whatever is read
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return checked
