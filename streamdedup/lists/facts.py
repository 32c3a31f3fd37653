"""What the header of a list tells beside its filters: its name, when it was built, of what, and how."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Self

from streamdedup.errors import ConfigError
from streamdedup.lists.normalization import Normalizing
from streamdedup.snapshot.header import field, number
from streamdedup.units import counted

NAME_CHARACTERS_MAX = 100
_LAST_SECOND = 253402300799  # that has a date


def check_name(name: str) -> None:
    """ConfigError where no list can have that name, which stands in headers of events, logs and metrics."""
    if not name.isprintable() or not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise ConfigError(
            f"--name {name!r:.200}: the name of a list has 1 to {NAME_CHARACTERS_MAX} printable characters"
        )


@dataclass(frozen=True)
class EntryCounts:
    """What the inputs held: distinct `addresses` and keys of `domains`, those that came again, and `bad` lines.

    A filter tells what it added: of kinds that err as they are filled, some of what is new passes for a duplicate.
    """

    addresses: int
    domains: int
    duplicates: int
    bad: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """`built_at` is in Unix seconds; `normalize` is the id that the normalizer had; `checksum` is of what is held."""

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
        """When it was built, in UTC, and the checksum: equal contents show."""
        return f"{self.moment:%Y-%m-%dT%H:%M:%SZ}-{self.checksum}"

    def header(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "name": self.name,
            "built_at": self.built_at,
            "normalization": self.normalizing.header(),
            "normalize": self.normalize,
            "counts": asdict(self.counts),
            "checksum": self.checksum,
        }

    @classmethod
    def from_header(cls, raw: Mapping[str, Any]) -> Self:
        """What gave this header; SnapshotError where nothing did."""
        counts = field(raw, "counts", dict)
        return cls(
            name=field(raw, "name", str),
            built_at=number(raw, "built_at", 0, _LAST_SECOND),
            normalizing=Normalizing.from_header(field(raw, "normalization", dict)),
            normalize=field(raw, "normalize", str),
            counts=EntryCounts(
                **{each.name: number(counts, each.name, 0) for each in fields(EntryCounts)}
            ),
            checksum=field(raw, "checksum", str),
        )


def duplicates_told(kind: str, count: int) -> str:
    """How many entries were left out, in words: a kind that takes keys one by one takes some for duplicates."""
    taken = " or taken for such by the filter" if count and kind not in ("fuse", "exact") else ""
    return counted(count, "duplicate") + taken
