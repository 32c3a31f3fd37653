"""Claims about paths of other tools: each is warned of with its translation, and ours never are."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from streamdedup.cli import main
from streamdedup.events import Column
from streamdedup.keys.extract import json_keys
from streamdedup.keys.foreign_paths import translated, warnings
from streamdedup.keys.options import KeyOptions
from tests.rows import table
from tests.settings.minimal import MINIMAL

FOREIGN = {
    **dict.fromkeys(
        ("$.id", "$['id']", '$["id"]', ".id", "@.id", "${id}", "{{ id }}", "%{id}"), "id"
    ),
    **dict.fromkeys(("{.id}", '."id"', "'id'", '"id"', "`id`", " id "), "id"),
    **dict.fromkeys(("$.user.id", ".user.id", "user['id']", "user->id", "user->>'id'"), "user.id"),
    **dict.fromkeys(("#/user/id", "user/id", "$.user['id']", "`user`.`id`"), "user.id"),
    **dict.fromkeys(("items[0].id", "$.items[0].id", ".items[0].id", "items.[0].id"), "items.0.id"),
    **dict.fromkeys(("id,tenant", "id, tenant", "$.id,$.tenant", "id;tenant"), "[id, tenant]"),
    **dict.fromkeys(("[id, tenant]", "{id,tenant}"), "[id, tenant]"),
    "[0]": "0",
    "$[0][1]": "0.1",
    "$['a.b'].c": "/a.b/c",
    "a['b/c.d']": "/a/b~1c.d",
    ".after.id // .before.id": "parts: [{field: [after.id, before.id]}]",
    "$.items[*].id": "items.0.id",
    ".items[].id": "items.0.id",
    "items.*.id": "items.0.id",
    "items.#.id": "items.0.id",
}
OURS = [
    *("id", "user.id", "items.0.id", "/id", "/user/id", "/a.b/c", "/a~1b", "/"),
    *("_id.$oid", "$schema", "@id", "@type.x", "dc:title", "#text", "event-id", "user-name.first"),
    *("a b", "größe", "x@y", "a_b", "a+b", "a|b", "*id"),
]
UNKNOWN = ["$..id", "$", "//id", "items[-1].id", "items[?(@.x)].id", "user..id", "id.", "a[", "a->"]


@table(FOREIGN.items())
def test_a_path_of_another_tool_is_warned_of_with_ours_beside_it(path: str, ours: str) -> None:
    """JSONPath, jq, templates, SQL, lists in one text: the warning has what to write, and says if it is not all."""
    (warning,) = warnings(KeyOptions(field=path))
    said = f"key.field: {path!r} looks like a path of another tool; here, {ours} is the same"
    wild = any(mark in path for mark in ("*", "#.", "[]"))
    assert warning == said + (", for one element: there is no path to all of them" if wild else "")


@table(OURS)
def test_a_path_of_ours_is_not(path: str) -> None:
    """Names of any characters that JSON in the wild has, and pointers."""
    assert list(warnings(KeyOptions(field=path))) == []
    assert translated(path) is None


@table(UNKNOWN)
def test_what_has_no_translation_is_warned_of_too(path: str) -> None:
    """What it looks like is beyond a path of one field."""
    (warning,) = warnings(KeyOptions(field=path))
    assert "here, names joined by dots, or a JSON Pointer, is a path" in warning


def test_the_translation_leads_to_the_field() -> None:
    """Each is the path of the field that the other tool means."""
    text = b'{"id":"k","user":{"id":"k"},"items":[{"id":"k"}],"a.b":{"c":"k"},"a":{"b/c.d":"k"}}'
    for path, ours in FOREIGN.items():
        if ours[0] not in "[p0":  # several paths, or the first element of a text that is an array
            assert list(json_keys([ours], Column.of([text]))[0]) == [b"k"], path


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["key.field=$.id"], ["key.field: '$.id' looks like a path of another tool; here, id is"]),
        (
            ["key.field=['items[0].id', '.tenant', id]"],
            [
                "'items[0].id' looks like a path of another tool; here, items.0.id",
                "here, tenant is",
            ],
        ),
        (
            ["key.field=null", "key.parts=[{header: '$.h'}, {field: [$.a, 'b,c']}]"],
            [
                "key.parts: '$.a' looks like a path of another tool; here, parts: [{field: a}] is",
                "here, parts: [{field: b}, {field: c}] is",
            ],
        ),
        (["key.from=header", "key.field='$.h'"], []),
    ],
)
def test_config_check_prints_the_warnings(
    overrides: Sequence[str],
    said: Sequence[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They follow the verdict, and change no status: such a name may exist."""
    path = tmp_path / "dedup.yaml"
    path.write_text(MINIMAL)
    sets = [word for override in overrides for word in ("--set", override)]
    assert main(["config", "check", str(path), *sets]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "the configuration is valid"
    assert len(lines) == len(said)
    assert all(
        line.startswith("warning: ") and one in line for line, one in zip(lines, said, strict=True)
    )
