"""The keys of one field of values that a Schema Registry's serializer framed, and the reasons of those without one."""

from collections.abc import Callable

import numpy as np

from streamdedup.events import Column
from streamdedup.keys.formats.framed_kinds import NAMES, FramedKind, FramedKinds
from streamdedup.keys.formats.schema_registry import UNKNOWN_SCHEMA
from streamdedup.keys.formats.schemas import Schemas
from streamdedup.keys.parts import Found


def of_framed_field(
    schemas: Schemas, which: int, name: str, values: Column, of_json: Callable[[Column], Found]
) -> Found:
    """Return the keys of the field of that number and name; `of_json` finds those of values without a frame."""
    keys, kinds = schemas.read(which, values)
    plain = (kinds == FramedKind.UNFRAMED).nonzero()[0]
    if len(plain) == len(values):
        return of_json(values)
    malformed = _reasons(schemas, which, name, values, kinds)
    absent = ((kinds == FramedKind.MISSING) | (kinds == FramedKind.NULL)).nonzero()[0]
    if len(plain):
        found = of_json(values.take(plain))
        keys = keys.replaced(plain, found.keys)
        malformed |= {int(plain[row]): reason for row, reason in found.malformed.items()}
        absent = np.union1d(absent, plain[found.absent])
    return Found(keys, dict(sorted(malformed.items())), absent)


def _reasons(
    schemas: Schemas, which: int, name: str, values: Column, kinds: FramedKinds
) -> dict[int, str]:
    """Return, by its row, why each framed value has no key."""
    without = ((kinds != FramedKind.KEY) & (kinds != FramedKind.UNFRAMED)).nonzero()[0]
    if not len(without):
        return {}
    from streamdedup.keys.formats.framing import ids_of  # imported here, because it imports numba

    found = zip(without.tolist(), kinds[without].tolist(), strict=True)
    ids = ids_of(values.take(without)).tolist()
    return {
        row: _reason(schemas, which, name, FramedKind(kind), number)
        for (row, kind), number in zip(found, ids, strict=True)
    }


def _reason(schemas: Schemas, which: int, name: str, kind: FramedKind, number: int) -> str:
    match kind:
        case FramedKind.UNKNOWN:
            return f"of schema {number}, {UNKNOWN_SCHEMA}"
        case FramedKind.UNREADABLE:
            return f"no key can be found by schema {number}: {schemas.why_not(number)}"
        case FramedKind.UNFIT:
            return f"the value does not fit schema {number}"
        case FramedKind.TOO_DEEP:
            return "the value is nested deeper than 64 levels"
        case FramedKind.MISSING if not schemas.has_field(which, number):
            return f"the field {name} is missing: schema {number} has no such field"
    return f"the field {name} is {NAMES[kind]}"
