"""Turns the layers into the checked settings, or into one ConfigError that lists all problems.

pydantic-settings merges the layers. The leaves are checked first, then the contradictions among those that are right.
A problem names the option, its location, and the value if that cannot be a secret that was given to the wrong option.
"""

import os
import re
from collections import ChainMap
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import InitSettingsSource

from streamdedup.errors import ConfigError
from streamdedup.filters.options import FilterOptions
from streamdedup.kafka.passthrough import UNKNOWN_OPTION, WRONG_OPTION, Client, client_options
from streamdedup.secret import reading_once
from streamdedup.settings.layers import (
    Layer,
    Location,
    Problem,
    Setting,
    read_environment,
    read_file,
    read_overrides,
)
from streamdedup.settings.names import shown, variable_of
from streamdedup.settings.tree import (
    GROUPS,
    LEAVES,
    PASS_THROUGH,
    SECRETS,
    KeyPath,
    Settings,
    allowed,
    choices,
    leaf_of,
)
from streamdedup.units import quote

Loc = tuple[int | str, ...]


def load(
    path: Path | None, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Settings:
    """Return the effective settings: defaults, then the file, the environment, the overrides.

    `path` None means `$STREAMDEDUP_CONFIG`, `environ` None this process's. Raises ConfigError.
    """
    environ = os.environ if environ is None else environ
    path = path or _default_path(environ)
    layers = (read_overrides(overrides), read_environment(environ), read_file(path))
    written = ChainMap(*(layer.entries for layer in layers))
    with reading_once():
        settings, problems = _check(layers, written, Location(len(layers), 0, str(path)))
    problems = sorted([*problems, *(problem for layer in layers for problem in layer.problems)])
    if problems or settings is None:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise ConfigError(f"{count} in the configuration:{lines}")
    settings._origins = {
        leaf: entry.location.label for leaf, entry in written.items() if entry.value is not None
    }
    return settings


def filter_option(name: str, text: str) -> Any:  # noqa: ANN401 - an option's own type
    """Return what `load` would read as `filter.<name>` from `text`. Raises ValueError with the same message."""
    return getattr(_filter_with(name, text), name)


def hash_key_in(file: str) -> bytes:
    """Return the secret that `load` would read from `filter.hash_key_file`; likewise. The file is read once."""
    return _filter_with("hash_key_file", file).hash_key_bytes


def _filter_with(name: str, text: str) -> FilterOptions:
    try:
        return FilterOptions.model_validate({"capacity": 1, name: text})
    except ValidationError as error:
        raise ValueError(_why(error.errors()[0], ("filter", name))) from None


def _default_path(environ: Mapping[str, str]) -> Path:
    named = environ.get("STREAMDEDUP_CONFIG")
    if not named:
        raise ConfigError("no configuration was named; pass -c FILE or set STREAMDEDUP_CONFIG=FILE")
    return Path(named)


def _check(
    layers: Sequence[Layer], written: Mapping[KeyPath, Setting], nowhere: Location
) -> tuple[Settings | None, list[Problem]]:
    """Check the leaves, then the contradictions among those that are right.

    A problem that may only be the consequence of another one is left out. `nowhere` is the location of a leaf that was
    not written.
    """
    rejected: set[Loc] = set()
    for layer in reversed(layers):
        rejected = (rejected - layer.entries.keys()) | layer.rejected
    trees = [layer.tree() for layer in layers]
    settings, errors, conflicts = _validate(trees)
    wrong = rejected | {leaf_of(error["loc"]) or error["loc"] for error in errors}
    if errors:
        conflicts = _validate([_stand_ins(wrong), *trees, _stand_ins(_beside(wrong))])[2]
    # pydantic reports one error for each member of a union; the first one is kept.
    found = [*{_path(error): error for error in reversed(errors)}.values()]
    found = [e for e in found if e["type"] != "missing" or e["loc"] not in rejected]
    found += [conflict for conflict in conflicts if wrong.isdisjoint(conflict["ctx"]["leaves"])]
    return settings, [_problem(error, written, nowhere) for error in found]


def _validate(
    trees: Sequence[dict[str, Any]],
) -> tuple[Settings | None, list[ErrorDetails], list[ErrorDetails]]:
    """Merge the trees, of which the first wins. Return the settings, or the errors of leaves and the contradictions."""
    sources = tuple(InitSettingsSource(Settings, tree) for tree in trees)
    try:
        return Settings.model_validate({"sources": sources}), [], []
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
    conflicts = [detail for detail in found if detail["type"] == "conflict"]
    return None, [detail for detail in found if detail["type"] != "conflict"], conflicts


def _stand_ins(wrong: Set[Loc]) -> dict[str, Any]:
    """Return valid values for the wrong leaves: the example of a required leaf, `null` (the default) for any other."""
    tree: dict[str, Any] = {}
    for leaf, field in LEAVES.items():
        if leaf in wrong:
            options = tree
            for part in leaf[:-1]:
                options = options.setdefault(part, {})
            example = field.examples[0] if field.is_required() and field.examples else None
            options[leaf[-1]] = example
    return tree


def _beside(wrong: Set[Loc]) -> set[Loc]:
    """Return the required leaves of each group of which a leaf is wrong: the stand-in for that leaf needs them."""
    groups = GROUPS.keys() & {leaf[:-1] for leaf in wrong}
    return {leaf for leaf, field in LEAVES.items() if leaf[:-1] in groups and field.is_required()}


def _path(detail: ErrorDetails) -> KeyPath:
    """Return the path of the leaf, or of the client's option, that an error is about."""
    path = tuple(map(str, detail["loc"]))
    return path[:3] if path[:2] in PASS_THROUGH else leaf_of(path) or path


def _problem(
    detail: ErrorDetails, entries: Mapping[KeyPath, Setting], nowhere: Location
) -> Problem:
    path = _path(detail)
    entry = entries.get(path)
    location = entry.location if entry else nowhere
    if detail["type"] == "missing":
        return Problem(location, f"{shown(path)}: {_missing(path)}")
    given = _quoted(path, entry) if entry and detail["type"] != UNKNOWN_OPTION else ""
    name = shown(path, is_typed=location.is_command_line)
    return Problem(location, f"{name}{given}: {_why(detail, path)}")


def _quoted(path: KeyPath, entry: Setting) -> str:
    """Return ` = ` and the value; nothing if it is a `null` or may be a secret.

    In the location of a secret's file, the secret itself may have been written, so even a number is not shown there.
    """
    near_secret = path in SECRETS or (path[0], path[-1].removesuffix("_file")) in SECRETS
    if entry.value is None or near_secret:
        return ""
    given = quote(entry.value, _choices(path))
    return "" if given is None else f" = {given}"


def _choices(path: KeyPath) -> tuple[str, ...]:
    """Return all values of a leaf or of a client's option; none if there is no fixed set of them."""
    if path in LEAVES:
        return choices(LEAVES[path].annotation)
    client: Client = "consumer" if path[1] == "consumer" else "producer"
    return choices(type(client_options(client).get(path[2])))


def _missing(path: KeyPath) -> str:
    field = LEAVES[path]
    assert field.description and field.examples  # noqa: S101 - a test holds every leaf to it
    what = re.split(r"[,;] |\. |\.$", field.description)[0]
    beside = f" with the other options of {'.'.join(path[:-1])}" if path[:-1] in GROUPS else ""
    return (
        f"is required{beside} ({what[0].lower()}{what[1:]}); set it in the file, as {variable_of(path)}, or "
        f"with --set {'.'.join(path)}={field.examples[0]}"
    )


def _why(detail: ErrorDetails, path: KeyPath) -> str:
    context = detail.get("ctx", {})
    if detail["type"] in ("conflict", UNKNOWN_OPTION, WRONG_OPTION):
        return str(context["why"])
    if detail["type"] == "value_error":
        return str(context["error"])
    if detail["type"] == "string_too_short":
        return "must not be empty"
    return f"must be {allowed(LEAVES[leaf_of(path) or path])}"
