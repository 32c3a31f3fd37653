"""A field of values in JSON, as a column of keys: how its path is written, what it leads to, and why a row has no key.

A reason never holds the key.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from streamdedup.events import Column, Integers
from streamdedup.keys.formats.json_kinds import AT_BYTE, FAULTS, NAMES, Kind, Kinds
from streamdedup.keys.formats.schema_registry import LOOKS_REGISTERED, PREFIX_BYTES
from streamdedup.keys.parts import Cells, Reader

_FRAMED = (
    f"the value {LOOKS_REGISTERED}: set key.format to that of its serializer, or take the record key"
    " (key.from: key)"
)
_OTHERS = {int(kind): what for kind, what in FAULTS.items()} | {Kind.NO_TEXT: "the value is null"}


def json_reader(fields: Sequence[str], texts: Column) -> Reader:
    """Return what reads one of `fields` in some rows of `texts`, which are plain JSON."""
    from streamdedup.keys.formats import json_column  # imported here: few use its kernels

    paths = list(dict.fromkeys(map(steps_of, fields)))
    plain = dict(zip(paths, json_column.located_all(paths, texts), strict=True))

    def read(field: str, rows: Integers | slice) -> Cells:
        steps = steps_of(field)
        return _completed(steps, plain[steps].take(rows), texts.take(rows))

    return read


def of_one_field(field: str, texts: Column) -> Cells:
    """Return what `field` leads to in `texts`, which are plain JSON."""
    return json_reader([field], texts)(field, slice(None))


def _completed(steps: tuple[str, ...], keys: Column, texts: Column) -> Cells:
    """Return `keys` with those that only the exact reader finds in `texts`, and why each other row has none."""
    from streamdedup.keys.formats import json_exact  # imported here: few use its kernels

    left = (keys.sizes < 0).nonzero()[0]
    if not len(left):
        return Cells(keys, {}, left)
    found, kinds, places = json_exact.read(steps, texts.take(left))
    keys = keys.placed(left, found)
    escaped = left[kinds == Kind.ESCAPED]
    if len(escaped):
        keys = keys.replaced(escaped, json_exact.decoded(keys.take(escaped)))
    absent = left[(kinds == Kind.MISSING) | (kinds == Kind.NULL)]
    return Cells(keys, _reasons(steps, texts.take(left), left, kinds, places), absent)


def _reasons(
    steps: tuple[str, ...], texts: Column, rows: Integers, kinds: Kinds, places: Integers
) -> dict[int, str]:
    """Return, by its row in `rows`, why each of `texts` has no key if its kind says so."""
    name = name_of(steps)
    reasons = {int(kind): f"the field {name} is {what}" for kind, what in NAMES.items()}
    reasons |= _OTHERS
    without = (kinds > Kind.ESCAPED).nonzero()[0]
    whats = map(reasons.__getitem__, kinds[without].tolist())
    why = dict(zip(rows[without].tolist(), whats, strict=True))
    wrong = ((kinds >= Kind.EMPTY) & (texts.sizes >= PREFIX_BYTES)).nonzero()[0]
    buffer = np.frombuffer(texts.buffer, dtype=np.uint8)
    framed = wrong[buffer[texts.starts[wrong]] == 0]
    if len(framed):
        why.update(zip(rows[framed].tolist(), _looks(texts.take(framed)), strict=True))
        places[framed] = 0
    placed = places.nonzero()[0]
    for row, place in zip(rows[placed].tolist(), places[placed].tolist(), strict=True):
        why[row] += f"{AT_BYTE}{place}"
    return why


def _looks(texts: Column) -> Iterator[str]:
    """Return why each of `texts`, which begin as a serializer's do, is no JSON."""
    buffer = np.frombuffer(texts.buffer, dtype=np.uint8)
    heads = buffer[texts.starts[:, None] + np.arange(1, PREFIX_BYTES)].view(">u4")
    numbers, which = np.unique(heads, return_inverse=True)
    whys = list(map(_FRAMED.__mod__, numbers.tolist()))
    return map(whys.__getitem__, which.ravel().tolist())


def canonical(field: str) -> str:
    """Return the dotted path of a field of JSON, also if it is written as a pointer; a pointer that has none stays."""
    steps = steps_of(field)
    has_dotted = all(steps) and not any("." in step for step in steps) and steps[0][0] != "/"
    return ".".join(steps) if has_dotted else field


def steps_of(field: str) -> tuple[str, ...]:
    """Return the steps of a field's path, which is dotted or a pointer: each a name, or the index of an element."""
    if not field.startswith("/"):
        return tuple(field.split("."))
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in field[1:].split("/"))


def name_of(steps: tuple[str, ...]) -> str:
    """Return how a reason names the path of these steps."""
    return "/" + "/".join(steps) if any("." in step for step in steps) else ".".join(steps)
