"""Claims about values that a serializer framed: why one has no key is said so that an operator can mend it."""

import json

from streamdedup.events import Column
from streamdedup.keys.extract import Extractor
from streamdedup.keys.formats.schema import Schema
from streamdedup.keys.options import Format
from streamdedup.keys.parts import Part
from tests.keys.avro import framed, written
from tests.registry.stand_ins import record
from tests.rows import table

USER = record([("email", ["null", "string"])], "User")
AVRO = record([("id", "string"), ("user", ["null", USER])])
PROTOBUF = 'syntax = "proto3"; message Event { string id = 1; User user = 2; message User { string email = 1; } }'
EMPTY = {
    "avro": written(AVRO, {"id": "a", "user": None}),
    "protobuf": b"\0",  # the first message of the file, without a field
}
FORMATS: tuple[Format, ...] = ("avro", "protobuf")
SCHEMAS = {"avro": Schema("AVRO", json.dumps(AVRO)), "protobuf": Schema("PROTOBUF", PROTOBUF)}


@table(
    [
        ("user.email", True),
        ("user.mail", False),
        ("User.email", False),
        ("id.x", False),
        ("user.email.x", False),
    ]
)
def test_a_field_that_the_schema_lacks_is_told_from_one_that_the_value_lacks(
    field: str, is_there: bool
) -> None:
    """A misspelled path leads nowhere in any value of the schema, and the reason says so."""
    for format_ in FORMATS:
        extractor = Extractor.of_parts((Part("json", (field,)),), format_=format_)
        assert extractor.schemas is not None
        extractor.schemas.take(7, extractor.schemas.compiled(SCHEMAS[format_]))
        _, reasons = extractor.keys_of(Column.of([framed(7, EMPTY[format_])]))
        more = "" if is_there else ": schema 7 has no such field"
        assert reasons == {0: f"the field {field} is missing{more}"}
