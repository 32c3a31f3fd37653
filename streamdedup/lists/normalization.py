"""How the keys of a list were normalized before hashing. Its file records this, so that it can be repeated."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, cast, get_args

from streamdedup.errors import SnapshotError
from streamdedup.events import Column, Integers
from streamdedup.keys.normalizers import domains, host_column, normalizer
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import EmailRules, Normalization, UrlRules
from streamdedup.snapshot.header import field

_RULES: dict[str, type[EmailRules] | type[UrlRules]] = {"email": EmailRules, "url": UrlRules}
NONE = "none"  # the id if keys stay as they are; snapshots use the same


@dataclass(frozen=True)
class Normalizing:
    """`name` is a value of `key.normalize`. `rules` are those of "email" or "url", and None for all others."""

    name: Normalization = "none"
    rules: EmailRules | UrlRules | None = None

    def normalizer(self) -> Normalizer | None:
        """Return the normalizer; None if keys stay as they are."""
        return normalizer(self.name, self.rules)

    @property
    def id(self) -> str:
        """The id of the normalizer in this version of streamdedup."""
        return id_of(self.normalizer())

    @property
    def knows_domains(self) -> bool:
        """Whether a list may hold domains in the place of keys: those of addresses, or the hosts of URLs."""
        return self.name in _RULES

    def candidates(self, keys: Column) -> tuple[Integers, Column]:
        """Return, for each key by which a list may hold the domain of a key, its row of `keys`, ascending, and the key.

        The domain of a URL is its host.
        """
        if isinstance(self.rules, UrlRules):
            return host_column.candidates(keys, drops_www=self.rules.www)
        return domains.candidates(keys)

    def header(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        rules = self.rules and asdict(self.rules)
        if isinstance(self.rules, UrlRules):
            rules = {**(rules or {}), "ignore": list(self.rules.ignore)}
        return {"name": self.name, "email": None, **({self.name: rules} if rules else {})}

    @classmethod
    def from_header(cls, raw: Mapping[str, Any]) -> Self:
        """Return the normalizing that gave this header. SnapshotError if none did."""
        name = raw.get("name")
        if name not in get_args(Normalization):
            raise SnapshotError(f"its normalizer {name!r} is unknown to this streamdedup")
        if name not in _RULES:
            return cls(cast("Normalization", name))
        rules, stated = _RULES[name], field(raw, name, dict)
        given = {
            each.name: field(stated, each.name, bool)
            for each in fields(rules)
            if each.name != "ignore"
        }
        if rules is EmailRules:
            return cls(cast("Normalization", name), rules(**given))
        ignored = field(stated, "ignore", list)
        if not all(isinstance(each, str) for each in ignored):
            raise SnapshotError("its normalizer ignores parameters without a name")
        return cls(cast("Normalization", name), UrlRules.of(ignored, **given))


AS_THEY_ARE = Normalizing()


def id_of(found: Normalizer | None) -> str:
    """Return the normalizer's id, `none` if there is no normalizer."""
    return found.id if found else NONE
