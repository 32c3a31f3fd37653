"""Arguments that several commands share: a key, and values that are parsed only if given, so that --help is quick."""

import argparse
import re
import sys
from ast import literal_eval
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from typing_extensions import override

from streamdedup.cli.streams import put
from streamdedup.errors import ConfigError

if TYPE_CHECKING:
    from streamdedup.settings import Settings

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
Reader = Callable[[str], Any]

# The exit status if events of one key come in several partitions, and nothing is worse.
ACROSS_PARTITIONS = 3
# Those of `try`: keys beyond the capacity, if nothing is worse; and a key or an outcome that prevails.
BEYOND_CAPACITY, ODD_EVENTS = 4, 5


class _NoOption(str):
    """An argument after `--`. It is never an option, whatever its first character."""

    __slots__ = ()


class Parser(argparse.ArgumentParser):
    """Says which argument is wrong, and repeats what was given only if it cannot be a secret in the wrong place.

    It takes options before, between and after a command's arguments. Not all versions of Python do so by themselves:
    some fill `FILE KEY...` with the first group of arguments, so a KEY after an option belongs to nothing.
    `parse_known_intermixed_args` parses in two steps, and the second step no longer knows what followed `--`. So these
    arguments are marked as `_NoOption`.
    """

    _is_within = False

    @override
    def _print_message(self, message: str, file: Any = None) -> None:
        """Write help and version whole, or fail; argparse ignores errors."""
        if message and file is not None and file is sys.stdout:
            put(message)
        else:
            super()._print_message(message, file)

    def parse_known_args(  # type: ignore[override]  # one of the base's overloads; all calls come here
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does. It calls this once for a command and, if it parses in two steps, again for each.

        What the command does not know is refused here, with the usage of this command and not of all.
        """
        if self._is_within or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        given = list(sys.argv[1:] if args is None else args)
        if "--" in given:
            at = given.index("--")
            given[at:] = [_NoOption(text) for text in given[at + 1 :]]
        self._is_within = True
        try:
            found, unknown = self.parse_known_intermixed_args(given, namespace)
        finally:
            self._is_within = False
        if unknown:
            self.error(f"{_UNRECOGNIZED}: {' '.join(unknown)}")
        return found, []

    def _parse_optional(self, arg_string: str) -> Any:  # noqa: ANN401 - it differs among Python's versions
        if isinstance(arg_string, _NoOption):
            return None
        return super()._parse_optional(arg_string)

    def error(self, message: str) -> NoReturn:
        """Print the usage and what is wrong, and end with status 2."""
        message = _INVALID.sub(_requoted, message)
        for pattern, kept in _QUOTING:
            message = pattern.sub(kept, message)
        if message.startswith(_UNRECOGNIZED):
            options = re.findall(r"(?<!\S)--[a-z]+(?:-[a-z]+)*(?=[\s=]|$)", message)
            message = f"{_UNRECOGNIZED}: {' '.join(options)}" if options else _UNRECOGNIZED
        from streamdedup.units import escaped

        super().error(escaped(message, keep="\n"))


def _requoted(message: re.Match[str]) -> str:
    from streamdedup.units import quote

    choices = re.findall(r"[\w-]+", message["choices"] or "")
    try:
        given = quote(literal_eval(message["given"]), choices)
    except (SyntaxError, ValueError):
        given = None  # some versions of Python put advice behind the text
    return message["what"] + (f": {given}" if given else "") + (message["known"] or "")


# argparse's messages that quote, and what is kept of each. `.*` is greedy: what was given may look like the rest.
_INVALID = re.compile(
    r"^(?P<what>argument .*?: invalid (?:choice|\w+ value)): (?P<given>.*?)"
    r"(?P<known> \(choose from (?P<choices>[^(]*)\))?\Z",
    re.DOTALL,
)
_QUOTING = tuple(
    (re.compile(pattern, re.DOTALL), kept)
    for pattern, kept in (
        (r"^(argument .*?): ignored explicit argument .*", r"\1: takes no value"),
        (r"^ambiguous option: .* (?=could match )", "ambiguous option: it "),
    )
)
_UNRECOGNIZED = "unrecognized arguments"


def add_settings(command: argparse.ArgumentParser) -> None:
    """Add the arguments that name the configuration, which `loaded` loads."""
    command.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="the same as -c FILE",
    )
    add_overrides(command)


def add_overrides(command: argparse.ArgumentParser) -> None:
    """Add the options that name the configuration, for a command that has other arguments."""
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
        help="override one setting, for example --set kafka.group_id=x, or a section: --set"
        " 'source.repartition={topic: t, partitions: 2}'; may be repeated",
    )


def loaded(arguments: argparse.Namespace) -> "Settings":
    """Return the configuration that `add_settings` takes; FILE wins over -c. ConfigError if it has errors."""
    from streamdedup import settings

    file: Path | None = arguments.file
    if file is not None and file.suffix not in (".yaml", ".yml"):
        try:
            file.stat()
        except OSError as error:  # it is not repeated: it may be a secret in the wrong place
            raise ConfigError(
                f"FILE: {error.strerror}; it is the configuration, the same as -c FILE"
            ) from None
    return settings.load(file or arguments.config, arguments.overrides)


def add_separator(command: argparse.ArgumentParser, of: str) -> None:
    """Add the option for the separator of CSV; `of` says when it is read as such."""
    command.add_argument(
        "--separator",
        type=refusing(_separator),
        metavar="CHAR",
        help=f"{of}: what separates the columns: ',' or ';' or '|' or tab (default: ',')",
    )


def _separator(text: str) -> str:
    from streamdedup.keys.formats.csv_records import SEPARATORS

    found = SEPARATORS.get("tab" if text in ("\t", r"\t") else text)
    if found is None:
        raise ValueError("must be , ; | or tab, in quotes where a shell needs them")
    return found


def add_key(command: argparse.ArgumentParser) -> None:
    """Add the options that define which lines are equal."""
    command.add_argument(
        "--key",
        action="append",
        metavar="line|json:FIELD|csv:COLUMN",
        help="the key: lines with equal keys are duplicates (default: the line); COLUMN is a name in the first line, or"
        " a number, from 1; if repeated, all the fields together; of json:[FIELD, FIELD] the first that is neither"
        " missing nor null",
    )
    add_separator(command, "with csv:")
    command.add_argument(
        "--normalize",
        choices=("none", "trim", "lowercase", "email", "url"),
        help="trim: ignore white space at both ends of a key; lowercase: also ignore case; email and url: ignore how an"
        " address or a URL is written (default: none)",
    )
    add_url_rule(command)


def add_url_rule(command: argparse.ArgumentParser) -> None:
    """Add the options for the rules of `--normalize url`."""
    command.add_argument(
        "--url-rule",
        action="append",
        choices=("tracking", "slash", "www", "scheme", "fragments", "port", "dot", "order"),
        help="with --normalize url: the same as key.url_RULE; may be repeated: ignore parameters that only track,"
        " slashes at the end of a path, www. before a host, https and http, the scheme's own port, or dots at the end"
        " of a host; or do not ignore fragments, or the order of parameters",
    )
    command.add_argument(
        "--url-ignore",
        action="append",
        metavar="NAME",
        help="with --normalize url: a parameter that means nothing, as in key.url_ignore; may be repeated",
    )


def add_error_rate(command: argparse.ArgumentParser, of: str, default: float | None = None) -> None:
    """Add the option for the error rate of a filter; `of` says of what it is the share."""
    command.add_argument(
        "--error-rate",
        type=as_configured("error_rate"),
        default=default,
        metavar="P",
        help=f"the share of {of} (default: 1e-6)",
    )


def as_configured(name: str) -> Reader:
    """Return a reader that parses an argument as the configuration parses `filter.<name>`, with the same bounds."""

    def read(text: str) -> Any:  # noqa: ANN401 - an option's own type
        from streamdedup import settings

        return settings.filter_option(name, text)

    return refusing(read)


def refusing(read: Reader, *, near_secret: bool = False) -> Reader:
    """Return a type for argparse: `read`, whose ValueError says what is wrong with the text and does not quote it.

    The text stands before it if it cannot be a secret. `near_secret`: it may be one even if it does not look so.
    """

    def checked(text: str) -> Any:  # noqa: ANN401 - whatever is read
        try:
            return read(text)
        except ValueError as error:
            from streamdedup.units import quote

            given = None if near_secret else quote(text)
            raise argparse.ArgumentTypeError(f"{given}: {error}" if given else str(error)) from None

    return checked
