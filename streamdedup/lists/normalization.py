"""What was done to the keys of a list before they were hashed, as its file tells it, so that it can be done again."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, cast, get_args

from streamdedup.errors import SnapshotError
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import EmailRules, Normalization
from streamdedup.snapshot.header import field

NONE = "none"  # the id where keys stay as they are, as in snapshots


@dataclass(frozen=True)
class Normalizing:
    """As `key.normalize`; `email` has the rules of that one, and is None for the others."""

    name: Normalization = "none"
    email: EmailRules | None = None

    @classmethod
    def of(cls, name: Normalization, rules: EmailRules) -> Self:
        """The same with `rules` only where they mean something."""
        return cls(name, rules if name == "email" else None)

    def normalizer(self) -> Normalizer | None:
        """What does it; None where keys stay as they are."""
        return normalizer(self.name, self.email)

    @property
    def id(self) -> str:
        """That of the normalizer, as this version of streamdedup has it."""
        return id_of(self.normalizer())

    def header(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"name": self.name, "email": self.email and asdict(self.email)}

    @classmethod
    def from_header(cls, raw: Mapping[str, Any]) -> Self:
        """What gave this header; SnapshotError where nothing did."""
        name = raw.get("name")
        if name not in get_args(Normalization):
            raise SnapshotError(f"its normalizer {name!r} is unknown to this streamdedup")
        if name != "email":
            return cls(cast("Normalization", name))
        given = {
            each.name: field(field(raw, "email", dict), each.name, bool)
            for each in fields(EmailRules)
        }
        return cls("email", EmailRules(**given))


AS_THEY_ARE = Normalizing()


def id_of(found: Normalizer | None) -> str:
    """The normalizer's id, `none` where there is none."""
    return found.id if found else NONE
