"""The configuration as text: the effective tree as YAML, a JSON Schema for editors, the reference for the docs."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue

from streamdedup.filters.options import WITHOUT_FILTER
from streamdedup.settings.names import MASK
from streamdedup.settings.stages import max_skew_ms
from streamdedup.settings.tree import (
    GROUPS,
    LEAVES,
    PASS_THROUGH,
    SECRETS,
    KeyPath,
    Settings,
    allowed,
    options_of,
    quantity_of,
    sections,
)

PROSE_COLUMNS = 120
MAX_SKEW: KeyPath = ("source", "repartition", "max_skew")


def show(settings: Settings) -> str:
    """Return the whole effective tree as YAML: each leaf with its origin, secrets masked."""
    blocks = []
    for section, model in sections().items():
        options: BaseModel = getattr(settings, section)
        lines: list[str] = []
        for attribute, (path, _, _) in zip(
            model.model_fields, options_of((section,), model), strict=True
        ):
            if _is_effective(path, settings):
                lines += _shown_option(path, getattr(options, attribute), settings)
        if lines:
            blocks.append("\n".join([f"{section}:", *lines]) + "\n")
    return "\n".join(blocks)


def schema() -> JsonSchemaValue:
    """Return the JSON Schema of a configuration file. It has no secrets: they must not stand in a file."""
    made = Settings.model_json_schema(by_alias=True)
    for path in SECRETS:
        model = GROUPS[path[:2]] if path[:2] in GROUPS else sections()[path[0]]
        del made["$defs"][model.__name__]["properties"][path[-1]]
    _allow_no_filter(made)
    made["$defs"][sections()["source"].__name__]["anyOf"] = [
        {"required": [name]} for name in ("topic", "topics", "pattern")
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:streamdedup:config",
        **made,
        "title": "streamdedup configuration",
    }


def _allow_no_filter(made: JsonSchemaValue) -> None:
    """Require neither a capacity nor snapshots with `filter: null` or `kind: none`."""
    options = made["$defs"]["FilterOptions"]
    none: JsonSchemaValue = {"properties": {"kind": {"const": "none"}}, "required": ["kind"]}
    options |= {"if": none, "else": {"required": options.pop("required")}}
    made["properties"]["filter"] = {"anyOf": [made["properties"]["filter"], {"type": "null"}]}
    made["required"].remove("snapshot")
    no_filter = {"properties": {"filter": {"anyOf": [{"type": "null"}, none]}}}
    made |= {"if": no_filter, "else": {"required": ["snapshot"]}}


def reference_markdown() -> str:
    """Return one Markdown table for each section: name, default, allowed values, meaning."""
    blocks = []
    for section, model in sections().items():
        rows = list(_rows((section,), model))
        head = ["| Option | Default | Allowed | Meaning |", "|---|---|---|---|"]
        intro = textwrap.fill(" ".join((model.__doc__ or "").split()), PROSE_COLUMNS)
        blocks.append("\n".join([f"### {section}", "", intro, "", *head, *rows]))
    return "\n\n".join(blocks) + "\n"


def _rows(path: KeyPath, model: type[BaseModel]) -> Iterator[str]:
    """Yield a row for each option of a section or group; those of a group follow its own."""
    for option, field, group in options_of(path, model):
        name, default = ".".join(option[1:]), _default(field)
        if path in GROUPS and field.is_required():
            default = f"required with `{'.'.join(path[1:])}`"
        values = "a group of options, which follow" if group else allowed(field)
        yield f"| `{name}` | {default} | {values} | {field.description} |"
        if group:
            yield from _rows(option, group)


def _is_effective(path: KeyPath, settings: Settings) -> bool:
    """Whether a leaf has an effect. Without a filter, most leaves of `filter` and all of `snapshot` have none."""
    section, name = path[:2]
    if settings.filter.remembers or section not in ("filter", "snapshot"):
        return True
    return section == "filter" and name in WITHOUT_FILTER


def _shown_option(path: KeyPath, value: object, settings: Settings) -> Iterator[str]:
    origins = settings.origins
    if isinstance(value, BaseModel):
        yield f"  {path[1]}:"
        for attribute, (leaf, field, _) in zip(
            type(value).model_fields, options_of(path, type(value)), strict=True
        ):
            effective, reason = _effective(leaf, getattr(value, attribute), settings)
            shown = _with_unit(field, effective)
            yield f"    {_pair(leaf[-1], shown)}  # {origins.get(leaf, 'default')}{reason}"
    elif path in PASS_THROUGH and isinstance(value, Mapping) and value:
        yield f"  {path[1]}:"
        for name, option in value.items():
            yield f"    {_pair(name, option)}  # {origins.get((*path, name), 'default')}"
    else:
        shown = _with_unit(LEAVES[path], value) if path in LEAVES else value
        yield f"  {_pair(path[1], shown)}  # {origins.get(path, 'default')}"


def _effective(leaf: KeyPath, value: object, settings: Settings) -> tuple[object, str]:
    """Return the value that holds for a leaf of a group, and, for its comment, by what, if it is not set."""
    if leaf == MAX_SKEW and value is None and (skew_ms := max_skew_ms(settings)) is not None:
        return skew_ms, ": an eighth of filter.retention"
    return value, ""


def _with_unit(field: FieldInfo, value: object) -> object:
    """Return the value as it must be written: with its unit, if a bare number would be refused."""
    quantity = quantity_of(field)
    if quantity and not quantity.bare and isinstance(value, int):
        return quantity.format(value)
    return value


def _pair(name: str, value: object) -> str:
    if isinstance(value, float):
        return f"{name}: {value!r}"
    listed = yaml.safe_dump(
        [_plain(value)], default_flow_style=True, width=float("inf"), allow_unicode=True
    )
    return f"{name}: {listed.strip()[1:-1]}"


def _plain(value: object) -> object:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, BaseModel):
        return {name: _plain(part) for name, part in value if part is not None}
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None:
        return "not set"
    if quantity := quantity_of(field):
        return f"`{quantity.format(value)}`"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"
