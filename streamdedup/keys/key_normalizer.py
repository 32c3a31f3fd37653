"""Normalization for programs: of keys by themselves, and of all keys that a filter is given.

A filter that normalizes has a `NormalizingHash`, so whatever hashes a key normalizes it first. What it saves says how.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, Self, cast, get_args

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from streamdedup.errors import ConfigError, MalformedError
from streamdedup.events import Column
from streamdedup.keys.encoding import Key, utf8
from streamdedup.keys.hashing import Bytes, Digests, Hash, KeyColumn, Offsets, columns_of
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import EmailPreset, EmailRules, Normalization, UrlRules
from streamdedup.units import nearest

NAMES = tuple(name for name in get_args(Normalization) if name != "none")
SHOWN_MAX = 60  # the characters of a value that a message shows
_RULES = {
    "email": ("preset", *(each.name for each in fields(EmailRules))),
    "url": tuple(each.name for each in fields(UrlRules)),
}


class NormalizedColumn(NamedTuple):
    """`keys` of all rows that have one, in order, as `digests` takes them; and why each other row is `malformed`."""

    keys: tuple[memoryview, npt.NDArray[np.int64]]
    malformed: dict[int, str]


@dataclass(frozen=True)
class KeyNormalizer:
    """Changes keys as `key.normalize: name` of the worker does, by the same `rules`."""

    name: Normalization
    rules: EmailRules | UrlRules | None = None

    @classmethod
    def of(cls, name: object, **rules: object) -> Self:
        """Return the normalizer of this name; `streamdedup.normalizer` documents the rules and the errors."""
        if name not in NAMES:
            raise ConfigError(
                f"normalize {name!r:.{SHOWN_MAX}} is unknown; choose one of: {', '.join(NAMES)}"
            )
        name, given = cast("Normalization", name), cast("dict[str, Any]", dict(rules))
        for rule, value in given.items():
            _check_rule(name, rule, value)
        if name == "email":
            return cls(name, EmailRules.of(given.pop("preset", "provider"), **given))
        ignored = given.pop("ignore", ())
        return cls(name, UrlRules.of(ignored, **given) if name == "url" else None)

    @property
    def id(self) -> str:
        """What keys depend on: name, version, rules, and the tables of Python and its libraries."""
        return self._normalizer.id

    def key(self, key: str | bytes) -> str:
        """Return one key, normalized. Raises MalformedError if it has no such form, TypeError if it is no text."""
        return self._normalizer.of_key(utf8(_passed(key))).decode()

    def column(self, keys: Any) -> NormalizedColumn:  # noqa: ANN401 - see `Hash.digests`
        """Return many keys, normalized. `keys` is as for `digests`, with its errors, but all are `str` or `bytes`."""
        columns = _columns_of(keys)
        malformed, pieces, sizes, before = dict[int, str](), list[Bytes](), list[Offsets](), 0
        for column in columns:
            found, reasons = self.of_column(column)
            malformed |= {before + row: why for row, why in reasons.items()}
            before += len(found)
            found = found.take(np.flatnonzero(found.sizes >= 0))
            pieces.append(_packed(found))
            sizes.append(found.sizes)
        offsets = np.concatenate([[0], *sizes]).cumsum(dtype=np.int64)
        buffer = np.concatenate([np.empty(0, dtype=np.uint8), *pieces])
        return NormalizedColumn((buffer.data, offsets), malformed)

    def of_column(self, keys: KeyColumn) -> tuple[Column, dict[int, str]]:
        """Return the normalized key of each row, and why a row has none. ValueError if one ends before it starts."""
        starts, ends = (edges.astype(np.int64) for edges in (keys.starts, keys.ends))
        wrong = np.flatnonzero((ends < starts) | (starts < 0))
        if len(wrong):
            raise ValueError(f"row {wrong[0]} is not within its buffer")
        buffer = cast("bytes", keys.buffer.data)
        return self._normalizer.of_column(Column(buffer, starts, ends - starts))

    def header(self) -> dict[str, Any]:
        """Return what is saved with a filter, as plain JSON values."""
        return {"id": self.id, "name": self.name, "rules": self.rules and asdict(self.rules)}

    @classmethod
    def from_header(cls, raw: object) -> Self:
        """Return the normalizer that gave this header. ValueError if it makes other keys here, or if none gave it."""
        if not isinstance(raw, Mapping) or not isinstance(raw.get("rules") or {}, Mapping):
            raise ValueError(f"normalize {raw!r:.{SHOWN_MAX}} is not a normalization")
        try:
            made = cls.of(raw.get("name"), **(raw.get("rules") or {}))
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if made.id != raw.get("id"):
            raise ValueError(
                f"its keys were normalized by {raw.get('id')!r}, and would be asked for by {made.id!r}, which makes"
                " others; load it by a version of Python and streamdedup that makes the same, or build it again"
            )
        return made

    @cached_property
    def _normalizer(self) -> Normalizer:
        made = normalizer(self.name, self.rules)
        assert made is not None  # noqa: S101 - `none` is no name
        return made


class _Done(str):
    """A key that is normalized."""

    __slots__ = ()


@dataclass(frozen=True)
class NormalizingHash(Hash):
    """A hash that normalizes keys first. Raises MalformedError for a key that has no normalized form.

    Raises TypeError for a key that is neither `str` nor `bytes`.
    """

    normalizing: KeyNormalizer = field(default_factory=lambda: KeyNormalizer("trim"))

    @classmethod
    def over(cls, plain: Hash, normalizing: KeyNormalizer) -> Self:
        """Return `plain`, of keys that `normalizing` changed."""
        return cls(plain.name, plain.key, plain.drawn, normalizing)

    @cached_property
    @override
    def check(self) -> str:
        return Hash(self.name, self.key).check

    @property
    @override
    def facts(self) -> Mapping[str, Any]:
        return {"normalize": self.normalizing.header()}

    @override
    def signed(self, key: Key) -> tuple[int, int]:
        return super().signed(self.normalized(key))

    def normalized(self, key: Key) -> str:
        """Return one key, normalized, unless it is `done`."""
        return key if type(key) is _Done else self.normalizing.key(cast("str | bytes", key))

    def done(self, key: str) -> str:
        """Return a normalized key, which this hash does not normalize again."""
        return _Done(key)

    @override
    def digests(self, keys: Any) -> Digests:
        columns = _columns_of(keys)
        return self._of_chunks(sum(len(column.starts) for column in columns), columns)

    @override
    def _of_chunks(self, rows: int, columns: Iterable[KeyColumn]) -> Digests:
        return super()._of_chunks(rows, self._normalized(columns))

    def _normalized(self, columns: Iterable[KeyColumn]) -> Iterator[KeyColumn]:
        before = 0
        for column in columns:
            found, malformed = self.normalizing.of_column(column)
            for row, why in malformed.items():
                raise MalformedError(
                    f"key {before + row} has no form of normalize {self.normalizing.name}: {why}; leave it out, see"
                    " streamdedup.normalizer"
                )
            yield KeyColumn(
                np.frombuffer(found.buffer, dtype=np.uint8),
                found.starts,
                found.starts + found.sizes,
            )
            before += len(found)


def _columns_of(keys: Any) -> Sequence[KeyColumn]:  # noqa: ANN401 - see `Hash.digests`
    """Return the columns of `keys`. A lone surrogate is no UTF-8 there, so only its own row is malformed."""
    _, columns = columns_of(keys, texts_only=True)
    try:
        return list(columns)
    except ValueError:
        _, columns = columns_of(list(map(_passed, keys)), texts_only=True)
        return list(columns)


def _passed(key: Any) -> Any:  # noqa: ANN401 - `utf8` refuses what is no key
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key


def _check_rule(name: Normalization, rule: str, value: object) -> None:
    """Raise ConfigError unless `rule` is one of the normalization `name`, and may have this value."""
    known = _RULES.get(name, ())
    if rule not in known:
        near = nearest(rule, known)
        advice = f"did you mean {near}?" if near else f"it takes {', '.join(known) or 'none'}"
        raise ConfigError(f"normalize {name} has no rule {rule:.{SHOWN_MAX}}; {advice}")
    if rule == "ignore":
        if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
            return
        raise ConfigError(
            f"normalize {name}: {rule} is of type {type(value).__name__}; it must be a list of str"
        )
    choices = get_args(EmailPreset) if rule == "preset" else (True, False)
    if not any(value is choice or (rule == "preset" and value == choice) for choice in choices):
        raise ConfigError(
            f"normalize {name}: {rule} is {value!r:.{SHOWN_MAX}}; it must be {' or '.join(map(str, choices))}"
        )


def _packed(keys: Column) -> Bytes:
    """Return the bytes of all keys, one after the other."""
    buffer = np.frombuffer(keys.buffer, dtype=np.uint8)
    before = keys.sizes.cumsum() - keys.sizes
    if (keys.starts == before).all():  # as a kernel writes them
        return buffer[: keys.sizes.sum()]
    found: Bytes = buffer[np.repeat(keys.starts - before, keys.sizes) + np.arange(keys.sizes.sum())]
    return found
