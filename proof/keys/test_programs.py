"""Claims about the programs of many schemas: what a reader knew, and what was placed before."""

import pytest

from streamdedup.events import Column
from streamdedup.keys.formats import programs
from streamdedup.keys.formats.programs import TOTAL_MAX
from streamdedup.keys.formats.schema import Schema
from streamdedup.keys.formats.schemas import Compiled, Schemas
from tests.keys.avro import framed
from tests.keys.test_programs import MANY, PATHS, schema, taken, value


def test_schemas_that_differ_in_white_space_of_a_name_share_nothing() -> None:
    """Although their digests in snapshots are equal."""
    texts = [schema(1).text.replace("S1", symbol) for symbol in ("S  1", "S 1")]
    assert Schema("AVRO", texts[0]).digest == Schema("AVRO", texts[1]).digest
    made = Schemas("avro", PATHS)
    for number, text in enumerate(texts):
        made.take(number, made.compiled(Schema("AVRO", text)))
    found = [made.known.read(1, Column.of([framed(at, value(1, b"")[5:])]))[0][0] for at in (0, 1)]
    assert found == [b"S  1", b"S 1"]


def test_a_reader_goes_on_by_what_it_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be in a thread while schemas are dropped, and moved."""
    monkeypatch.setattr(programs, "TOTAL_MAX", 100)
    made = taken([1])
    before = made.known
    for number in range(2, MANY):
        made.unresolved(Column.of([value(number, b"")]))
        made.take(number, made.compiled(schema(number)))
    assert not made.knows(1)
    column = Column.of([value(1, b"k"), value(MANY - 1, b"k")])
    assert list(before.read(1, column)[0]) == [b"S1", None]
    assert list(made.known.read(1, column)[0]) == [None, f"S{MANY - 1}".encode()]


def test_what_is_taken_was_placed_before() -> None:
    """In a thread: here nothing is copied. What was dropped since it was compiled is compiled again."""
    made = taken([1])
    compiled = made.compiled(schema(2))
    placed = made.placed(compiled)
    made.take(2, compiled, placed)
    assert made.known.programs is placed
    with pytest.raises(LookupError):
        made.placed(Compiled("digest", "of none that is held"))
    assert len(placed.code) < 200 < TOTAL_MAX
