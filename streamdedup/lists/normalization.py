"""How the keys of a list were normalized before hashing. Its file records this, so that it can be repeated."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, cast, get_args

from streamdedup.errors import SnapshotError
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import EmailRules, Normalization
from streamdedup.snapshot.header import field

NONE = "none"  # the id if keys stay as they are; snapshots use the same


@dataclass(frozen=True)
class Normalizing:
    """`name` is a value of `key.normalize`. `email` holds the rules of "email", and is None for all others."""

    name: Normalization = "none"
    email: EmailRules | None = None

    @classmethod
    def of(cls, name: Normalization, rules: EmailRules) -> Self:
        """Return the normalizing of this name. `rules` are kept only if it is "email"."""
        return cls(name, rules if name == "email" else None)

    def normalizer(self) -> Normalizer | None:
        """Return the normalizer; None if keys stay as they are."""
        return normalizer(self.name, self.email)

    @property
    def id(self) -> str:
        """The id of the normalizer in this version of streamdedup."""
        return id_of(self.normalizer())

    def header(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"name": self.name, "email": self.email and asdict(self.email)}

    @classmethod
    def from_header(cls, raw: Mapping[str, Any]) -> Self:
        """Return the normalizing that gave this header. SnapshotError if none did."""
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
    """Return the normalizer's id, `none` if there is no normalizer."""
    return found.id if found else NONE
