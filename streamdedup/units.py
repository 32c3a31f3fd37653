"""Numbers with units, and text for people.

It reads what an operator writes (`90s`, `64MiB`, `100M`), and writes counts and sizes as text. Reading is exact, on
fractions. A number without a unit is in the option's own unit, in which its name ends, or it is refused. A number has
at most 40 characters. An error states what to write instead. What was written may be a secret in the wrong place, so
an error quotes it only as `quote` does. What others chose, such as a name, is shown as `escaped` makes it.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:  # importing it takes as long as numpy, and only settings need it
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


def parse_milliseconds(value: object, *, bare: bool = True) -> int:
    """Return the milliseconds in `250`, `250ms`, `1s`; a number without a unit is in ms, or refused unless `bare`."""
    return _natural(value, _MILLISECONDS, bare=bare)


def parse_bytes(value: object) -> int:
    """Return the bytes in `4096`, `64MiB`, `1.5GB`; a number without a unit is in bytes."""
    return _natural(value, _BYTES)


def parse_count(value: object) -> int:
    """Return the integer in `100000`, `100_000`, `100k`, `1e5`; the suffixes are decimal."""
    return _natural(value, _COUNT)


def quote(value: object, choices: Iterable[str] = ()) -> str | None:
    """Return how an error may quote what an operator wrote, or None if it may be a secret.

    Quoted are: nothing; `true` and its like; a number of at most 12 characters with `%` or a unit of at most 3 letters,
    known or not; and a text that resembles one of `choices`, the only values of an option. Of a list or a mapping, the
    type is named.
    """
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = "" if value is None else str(value)
    known = [choice.lower() for choice in choices]
    return repr(value) if _is_plain(text) or nearest(text.lower(), known, _QUOTED) else None


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the one of the `known` names that was probably meant by one that is none of them, or None."""
    return next(iter(difflib.get_close_matches(name, list(known), 1, likeness)), None)


def escaped(text: str | bytes, keep: str = "") -> str:
    r"""Return `text`, which others chose, so that where it is shown it moves no cursor, ends no line, hides nothing.

    Each character that is not printable is written as in a Python string: `\n`, `\x1b`, `\u202e`, `\ud83e`. So is each
    byte that is no UTF-8: `\xff`. Those in `keep` stay. A backslash is not doubled, so this cannot be undone.
    """
    shown = text.decode(errors="backslashreplace") if isinstance(text, bytes) else text
    if shown.isprintable():
        return shown
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in shown
    )


def escaped_lines(lines: Iterable[str]) -> str:
    """Return the lines as one text, each with its end; what others chose in them moves no cursor and ends no line."""
    return "".join(f"{escaped(line)}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class _Scale:
    """One kind of quantity: its units, each with its size in the base unit, which has size 1."""

    noun: str
    examples: tuple[str, ...]
    units: Mapping[str, Fraction]
    whole: bool


@dataclass(frozen=True, slots=True)
class Quantity:
    """An annotation for pydantic: a number of one scale between two bounds, both included.

    `Annotated[float, seconds(1, 3600)]` accepts numbers and text, in Python as in the JSON Schema.
    """

    scale: _Scale
    low: float
    high: float
    counted: str = ""
    bare: bool = True  # whether a number may have no unit; 0 never needs one

    @property
    def range(self) -> str:
        """The bounds as an operator would write them."""
        text = f"{self.format(self.low)} to {self.format(self.high)}"
        return f"{text} {self.counted}".rstrip()

    def format(self, value: float) -> str:
        """Write a value in the largest unit that divides it; `parse` reads it back."""
        return _write(Fraction(repr(value)), self.scale)

    def parse(self, value: object) -> float:
        """Read a value of this quantity; an int if the scale has whole numbers only.

        Raises ValueError, with the remedy, if it is not such a value or is out of range.
        """
        exact = _read(value, self.scale, bare=self.bare)
        number = _whole(exact, self.scale) if self.scale.whole else float(exact)
        if not self.low <= number <= self.high:
            raise ValueError(f"out of range, must be {self.range}")
        return number

    def __get_pydantic_core_schema__(
        self, source: object, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(
        self, schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        number = {
            "type": "integer" if self.scale.whole else "number",
            "minimum": self.low,
            "maximum": self.high,
        }
        units = "|".join(unit for unit in self.scale.units if unit)
        unit = f"({units}){'?' if self.bare else ''}"
        text = {"type": "string", "pattern": rf"^\s*{_NUMBER}\s*{unit}\s*$"}
        forms = [number, text] if self.bare else [text]
        return {"anyOf": forms, "examples": list(self.scale.examples)}


def seconds(low: float, high: float, *, bare: bool = True) -> Quantity:
    """Annotate a duration, kept as a float of seconds; `bare` allows a number without a unit."""
    return Quantity(_SECONDS, low, high, bare=bare)


def milliseconds(low: int, high: int, *, bare: bool = True) -> Quantity:
    """Annotate a duration, kept as an int of milliseconds; `bare` allows a number without a unit."""
    return Quantity(_MILLISECONDS, low, high, bare=bare)


def size_bytes(low: int, high: int) -> Quantity:
    """Annotate a size, kept as an int of bytes."""
    return Quantity(_BYTES, low, high)


def count(low: int, high: int, of: str) -> Quantity:
    """Annotate a number of things, kept as an int; `of` names the things."""
    return Quantity(_COUNT, low, high, of)


def rate(low: float, high: float, of: str) -> Quantity:
    """Annotate a rate, kept as a float of things per second; `of` names the things."""
    return Quantity(_RATE, low, high, of)


def expand_home(path: Path) -> Path:
    """Replace a leading `~` by the home directory. A relative path stays relative to the working directory.

    ValueError if no file can have such a name.
    """
    if path == Path():
        raise ValueError("is empty, must be a path")
    if not can_be_path(path):
        raise ValueError("has a character that no name of a file has; write another path")
    if any(len(os.fsencode(part)) > NAME_BYTES_MAX for part in path.parts):
        raise ValueError(
            f"has a name of more than {NAME_BYTES_MAX} bytes between two slashes; write a shorter one"
        )
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(
            "has no home directory for its ~; write an absolute path instead"
        ) from None


def can_be_path(path: Path) -> bool:
    """Return whether a file can have this path; for another one, the system's functions raise ValueError."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def counted(number: int, what: str, several: str | None = None) -> str:
    """Return how many there are as text, like `1,234 keys`; `several` is the plural of `what` if not in s."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


def moment(time_ms: int) -> str:
    """Return a time, in ms since 1970, as text: `2026-11-29T23:00:00Z`; as the number if no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def lasting(duration_ms: float) -> str:
    """Return a duration, in ms, as text, to three digits: `12 s`, `3.5 h`, `8.2 d`."""
    for unit, worth in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if duration_ms >= worth:
            return f"{duration_ms / worth:,.3g} {unit}"
    return f"{duration_ms:,.0f} ms"


def sized(size_bytes: float) -> str:
    """Return a size as text, rounded to three digits: `120 MB`, `1.19 GB`, `28.0 kB`; below 1 kB `12 bytes`."""
    rounded = float(f"{size_bytes:.3g}")  # first, so that 999,999 bytes are 1 MB, not 1,000 kB
    for unit, worth in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if rounded >= worth:
            number = rounded / worth
            return f"{number:,.0f} {unit}" if number >= 100 else f"{number} {unit}"
    return counted(round(size_bytes), "byte")


class _Local:
    """An annotation for pydantic: a path, with `expand_home`."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(expand_home, handler(source))


LocalPath = Annotated[Path, _Local()]

_NUMBER = r"[0-9]+(_[0-9]+)*(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?"
_QUANTITY = re.compile(rf"\s*(?P<number>-?{_NUMBER})\s*(?P<unit>[A-Za-z]*(/[a-z]+)?)\s*")
_LENGTH_MAX = 40
NAME_BYTES_MAX = 255  # NAME_MAX of every file system in use

_PLAIN_WORDS = frozenset(
    ("", "~", "null", "true", "false", "yes", "no", "on", "off", "nan", "inf", "-inf")
)
_PLAIN = re.compile(
    r"\s?(?P<number>[+-]?([0-9]+(_[0-9]+)*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?)"
    r"\s?(?P<unit>%|[A-Za-z]{0,3}(/[A-Za-z]{1,3})?)\s?"
)
_PLAIN_NUMBER_MAX = 12
_PLAIN_UNIT_MAX = 3
_QUOTED = (
    0.75  # the likeness of what is quoted; by that of a guess, `password1` would resemble `pass`
)


def _is_plain(text: str) -> bool:
    """Whether a text is a short number, or a word for a truth value, for nothing or for no number."""
    match = _PLAIN.fullmatch(text)
    if match is None:
        return text.lower() in _PLAIN_WORDS
    number, unit = match["number"].replace("_", ""), match["unit"].replace("/", "")
    return len(number) <= _PLAIN_NUMBER_MAX and len(unit) <= _PLAIN_UNIT_MAX


def _natural(value: object, scale: _Scale, *, bare: bool = True) -> int:
    number = _whole(_read(value, scale, bare=bare), scale)
    if number < 0:
        raise ValueError("out of range, must be 0 or more")
    return number


def _read(value: object, scale: _Scale, *, bare: bool = True) -> Fraction:
    """Return the exact value in the scale's base unit. Raises ValueError with the remedy."""
    match = _QUANTITY.fullmatch(_text(value)[: _LENGTH_MAX + 1])
    if match is None or len(match[0]) > _LENGTH_MAX:
        raise ValueError(f"is not {scale.noun}; write one like {' or '.join(scale.examples)}")
    unit = match["unit"]
    if unit and unit not in scale.units:
        which = "an unknown unit" if quote(value) is None else f"the unknown unit {unit!r}"
        raise ValueError(f"has {which}; {_advice(unit, scale)}")
    number = Fraction(match["number"].replace("_", ""))
    if number and not (unit or bare):
        raise ValueError("has no unit; write one, as in 7d, 90s or 250ms")
    return number * (scale.units[unit] if unit else 1)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return ""


def _advice(unit: str, scale: _Scale) -> str:
    near = [known for known in scale.units if known.lower() in {unit.lower(), f"{unit.lower()}ib"}]
    if near:
        return f"did you mean {near[0]}?"
    return f"known are {', '.join(known for known in scale.units if known)}"


def _whole(exact: Fraction, scale: _Scale) -> int:
    if exact.denominator != 1:
        smallest = next(iter(scale.units))
        raise ValueError(f"must come to a whole number{f' of {smallest}' if smallest else ''}")
    return exact.numerator


def _write(exact: Fraction, scale: _Scale) -> str:
    """Write a value in the largest unit of which it is a whole multiple, otherwise in the base unit."""
    fitting = [
        (worth, unit) for unit, worth in scale.units.items() if (exact / worth).denominator == 1
    ]
    if exact and fitting:
        worth, unit = max(fitting)
        return f"{(exact / worth).numerator}{unit}"
    base = next(unit for unit, worth in scale.units.items() if worth == 1)
    return f"{exact.numerator if exact.denominator == 1 else repr(float(exact))}{base}"


def _scale(
    noun: str, examples: tuple[str, ...], units: Mapping[str, int | Fraction], whole: bool
) -> _Scale:
    exact = {unit: Fraction(worth) for unit, worth in units.items()}
    return _Scale(noun, examples, MappingProxyType(exact), whole)


_SECONDS = _scale(
    "a duration",
    ("90s", "5m"),
    {"ms": Fraction(1, 1000), "s": 1, "m": 60, "h": 3600, "d": 86_400},
    whole=False,
)
_MILLISECONDS = _scale(
    "a duration",
    ("250ms", "1s"),
    {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000},
    whole=True,
)
_BYTES = _scale(
    "a size",
    ("64MiB", "64MB"),
    {
        "B": 1,
        "kB": 10**3,
        "MB": 10**6,
        "GB": 10**9,
        "TB": 10**12,
        "KiB": 2**10,
        "MiB": 2**20,
        "GiB": 2**30,
        "TiB": 2**40,
    },
    whole=True,
)
_COUNT = _scale(
    "an integer", ("100_000", "100M"), {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}, whole=True
)
_RATE = _scale(
    "a rate",
    ("2000/s", "100M/d"),
    {
        f"{many}/{time}": Fraction(of_many, seconds)
        for time, seconds in {"s": 1, "m": 60, "h": 3600, "d": 86_400}.items()
        for many, of_many in {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}.items()
    },
    whole=False,
)
