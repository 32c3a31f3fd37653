"""What a list's header holds besides its filters: its name, when it was built, from what, and how."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Self

from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.lists.normalization import Normalizing
from streamdedup.snapshot.header import field, number
from streamdedup.units import counted, quote

NAME_CHARACTERS_MAX = 100
_LAST_SECOND = 253402300799  # the last that `datetime` can express: the end of the year 9999


def check_name(name: str) -> None:
    """ConfigError if a list must not have that name, which appears in headers of events, logs and metrics."""
    if not _is_name(name):
        which = "--name" if (given := quote(name)) is None else f"--name {given}"
        raise ConfigError(
            f"{which}: the name of a list has 1 to {NAME_CHARACTERS_MAX} printable characters"
        )


def shown_rate(kind: str, error_rate: float) -> str:
    """Return, as text, how often a list of this kind errs: of `exact`, whatever rate was asked for."""
    return "n/2^64" if kind == "exact" else f"{error_rate:.3g}"


def _is_name(text: str) -> bool:
    return text.isprintable() and 0 < len(text) <= NAME_CHARACTERS_MAX


def _name(raw: Mapping[str, Any], name: str) -> str:
    """Return a text of the header that is shown. SnapshotError if it is none that a build writes."""
    if not _is_name(text := field(raw, name, str)):
        raise SnapshotError(
            f"its {name} is no text of 1 to {NAME_CHARACTERS_MAX} printable characters"
        )
    return text


@dataclass(frozen=True)
class EntryCounts:
    """What the inputs held: distinct `addresses`, distinct keys of `domains`, repeated entries, and `bad` lines.

    `blank` are comments and blank lines, `at_signs` the comments that hold an @, and `empty` the empty values of CSV
    and JSON. The filter reports what it added. A filter that is filled key by key takes some new entries for
    duplicates.
    """

    addresses: int
    domains: int
    duplicates: int
    bad: int
    blank: int = 0
    at_signs: int = 0
    empty: int = 0

    def left_out(self, kind: str) -> str:
        """Return what was left out, in words; `kind` is that of the filter."""
        taken = self.duplicates and kind not in ("fuse", "exact")  # it adds keys one by one
        text = f"{counted(self.duplicates, 'duplicate')}{' or taken for such by the filter' if taken else ''}"
        text += f", {counted(self.bad, 'bad line')}"
        if self.blank:
            text += (
                f", {self.blank:,} comments and blank lines"
                if self.blank > 1
                else ", 1 comment or blank line"
            )
        if self.at_signs:
            text += f" ({counted(self.at_signs, 'comment')} hold{'' if self.at_signs > 1 else 's'} an @)"
        return text + (f", {counted(self.empty, 'empty value')}" if self.empty else "")


_ZERO_IF_ABSENT = {"blank": 0, "at_signs": 0, "empty": 0}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """`built_at` is in Unix seconds, `normalize` the id of the normalizer, `checksum` that of the contents."""

    name: str
    built_at: int
    normalizing: Normalizing
    normalize: str
    counts: EntryCounts
    checksum: str

    @property
    def moment(self) -> datetime:
        """When it was built, in UTC."""
        return datetime.fromtimestamp(self.built_at, UTC)

    @property
    def version(self) -> str:
        """The time of the build, in UTC, and the checksum. Equal checksums show equal contents."""
        return f"{self.moment:%Y-%m-%dT%H:%M:%SZ}-{self.checksum}"

    def header(self) -> dict[str, Any]:
        """Return these facts as plain JSON values."""
        return {
            "name": self.name,
            "built_at": self.built_at,
            "normalization": self.normalizing.header(),
            "normalize": self.normalize,
            "counts": {
                name: count
                for name, count in asdict(self.counts).items()
                if count or name not in _ZERO_IF_ABSENT
            },
            "checksum": self.checksum,
        }

    @classmethod
    def from_header(cls, raw: Mapping[str, Any]) -> Self:
        """Return the facts that gave this header. SnapshotError if none did."""
        counts = _ZERO_IF_ABSENT | field(raw, "counts", dict)
        return cls(
            name=_name(raw, "name"),
            built_at=number(raw, "built_at", 0, _LAST_SECOND),
            normalizing=Normalizing.from_header(field(raw, "normalization", dict)),
            normalize=_name(raw, "normalize"),
            counts=EntryCounts(
                **{each.name: number(counts, each.name, 0) for each in fields(EntryCounts)}
            ),
            checksum=_name(raw, "checksum"),
        )
