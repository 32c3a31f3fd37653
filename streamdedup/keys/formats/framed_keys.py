"""The keys of one field of values that a Schema Registry's serializer framed, and the reasons of those without one."""

from collections.abc import Callable

import numpy as np

from streamdedup.events import Column
from streamdedup.keys.formats.framed_kinds import NAMES, FramedKind, FramedKinds
from streamdedup.keys.formats.schema_registry import UNKNOWN_SCHEMA
from streamdedup.keys.formats.schemas import Known
from streamdedup.keys.parts import Cells

# What no JSON begins with: AWS Glue's header byte and its compression, Avro's single objects, and its files.
_NOT_READ = {
    b"\x03\x00": "AWS Glue Schema Registry data",
    b"\x03\x05": "AWS Glue Schema Registry data, compressed",
    b"\xc3\x01": "a single object of Avro",
    b"Obj\x01": "a file of Avro",
}


def of_framed_field(
    known: Known, which: int, name: str, values: Column, of_json: Callable[[Column], Cells]
) -> Cells:
    """Return the keys of the field of that number and name; `of_json` finds those of values without a frame."""
    keys, kinds = known.read(which, values)
    plain = (kinds == FramedKind.UNFRAMED).nonzero()[0]
    if len(plain) == len(values):
        found = of_json(values)
        return Cells(found.keys, _named(values, found.malformed), found.absent)
    malformed = _reasons(known, which, name, values, kinds)
    absent = ((kinds == FramedKind.MISSING) | (kinds == FramedKind.NULL)).nonzero()[0]
    if len(plain):
        found = of_json(values.take(plain))
        keys = keys.replaced(plain, found.keys)
        reasons = {int(plain[row]): reason for row, reason in found.malformed.items()}
        malformed |= _named(values, reasons)
        absent = np.union1d(absent, plain[found.absent])
    return Cells(keys, dict(sorted(malformed.items())), absent)


def _named(values: Column, reasons: dict[int, str]) -> dict[int, str]:
    """Return the reasons; of a value that has a frame that is not read, the name of that."""
    starts, sizes = values.starts, values.sizes
    for row in reasons:
        head = bytes(values.buffer[starts[row] : starts[row] + min(int(sizes[row]), 4)])
        what = next((what for begin, what in _NOT_READ.items() if head.startswith(begin)), "")
        if what:
            reasons[row] = f"the value looks like {what}, which is not read"
    return reasons


def _reasons(
    known: Known, which: int, name: str, values: Column, kinds: FramedKinds
) -> dict[int, str]:
    """Return, by its row, why each framed value has no key."""
    without = ((kinds != FramedKind.KEY) & (kinds != FramedKind.UNFRAMED)).nonzero()[0]
    if not len(without):
        return {}
    from streamdedup.keys.formats.framing import ids_of  # imported here: few use its kernels

    found = zip(without.tolist(), kinds[without].tolist(), strict=True)
    ids = ids_of(values.take(without)).tolist()
    return {
        row: _reason(known, which, name, FramedKind(kind), number)
        for (row, kind), number in zip(found, ids, strict=True)
    }


def _reason(known: Known, which: int, name: str, kind: FramedKind, number: int) -> str:
    match kind:
        case FramedKind.UNKNOWN:
            return f"of schema {known.name(number)}, {UNKNOWN_SCHEMA}"
        case FramedKind.UNREADABLE:
            return f"no key can be found by schema {known.name(number)}: {known.why_not(number)}"
        case FramedKind.UNFIT:
            return f"the value does not fit schema {known.name(number)}"
        case FramedKind.TOO_DEEP:
            return "the value is nested deeper than 64 levels"
        case FramedKind.MISSING if not known.has_field(which, number):
            return f"the field {name} is missing: schema {known.name(number)} has no such field"
    return f"the field {name} is {NAMES[kind]}"
