"""From the layers to the checked tree, or to one error that names all that is wrong.

Leaves are checked first; contradictions are then looked for among those that are right.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from streamdedup.errors import ConfigError
from streamdedup.filters.options import FilterOptions
from streamdedup.kafka.passthrough import UNKNOWN_OPTION, WRONG_OPTION
from streamdedup.settings.layers import MASK, Entry, KeyPath, Layers, Place, Problem, variable_of
from streamdedup.settings.tree import LEAVES, PASS_THROUGH, SECRETS, Settings, allowed, sections

VALUE_LENGTH_MAX = 80


def load(
    path: Path | None, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Settings:
    """Return the effective settings: defaults, then the file, the environment, the overrides.

    `path` None means `$STREAMDEDUP_CONFIG`, `environ` None this process's. Raises ConfigError.
    """
    environ = os.environ if environ is None else environ
    path = path or _default_path(environ)
    layers = Layers()
    layers.add_file(path)
    layers.add_environment(environ)
    layers.add_overrides(overrides)
    settings, problems = _check(layers, Place(3, 0, str(path)))
    problems = sorted([*layers.problems, *problems])
    if problems or settings is None:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise ConfigError(f"{count} in the configuration:{lines}")
    settings._origins = {
        leaf: entry.place.label for leaf, entry in layers.entries.items() if entry.value is not None
    }
    return settings


def filter_option(name: str, text: str) -> Any:  # noqa: ANN401 - an option's own type
    """Return `filter.<name>` as `load` reads it from `text`; ValueError with the same words."""
    try:
        return getattr(FilterOptions.model_validate({"capacity": 1, name: text}), name)
    except ValidationError as error:
        raise ValueError(_why(error.errors()[0], ("filter", name))) from None


def _default_path(environ: Mapping[str, str]) -> Path:
    named = environ.get("STREAMDEDUP_CONFIG")
    if not named:
        raise ConfigError("no configuration was named; pass -c FILE or set STREAMDEDUP_CONFIG=FILE")
    return Path(named)


def _check(layers: Layers, nowhere: Place) -> tuple[Settings | None, list[Problem]]:
    """Check leaves, then contradictions; `nowhere` is the place of what was not written.

    What only follows from another problem is not reported.
    """
    settings, found = _validate(_tree(layers.entries))
    wrong = layers.rejected | {detail["loc"][:2] for detail in found if not _is_conflict(detail)}
    if not all(_is_conflict(detail) for detail in found):
        found += _validate(_tree(layers.entries, without=wrong))[1]
    problems = [
        _problem(detail, layers.entries, nowhere)
        for detail in _one_a_place(found)
        if not _follows(detail, wrong, layers.rejected)
    ]
    return settings, problems


def _validate(
    tree: Mapping[str, Mapping[str, object]],
) -> tuple[Settings | None, list[ErrorDetails]]:
    try:
        return Settings.model_validate(tree), []
    except ValidationError as error:
        return None, error.errors(include_url=False, include_input=False)


def _is_conflict(detail: ErrorDetails) -> bool:
    return detail["type"] == "conflict"


def _follows(
    detail: ErrorDetails,
    wrong: Set[tuple[int | str, ...]],
    rejected: Set[tuple[int | str, ...]],
) -> bool:
    """Tell whether an error may be gone once the leaves known to be wrong are right."""
    if _is_conflict(detail):
        return not wrong.isdisjoint(detail["ctx"]["leaves"])
    return detail["type"] == "missing" and detail["loc"] in rejected


def _tree(
    entries: Mapping[KeyPath, Entry], without: Set[tuple[int | str, ...]] = frozenset()
) -> dict[str, dict[str, object]]:
    """Nest the entries; those that are `without` get the leaf's example where it has no default."""
    tree: dict[str, dict[str, object]] = {section: {} for section in sections()}
    for (section, name), field in LEAVES.items():
        if (section, name) in without and field.is_required() and field.examples:
            tree[section][name] = field.examples[0]
    for path, entry in entries.items():
        if entry.value is None or path[:2] in without:
            continue
        if path[:2] in PASS_THROUGH:
            options = tree[path[0]].setdefault(path[1], {})
            assert isinstance(options, dict)  # noqa: S101 - narrows what the line above made
            options[path[2]] = entry.value
        else:
            tree[path[0]][path[1]] = entry.value
    return tree


def _one_a_place(found: Sequence[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Drop all but the first error of a leaf: a union gives one for each of its members."""
    seen: set[KeyPath] = set()
    for detail in found:
        path = _path(detail)
        if path not in seen or _is_conflict(detail):
            seen.add(path)
            yield detail


def _path(detail: ErrorDetails) -> KeyPath:
    """Return the leaf, or the option passed through, at which an error points."""
    section, name, *rest = (str(part) for part in detail["loc"])
    return (section, name, *rest[:1]) if (section, name) in PASS_THROUGH else (section, name)


def _problem(detail: ErrorDetails, entries: Mapping[KeyPath, Entry], nowhere: Place) -> Problem:
    path = _path(detail)
    name = ".".join(path)
    entry = entries.get(path)
    place = entry.place if entry else nowhere
    if detail["type"] == "missing":
        return Problem(place, f"{name}: {_missing(path)}")
    if entry and entry.value is not None and detail["type"] != UNKNOWN_OPTION:
        name += f" = {MASK if path in SECRETS else _cut(repr(entry.value))}"
    return Problem(place, f"{name}: {_why(detail, path)}")


def _missing(path: KeyPath) -> str:
    field = LEAVES[path[0], path[1]]
    assert field.description and field.examples  # noqa: S101 - a test holds every leaf to it
    what = re.split(r"[,;] |\. |\.$", field.description)[0]
    return (
        f"is required ({what[0].lower()}{what[1:]}); set it in the file, as {variable_of(path)}, or "
        f"with --set {'.'.join(path)}={field.examples[0]}"
    )


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}..."


def _why(detail: ErrorDetails, path: KeyPath) -> str:
    context = detail.get("ctx", {})
    if detail["type"] in ("conflict", UNKNOWN_OPTION, WRONG_OPTION):
        return str(context["why"])
    if detail["type"] == "value_error":
        return str(context["error"])
    if detail["type"] == "string_too_short":
        return "must not be empty"
    return f"must be {allowed(LEAVES[path[0], path[1]])}"
