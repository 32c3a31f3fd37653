"""Reads the file, the environment and `--set`, each into a `Layer`: the values, and the location of each.

A value stays text until its option reads it, so `1e-6`, `0123`, `yes` and `1:30` mean what they look like.
`null` means the default. pydantic-settings merges the layers later, see `loading`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from streamdedup.errors import ConfigError
from streamdedup.kafka.passthrough import refused
from streamdedup.settings import nodes
from streamdedup.settings.names import (
    MASK,
    PREFIX,
    is_known,
    path_of,
    path_of_single,
    shown,
    suggest,
    variable_of,
)
from streamdedup.settings.tree import (
    GROUPS,
    LEAVES,
    PASS_THROUGH,
    SECRETS,
    KeyPath,
    leaf_of,
    sections,
)


@dataclass(frozen=True, order=True, slots=True)
class Location:
    """Where a value was written. Locations sort by the rank of their source, then by line."""

    rank: int
    line: int
    label: str

    @property
    def is_command_line(self) -> bool:
        """Whether it is `--set`."""
        return self.rank == _COMMAND_LINE


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    """Something that the operator must correct; printed as one line."""

    location: Location
    text: str

    def __str__(self) -> str:
        return f"{self.location.label}: {self.text}"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value as it was written, with its location; None is an explicit `null`."""

    value: nodes.Raw
    location: Location


@dataclass(slots=True)
class Layer:
    """The values of one source by their paths, and the problems found while they were read."""

    file: Path | None = None
    entries: dict[KeyPath, Setting] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    rejected: set[tuple[int | str, ...]] = field(default_factory=set)
    """Leaves whose value could not be read, or whose name was misspelled: they are not reported as missing, too."""

    def tree(self) -> dict[str, dict[str, Any]]:
        """Return the values as nested mappings for pydantic-settings; every section is there, even if it is empty."""
        tree: dict[str, dict[str, Any]] = {section: {} for section in sections()}
        for (*above, name), entry in self.entries.items():
            options: dict[str, Any] = tree
            for part in above:
                options = options.setdefault(part, {})
            options[name] = entry.value
        return tree

    def add(self, path: KeyPath, node: yaml.Node, named: Location) -> None:
        """Take the leaf that `node` holds, or all below it. `named` is the location of the last part of `path`."""
        location = self._location(node, named)
        if path and not is_known(path):
            self._refuse_unknown(path, named)
        elif leaf_of(path) and path not in PASS_THROUGH:
            self._add_leaf(path, node, location)
        elif path in GROUPS and isinstance(node, yaml.MappingNode) and not node.value:
            self.refuse(location, path, "has no options; set some, or delete it")
        elif isinstance(node, yaml.MappingNode):
            for name, child, child_named in self._pairs(path, node, location):
                self.add((*path, name), child, child_named)
        elif not nodes.is_null(node):
            of = "aiokafka's option names" if path in PASS_THROUGH else "options"
            self.refuse(location, path, f"must be a mapping of {of} to values")
        elif path in GROUPS:
            for leaf in LEAVES:
                if leaf[:-1] == path:
                    self.entries[leaf] = Setting(None, location)
        elif path == ("filter",) and node.value:
            self._remember_nothing(location)

    def add_text(self, path: KeyPath, text: str, location: Location) -> None:
        """Take a value written in YAML, whose name is given apart from it."""
        try:
            node = nodes.read_text(text) or nodes.NULL
        except RecursionError:
            self.refuse(location, path, "is nested too deeply; put the value in quotes")
        except yaml.YAMLError as error:
            why = f"is not YAML: {nodes.reason(error)}; put the value in quotes"
            self.refuse(location, path, why)
        else:
            self.add(path, node, location)

    def refuse(self, location: Location, path: KeyPath, why: str) -> None:
        """Add a problem with an option. For a secret, the problem is always that it must not be written here."""
        name = shown(path, is_typed=location.is_command_line)
        if path in SECRETS:
            why = (
                f"a secret must not be written here; set {variable_of(path)} in the environment, "
                f"or {name}_file to the path of a file that holds it"
            )
            name += f" = {MASK}"
        self.problems.append(Problem(location, f"{name}: {why}"))

    def _add_leaf(self, path: KeyPath, node: yaml.Node, location: Location) -> None:
        value = nodes.raw(node)
        if nodes.is_tagged(node) or (
            path in SECRETS and value is not None and location.rank != _ENVIRONMENT
        ):
            self.rejected.add(path)  # `refuse` has its own message for a secret
            self.refuse(
                location,
                path,
                "a tag is not read; write the value itself, in quotes if it begins with !",
            )
        elif nodes.repeats(node):
            self.rejected.add(path)
            self.refuse(location, path, "has a name twice in one mapping; delete one of them")
        else:
            self.rejected.discard(path)
            self.entries[path] = Setting(value, location)

    def _remember_nothing(self, location: Location) -> None:
        """Read `filter: null`: reset all options of the filter but those of the hash, which lists need."""
        for path in LEAVES:
            if path[0] == "filter" and path[1] not in _OF_HASH:
                self.entries[path] = Setting(None, location)
        self.entries["filter", "kind"] = Setting("none", location)

    def _pairs(
        self, path: KeyPath, node: yaml.MappingNode, location: Location
    ) -> Iterator[tuple[str, yaml.Node, Location]]:
        """Yield each name of a mapping, its value, and the location of the name; report a name that is set twice."""
        first: dict[str, Location] = {}
        for name_node, child in node.value:
            named, name = self._location(name_node, location), name_node.value
            if not isinstance(name_node, yaml.ScalarNode):
                self.problems.append(Problem(named, "a name must be a text"))
            elif name in first:
                where = f" in line {first[name].line}" if first[name].line else ""
                why = f"is set twice, first{where}; delete one of them"
                self.problems.append(Problem(named, f"{shown((*path, name))}: {why}"))
            else:
                first[name] = named
                yield name, child, named

    def _location(self, node: yaml.Node, otherwise: Location) -> Location:
        """Return the line of a node if the source is a file, else `otherwise`."""
        if self.file is None:
            return otherwise
        line = node.start_mark.line + 1
        return Location(_FILE, line, f"{self.file}:{line}")

    def _refuse_unknown(self, path: KeyPath, location: Location) -> None:
        path = path_of(".".join(path))
        if is_known(path):  # `kafka.group_id:` in a file: YAML takes it for one name
            self.rejected.add(leaf_of(path) or path)
            above = ", indented below it ".join(f"`{part}:`" for part in path)
            self.refuse(location, path, f"must be written as a section: {above}")
            return
        nearest = suggest(path)
        if nearest is None and path[0] == "kafka" and (why := refused(".".join(path[1:]))):
            self.refuse(location, path, f"is refused: {why}")
            return
        self.rejected.add(path_of(nearest or ""))
        if nearest is None:
            hint = "see `streamdedup config schema` for what there is, or delete it"
        elif location.rank == _ENVIRONMENT:
            hint = f"did you mean {variable_of(path_of(nearest))} ({nearest})?"
        else:
            hint = f"did you mean {nearest}?"
        self.refuse(location, path, f"is not an option; {hint}")


def read_file(path: Path) -> Layer:
    """Read a YAML file. Raises ConfigError if it is not YAML, or not a mapping of sections."""
    layer, root = Layer(path), nodes.read_file(path)
    if isinstance(root, yaml.MappingNode):
        layer.add((), root, Location(_FILE, 0, str(path)))
    elif root is not None:
        raise ConfigError(f"{path}:1: must be a mapping of sections, like `kafka:`")
    return layer


def read_environment(environ: Mapping[str, str]) -> Layer:
    """Read the variables that begin with `STREAMDEDUP_` and contain `__`; all others are ignored.

    A variable that lacks only the second underscore is a problem, too: otherwise it would be ignored silently.
    """
    layer = Layer()
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name.startswith(_NOT_OPTIONS):
            continue
        text, location = environ[name], Location(_ENVIRONMENT, 0, name)
        path = tuple(name.removeprefix(PREFIX).lower().split("__", 2))
        if "__" not in name:
            if single := path_of_single(name):
                layer.rejected.add(leaf_of(single) or single)
                why = f"names no option; write {variable_of(single)}, with two underscores"
                layer.problems.append(Problem(location, why))
        elif (
            path in PASS_THROUGH
            or path in GROUPS
            or (path in _LISTS and text[:1] == "[" and text[-1:] == "]")
        ):
            layer.add_text(path, text, location)
        else:
            layer.add(path, nodes.plain(text), location)
    return layer


def read_overrides(overrides: Sequence[str]) -> Layer:
    """Read `section.name=value` from the command line; the value is YAML."""
    layer, location = Layer(), Location(_COMMAND_LINE, 0, "--set")
    for override in overrides:
        name, equals, text = override.partition("=")
        name = name.strip()
        if equals and _NAME.fullmatch(name):
            layer.add_text(path_of(name), text, location)
        else:  # the message repeats only the name of an option: all else may be a secret
            name = re.split(r"[^\w.]", name, maxsplit=1)[0]
            name = name if path_of(name) in LEAVES else "KEY"
            why = f"is not followed by =; write --set {name}=value"
            if name == "KEY":
                layer.problems.append(Problem(location, f"{name}: {why}"))
            else:
                layer.refuse(location, path_of(name), why)
    return layer


_FILE, _ENVIRONMENT, _COMMAND_LINE = range(3)
_LISTS = (("kafka", "bootstrap_servers"), ("key", "field"), ("key", "parts"))
_OF_HASH = ("hash", "hash_key", "hash_key_file")
_NOT_OPTIONS = (f"{PREFIX}TEST_", f"{PREFIX}CACHE")
_NAME = re.compile(r"[\w.-]+")
