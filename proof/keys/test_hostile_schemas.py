"""Claims about schemas that somebody registered to do harm: of MBs each, and programs with less room than they need."""

import json
import time
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2

from streamdedup.events import Column
from streamdedup.keys.formats import avro_column, protobuf_column, protobuf_files, protobuf_schema
from streamdedup.keys.formats.avro_schema import Op
from streamdedup.keys.formats.avro_schema import compiled as of_avro
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import ROW_BYTES, Program, SchemaError, packed
from streamdedup.keys.hashing import frozen
from tests.keys.avro import found as found_in_avro
from tests.keys.avro import framed, of_schema, record
from tests.keys.test_avro import zigzag
from tests.keys.test_hostile_schemas import COMPILED, STEPS, of_fields, serialized, why_not
from tests.keys.test_protobuf import F, found, of_text, piece, tag
from tests.rows import table

MANY = 30_000  # what takes the square of it does not end


def in_a_oneof(count: int) -> str:
    """Return a file of one message, whose members are all in one oneof; the first is the key."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto")
    event = file.message_type.add(name="E")
    event.oneof_decl.add(name="one")
    for number in range(1, count + 1):
        name = "id" if number == 1 else f"f{number}"
        event.field.add(name=name, number=number, type=F.TYPE_STRING, label=1, oneof_index=0)
    return serialized(file)


GUARD_BYTES = 1 << 16


def run(kernel: Any, code: list[int], body: bytes, room_bytes: int) -> bytes | FramedKind:
    """Run a program over one value, with so much room; return its key, or what it has instead of one.

    What is written beyond the room is noticed, and so is what is read there, by the check of `proof/test_bounds.py`.
    """
    memory = np.full(room_bytes + GUARD_BYTES, 0xEE, dtype=np.uint8)
    key_starts, key_sizes, kinds = (
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.uint8),
    )
    column = Column.of([framed(1, body)])
    columns = (np.array(numbers) for numbers in (code, [1], [0]))
    kernel(
        *(frozen(numbers, np.int64) for numbers in columns),
        frozen(np.frombuffer(column.buffer, dtype=np.uint8), np.uint8),
        *(frozen(numbers, np.int64) for numbers in (column.starts, column.sizes)),
        memory[:room_bytes],
        *(key_starts, key_sizes, kinds),
    )
    assert (memory[room_bytes:] == 0xEE).all()
    if kinds[0] != FramedKind.KEY:
        return FramedKind(kinds[0])
    assert 0 <= key_starts[0] <= room_bytes - key_sizes[0]
    return memory[key_starts[0] : key_starts[0] + key_sizes[0]].tobytes()


TEXT_50, FIXED_8, UUID_16 = zigzag(50) + b"k" * 50, b"abcdefgh", bytes(16)


SYMBOL = [Op.JUMP, 2 + 51, *packed(b"s" * 400)]  # of 400 bytes
UUID_OF_ZEROS = b"00000000-0000-0000-0000-000000000000"


@pytest.mark.bounds
@table(
    [
        ([], [Op.KEY_TEXT], TEXT_50, b"k" * 50),
        ([], [Op.KEY_BYTES], TEXT_50, b"k" * 50),
        ([], [Op.KEY_FIXED, 8], FIXED_8, FIXED_8),
        ([], [Op.KEY_UUID], UUID_16, UUID_OF_ZEROS),
        ([], [Op.KEY_LONG], zigzag(-(1 << 62)), b"-4611686018427387904"),
        ([], [Op.KEY_INT], zigzag(-(1 << 31)), b"-2147483648"),
        (SYMBOL, [Op.KEY_ENUM, 1, 2], b"\0", b"s" * 400),
    ]
)
def test_a_program_that_takes_many_keys_writes_one(
    before: list[int], take: list[int], piece_of_value: bytes, key: bytes
) -> None:
    """Each in the place of the one before. If there is no room for one, it is not written at all."""
    code = [*before, *take * 200, Op.END]
    value = piece_of_value * 200
    room_bytes = max(len(key), ROW_BYTES)
    assert run(avro_column.fill, code, value, room_bytes) == key
    for less in (0, 1, min(len(key), ROW_BYTES) - 1):
        assert run(avro_column.fill, code, value, less) == FramedKind.UNFIT


@pytest.mark.bounds
@table([[Op.RETURN], [Op.NEXT, 0], [Op.NEXT] * 300])
def test_a_program_that_ends_what_did_not_begin_is_unfit(code: list[int]) -> None:
    """Its stack has nothing below the first frame."""
    assert run(avro_column.fill, [*code, Op.END], b"\2" * 300, 100) == FramedKind.UNFIT


@pytest.mark.bounds
@table(
    [
        ("string", piece(1, b"k" * 50), b"k" * 50),
        ("bytes", piece(1, b"k" * 50), b"k" * 50),
        ("int64", tag(1, 0) + b"\x80" * 9 + b"\1", b"-9223372036854775808"),
        ("uint32", tag(1, 0) + b"\1", b"1"),
        ("sint64", tag(1, 0) + b"\1", b"-1"),
        ("fixed64", tag(1, 1) + b"\1" + bytes(7), b"1"),
        ("C", tag(1, 0) + b"\0", b"S" * 400),
    ]
)
def test_a_message_without_room_for_its_key_is_unfit(kind: str, body: bytes, key: bytes) -> None:
    """Whoever computes the room may be wrong."""
    text = f"enum C {{ {'S' * 400} = 0; }} message E {{ {kind} id = 1; }}"
    code = list(protobuf_schema.compiled(text, (), ("id",)).code)
    assert run(protobuf_column.fill, code, b"\0" + body, max(len(key), ROW_BYTES)) == key
    for less in (0, 1, min(len(key), ROW_BYTES) - 1):
        assert run(protobuf_column.fill, code, b"\0" + body, less) == FramedKind.UNFIT


def chained(count: int) -> str:
    """Return a schema whose records each hold the one before alone, and whose fields are all of them."""
    records = [record(("x", f"R{at - 1}" if at else "int"), name=f"R{at}") for at in range(count)]
    return json.dumps(record(*((f"f{at}", each) for at, each in enumerate(records)), ("id", "int")))


LARGE = protobuf_files.TEXT_CHARS_MAX - 100


@table(
    [
        ("avro", chained(12_000), None),  # a MB took a minute
        ("avro", json.dumps(record(("id", "int"), ("u", ["int"] * 700_000))), STEPS),
        ("avro", "[" + "[]," * 1_300_000 + "[]]", STEPS),
        ("avro", "[" + '{"type":"array","items":"int"},' * 130_000 + '"int"]', STEPS),
        ("protobuf", "message E { string id = 1; }" + "/**/" * (LARGE // 4), None),
        ("protobuf", "message E { string id = 1; }" + "//\n" * (LARGE // 3), None),
        (
            "protobuf",
            "message E { string id = 1; } // a comment that is long" + "/*" * 99_999,
            None,
        ),
        ("protobuf", "/*" * (LARGE // 2), "it is no .proto file"),
        ("protobuf", '"' * LARGE, "it is no .proto file"),
        ("protobuf", ";" * LARGE, STEPS),
        ("protobuf", "option a = {" + "a: 1, " * (LARGE // 6) + "};", STEPS),
        ("protobuf", "option a = {a: [" + "1," * (LARGE // 2) + "1]};", STEPS),
        ("protobuf", of_fields(*((f"f{at}", at) for at in range(1, 140_000))), STEPS),
    ]
)
def test_the_work_of_a_schema_is_bounded(kind: str, text: str, why: str | None) -> None:
    """By what its text makes a reader do, whatever its length: CPU seconds of one thread, on any machine."""
    before = time.process_time()
    program = None
    try:
        program = COMPILED[kind](text, (), ("id",))
    except SchemaError as error:
        assert str(error) == why
    assert time.process_time() - before < 20
    assert (program is not None) == (why is None)


def test_a_text_is_looked_through_once() -> None:
    """To find out which of two forms a file has; white space took the square of its length."""
    text = " " * (protobuf_files.TEXT_CHARS_MAX - 50) + "message E { string id = 1; }"
    assert found(of_text("id", text), piece(1, b"a")) == [b"a"]
    why = f"its text is longer than {protobuf_files.TEXT_CHARS_MAX >> 10} KiB"
    assert why_not("protobuf", text + " " * 50) == why


def test_members_of_a_oneof_take_no_more_than_their_count() -> None:
    """In the compiler; and in the kernel, which looks for each field among them."""
    schemas = of_text("id", in_a_oneof(MANY))
    assert len(schemas.known.programs.code) < 2 * MANY
    unknown = tag(MANY + 9, 0) + b"\1"
    body = piece(1, b"a") + unknown * 100_000
    assert found(schemas, body) == [b"a"]
    assert found(schemas, body + piece(MANY, b"")) == [FramedKind.MISSING]


def test_what_many_messages_have_in_common_is_compiled_once() -> None:
    """An enum, and the message that a path leads to."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto")
    symbols = file.enum_type.add(name="C")
    for number in range(1_000):
        symbols.value.add(name=f"S{number}", number=number)
    file.message_type.add(name="M").field.add(
        name="id", number=1, type=F.TYPE_ENUM, label=1, type_name=".C"
    )
    for number in range(1_000):
        file.message_type.add(name=f"E{number}").field.add(
            name="m", number=1, type=F.TYPE_MESSAGE, label=1, type_name=".M"
        )
    schemas = of_text("m.id", serialized(file))
    assert len(schemas.known.programs.code) < 30_000
    column = Column.of([framed(1, zigzag(1) + zigzag(1_000) + piece(1, tag(1, 0) + b"\7"))])
    assert list(schemas.known.read(0, column)[0]) == [b"S7"]


def chain(depth: int, *more: tuple[str, Any]) -> Any:
    """Return records in each other, the last of which has an integer."""
    inner: Any = "int"
    for number in range(depth):
        inner = record(("none", "null"), ("x", inner), *more, name=f"R{number}")
    return inner


def calls(items: Any) -> tuple[Program, int]:
    """Return the program of a schema with an array of these, and its calls."""
    schema = record(("a", {"type": "array", "items": items}), ("id", "string"))
    program = of_avro(json.dumps(schema), (), ("id",))
    return program, program.code.count(Op.CALL)


def test_records_that_hold_one_other_are_one_call() -> None:
    """So a byte of a value costs no more than a few instructions."""
    assert calls(chain(60))[1] == 1
    assert calls(chain(60, ("y", "int")))[1] == 60
    schema = record(("a", {"type": "array", "items": chain(60)}), ("id", "string"))
    body = zigzag(3) + b"\2\4\6" + b"\0\4ab"
    assert found_in_avro(of_schema(schema, ("id",)), body) == [b"ab"]


def test_a_record_that_holds_itself_alone_has_no_value() -> None:
    """It is compiled, and its values end at a depth."""
    endless = record(("x", "R"), name="R")
    assert calls(endless)[1] == 2
    schemas = of_schema(record(("a", endless), ("id", "string")), ("id",))
    assert found_in_avro(schemas, b"\2" * 9) == [FramedKind.TOO_DEEP]


def test_a_path_that_visits_too_many_fields_is_refused() -> None:
    """Although they have no bytes, and so no instructions."""
    empty = record(*[(f"n{at}", "null") for at in range(3_000)], name="R")
    union = [empty, *(record(("a", "R"), name=f"W{at}") for at in range(500))]
    with pytest.raises(SchemaError, match="it is too large"):
        of_avro(json.dumps(record(("a", union))), (), ("a", "a", "b"))


@table([("0x10", 16), ("0X1f", 31), ("010", 8), ("10", 10), ("0", 0)])
def test_numbers_are_read_in_each_notation(number: str, is_number: int) -> None:
    """A file may have them in hexadecimal and octal; the number 0 is wrong."""
    text = f"enum C {{ A = -{number}; B={number}; }} message E {{ C id = {number}; }}"
    schemas = of_text("id", text)
    if not is_number:
        assert schemas.known.why_not(1) == "it holds a field whose number is wrong"
    else:
        body = tag(is_number, 0) + bytes([is_number])
        assert found(schemas, body) == [b"B"]


def test_a_member_of_a_oneof_that_is_of_another_type_unsets_nothing() -> None:
    """It counts as unknown; Google's reader says the same in `test_protobuf`."""
    text = """enum C { A = 0; } message E { oneof one {
      string id = 1; bool b = 2; float f = 3; double d = 4; C c = 5; M m = 6; sint32 s = 7; other.X x = 8; } }
      message M {}"""
    schemas = of_text("id", text)
    bodies = {0: b"\1", 1: bytes(8), 2: b"\0", 5: bytes(4)}
    wires = {2: [0], 3: [5], 4: [1], 5: [0], 6: [2], 7: [0], 8: [0, 2]}
    for number, unset in wires.items():
        for wire, body in bodies.items():
            key = FramedKind.MISSING if wire in unset else b"a"
            assert found(schemas, piece(1, b"a") + tag(number, wire) + body) == [key]
