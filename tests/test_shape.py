"""The shape of the document of `/api/status`: a schema that only grows, and what of a foreign document fits it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from streamdedup import shape

FROZEN = Path(__file__).parent / "data" / "status-paths-1.txt"

EXAMPLES: dict[str, Any] = {"string": "text", "integer": 3, "number": 0.5, "boolean": True}


def example(schema: dict[str, Any]) -> Any:
    """A value that has all that the schema has."""
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    if kind == "object":
        return {name: example(part) for name, part in schema["properties"].items()}
    if kind == "array":
        return [example(schema["items"])]
    return schema.get("enum", [EXAMPLES[kind]])[0]


@pytest.fixture
def document() -> dict[str, Any]:
    """One that has all there is."""
    made: dict[str, Any] = example(shape.SCHEMA)
    return made | {"version": shape.VERSION}


def test_the_schema_is_one() -> None:
    """Other tools can read it, and it describes each value."""
    Draft202012Validator.check_schema(shape.SCHEMA)
    assert '"description": ""' not in json.dumps(shape.SCHEMA)


def test_names_are_only_added_within_a_version() -> None:
    """Whoever reads the document of version 1 finds what there was at first, with the same types.

    If this fails, make it fit again: the file changes only with the version.
    """
    assert set(FROZEN.read_text("utf-8").splitlines()) <= set(shape.paths(shape.SCHEMA))


def test_what_fits_is_kept_as_it_is(document: dict[str, Any]) -> None:
    """Nothing is lost, and the schema says that it is a document."""
    assert shape.fit(copy.deepcopy(document)) == document
    Draft202012Validator(shape.SCHEMA).validate(document)


def test_what_a_newer_version_adds_is_left_out(document: dict[str, Any]) -> None:
    """Names that nobody here knows do not reach who shows it."""
    newer = copy.deepcopy(document)
    newer["worker"]["mood"] = newer["mood"] = {"good": True}
    assert shape.fit(newer) == document


@pytest.mark.parametrize("value", ["7", True, 1e300, float("nan"), [], {}, None, 10**400])
def test_a_member_that_does_not_fit_is_left_out(document: dict[str, Any], value: object) -> None:
    """A partition whose number is none is not shown; the others are."""
    wrong = copy.deepcopy(document["shards"][0]) | {"partition": value}
    assert shape.fit({**document, "shards": [wrong, document["shards"][0]]}) == document


@pytest.mark.parametrize("value", ["7", True, float("inf"), [], {}, -(10**30)])
def test_what_may_be_unknown_and_does_not_fit_is_unknown(
    document: dict[str, Any], value: object
) -> None:
    """The lag of a partition, and its snapshot."""
    document["shards"][0] |= {"lag": value, "snapshot": value}
    found = shape.fit(document)
    assert found is not None
    assert (found["shards"][0]["lag"], found["shards"][0]["snapshot"]) == (None, None)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[" * 200_000,
        b'{"a":' * 40_000,
        b"[]",
        b"null",
        b"\xff",
        b"NaN",
        b"9" * 100_000,
        b'{"version": 1}',
        b"<html>",
    ],
    ids=lambda text: repr(text[:14]),
)
def test_what_is_no_document_is_none(text: bytes) -> None:
    """Whatever it is; nothing is raised."""
    assert shape.read(text) is None


def test_a_document_of_another_version_is_none(document: dict[str, Any]) -> None:
    """Its names may mean something else."""
    assert shape.fit({**document, "version": shape.VERSION + 1}) is None


def test_all_that_grows_is_bounded(document: dict[str, Any]) -> None:
    """Lists and texts of a peer end where ours do."""
    document["findings"] *= 10_000
    document["ready"]["sentence"] = "x" * 100_000
    found = shape.fit(document)
    assert found is not None
    assert len(found["findings"]) == shape.FINDINGS_MAX
    assert len(found["ready"]["sentence"]) == shape.TEXT_MAX


def test_a_word_is_one(document: dict[str, Any]) -> None:
    """What names a class of the page has no space, and no other sign."""
    document["shards"][0]["state"] = 'live" onclick="x'
    found = shape.fit(document)
    assert found is not None
    assert found["shards"] == []
