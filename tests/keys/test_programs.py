"""Claims about the programs of many schemas: equal ones share theirs, and their total is bounded. No key is lost."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

from streamdedup.errors import DeliveryError
from streamdedup.events import Column
from streamdedup.keys.extract import Keys
from streamdedup.keys.formats import programs, schemas
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import Reference, Schema
from streamdedup.keys.formats.schemas import Known, Schemas
from tests.keys.avro import framed, record
from tests.keys.test_avro import zigzag
from tests.rows import table

PATHS = [("id",), ("e",), ("gone",)]
MANY = 40


def schema(number: int) -> Schema:
    """Return a schema that no other number has: its symbol is the number, and the id stands behind many fields."""
    symbols = {"type": "enum", "name": "C", "symbols": [f"S{number}"]}
    fields = [(f"f{at}", "int") for at in range(number % 7)]
    return Schema("AVRO", json.dumps(record(*fields, ("e", symbols), ("id", "string"))))


def value(number: int, key: bytes) -> bytes:
    """Return a value of that schema."""
    return framed(number, b"\2" * (number % 7) + b"\0" + zigzag(len(key)) + key)


def taken(numbers: Sequence[int]) -> Schemas:
    """Return the schemas that took those of the numbers."""
    made = Schemas("avro", PATHS)
    for number in numbers:
        made.unresolved(Column.of([value(number, b"")]))
        made.take(number, made.compiled(schema(number)))
    return made


def keys_of(known: Known, number: int) -> list[bytes | None]:
    """Return the key of each field of a value of that schema."""
    return [
        known.read(which, Column.of([value(number, b"k")]))[0][0] for which in range(len(PATHS))
    ]


@table(
    [
        [schema(1)] * MANY,  # registered under many subjects
        [Schema("AVRO", schema(1).text + " " * (number % 2)) for number in range(MANY)],
        [Schema("AVRO", schema(1).text, (Reference("r", '"int"'),))] * MANY,
    ]
)
def test_equal_schemas_share_their_programs(others: list[Schema]) -> None:
    """Each is compiled once, and takes memory once, whatever the ids are."""
    made = Schemas("avro", PATHS)
    for number, each in enumerate(others):
        made.take(number, made.compiled(each))
    one = sum(len(each.code) for each in Schemas("avro", PATHS).compiled(schema(1)).programs)
    assert one <= made.known.programs.used <= 2 * one
    assert made.compiled(others[0]).programs == ()
    assert [
        made.known.read(0, Column.of([framed(at, value(1, b"k")[5:])]))[0][0] for at in (0, 9)
    ] == [b"k", b"k"]


def test_those_that_were_not_met_lately_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that stay find the same keys; what is dropped is unresolved, as if it had never been known."""
    monkeypatch.setattr(programs, "TOTAL_MAX", 100)
    made = taken(range(1, 4))
    for number in range(4, MANY):
        made.unresolved(Column.of([value(2, b"")]))
        made.take(number, made.compiled(schema(number)))
        assert made.known.programs.used <= 100 * len(PATHS)
        assert keys_of(made.known, number) == [b"k", f"S{number}".encode(), None]
        assert keys_of(made.known, 2) == [b"k", b"S2", None]  # met all the time
    known = [number for number in range(1, MANY) if made.knows(number)]
    assert 2 in known
    assert len(known) < MANY // 2
    for number in range(1, MANY):
        column = Column.of([value(number, b"k")])
        assert made.unresolved(column) == ([] if number in known else [number])
        if number in known:
            assert keys_of(made.known, number) == [b"k", f"S{number}".encode(), None]
            assert not made.known.has_field(2, number)
        else:
            assert made.known.read(0, column)[1][0] == FramedKind.UNKNOWN
            made.take(number, made.compiled(schema(number)))
            assert keys_of(made.known, number)[1] == f"S{number}".encode()
            known = [each for each in range(1, MANY) if made.knows(each)]


def test_the_ids_that_are_known_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one schema, and those that cannot be read, too; what snapshots need of them is kept."""
    monkeypatch.setattr(schemas, "IDS_MAX", 20)
    made = Schemas("avro", PATHS)
    for number in range(200):
        text = schema(1) if number % 2 else Schema("AVRO", "{")
        made.unresolved(Column.of([framed(number, b"")]))
        made.take(number, made.compiled(text))
    assert len(made.known.ids) <= 20
    assert len(made.met) <= 20
    assert set(made.known.notes) <= set(made.known.ids.tolist())
    assert made.knows(199)


def test_the_digest_of_what_was_dropped_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id never gets another schema, in one life of a worker and across its snapshots."""
    monkeypatch.setattr(programs, "TOTAL_MAX", 100)
    made = taken(range(1, MANY))
    assert not made.knows(1)
    assert made.met[1] == schema(1).digest
    with pytest.raises(DeliveryError, match="schema 1 is another"):
        made.take(1, made.compiled(schema(2)))


def test_keys_of_parts_are_those_of_the_whole() -> None:
    """Rows count on."""
    parts = [
        Keys(Column.of([b"a", None, b"c"]), {1: "why"}, [], [], {}),
        Keys(Column.of([None, b"bb", None]), {}, [0], [], {2: "unknown"}),
        Keys(Column.of([None]), {}, [], [0]),
    ]
    joined = Keys.joined(parts)
    assert list(joined.keys) == [b"a", None, b"c", None, b"bb", None, None]
    assert (joined.malformed, joined.unknown) == ({1: "why"}, {5: "unknown"})
    assert (list(joined.unjudged), list(joined.dropped)) == ([3], [6])
    assert Keys.joined(parts[:1]) is parts[0]
    assert np.all(joined.keys.sizes[[0, 4]] == [1, 2])
