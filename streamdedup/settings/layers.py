"""The layers of the configuration before they are checked: each value as text, with its place.

A scalar stays the text that was written, and its leaf reads it: so `1e-6`, `0123`, `yes` and `1:30`
mean what they look like, whatever a YAML version makes of them. `null` means the default.
Later layers win leaf by leaf.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from streamdedup.errors import ConfigError
from streamdedup.kafka.passthrough import KAFKA_NAMES, client_options, refused
from streamdedup.settings.tree import LEAVES, PASS_THROUGH, SECRETS, sections

PREFIX = "STREAMDEDUP_"

KeyPath = tuple[str, ...]
Raw = str | list["Raw"] | dict[str, "Raw"] | None


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """Where a value was written: layers are ordered by rank, and a file by its lines."""

    rank: int
    line: int
    label: str


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    """One line for the operator."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place.label}: {self.text}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A value as it was written; None is an explicit `null`."""

    value: Raw
    place: Place


@dataclass(slots=True)
class Layers:
    """All values that were written, and what is wrong with the places where they were written."""

    entries: dict[KeyPath, Entry] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    rejected: set[tuple[int | str, ...]] = field(default_factory=set)
    """Leaves that were written, but wrongly, so that they must not be called missing."""

    def add_file(self, path: Path) -> None:
        """Read a YAML file. Raises ConfigError where it cannot be understood at all."""
        root = _compose_file(path)

        def place_of(node: yaml.Node) -> Place:
            return _file_place(path, node.start_mark.line + 1)

        if isinstance(root, yaml.MappingNode):
            self._add((), root, place_of)
        elif root is not None:
            raise ConfigError(f"{path}:1: must be a mapping of sections, like `kafka:`")

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Read the variables that begin with `STREAMDEDUP_` and have a `__`; no others are ours.

        One that would be with a second underscore is refused: to leave it alone would be to ignore it.
        """
        for name in sorted(environ):
            if not name.startswith(PREFIX) or name.startswith(_NOT_OPTIONS):
                continue
            if "__" in name:
                self._add_variable(name, environ[name])
            elif path := _path_of_single(name):
                self.rejected.add(path[:2])
                self._problem(
                    Place(1, 0, name),
                    f"names no option; write {variable_of(path)}, with two underscores",
                )

    def add_overrides(self, overrides: Sequence[str]) -> None:
        """Read `section.name=value` from the command line; the value is YAML."""
        for override in overrides:
            name, equals, text = override.partition("=")
            name, place = name.strip(), Place(2, 0, "--set")
            if equals and _NAME.fullmatch(name):
                self._add_text(_path(name), text, place)
            else:
                self._refuse_unparted(name, place)

    def _add_variable(self, name: str, text: str) -> None:
        path = tuple(name.removeprefix(PREFIX).lower().split("__", 2))
        place = Place(1, 0, name)
        if path in PASS_THROUGH or (path in _LISTS and text[:1] == "[" and text[-1:] == "]"):
            self._add_text(path, text, place)
        elif path in LEAVES or path[:2] in PASS_THROUGH:
            self.entries[path] = Entry(text or None, place)
        else:
            self._unknown(path, place)

    def _refuse_unparted(self, text: str, place: Place) -> None:
        """Name only the beginning of `text`: what follows may be a secret."""
        name = re.split(r"[^\w.]", text, maxsplit=1)[0] or "KEY"
        if _path(name) in SECRETS:
            self._refuse_secret(_path(name), place)
        else:
            self._problem(place, f"{name}: is not followed by =; write --set {name}=value")

    def _add_text(self, path: KeyPath, text: str, place: Place) -> None:
        try:
            node = yaml.compose(text, _Loader)
        except yaml.YAMLError as error:
            if path in SECRETS:
                self._refuse_secret(path, place)
            else:
                reason = f"is not YAML: {_yaml_reason(error)}; put the value in quotes"
                self._problem(place, f"{'.'.join(path)}: {reason}")
            return
        if _is_known(path):
            self._add(path, node or _NULL, lambda _node: place)
        else:
            self._unknown(path, place)

    def _add(self, path: KeyPath, node: yaml.Node, place_of: Callable[[yaml.Node], Place]) -> None:
        if len(path) == 3 or (path in LEAVES and path not in PASS_THROUGH):
            self._add_leaf(path, node, place_of(node))
        elif isinstance(node, yaml.MappingNode):
            for name, name_node, child in self._pairs(path, node, place_of):
                full = (*path, name)
                if _is_known(full):
                    self._add(full, child, place_of)
                else:
                    self._unknown(full, place_of(name_node))
        elif not _is_null(node):
            of = "aiokafka's option names" if len(path) == 2 else "options"
            self._problem(place_of(node), f"{'.'.join(path)}: must be a mapping of {of} to values")
        elif path == ("filter",) and node.value:
            self._remember_nothing(place_of(node))

    def _remember_nothing(self, place: Place) -> None:
        """`filter: null`, written out: what was said of a filter before is void, but for the hash, which lists need."""
        for path in [path for path in self.entries if path[0] == "filter"]:
            if path[1] not in _OF_HASH:
                del self.entries[path]
        self.entries["filter", "kind"] = Entry("none", place)

    def _pairs(
        self, path: KeyPath, node: yaml.MappingNode, place_of: Callable[[yaml.Node], Place]
    ) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        first: dict[str, Place] = {}
        for name_node, child in node.value:
            place = place_of(name_node)
            if not isinstance(name_node, yaml.ScalarNode):
                self._problem(place, "a name must be a text")
                continue
            name = name_node.value
            if name in first:
                where = f" in line {first[name].line}" if first[name].line else ""
                full = ".".join((*path, name))
                self._problem(place, f"{full}: is set twice, first{where}; delete one of them")
                continue
            first[name] = place
            yield name, name_node, child

    def _add_leaf(self, path: KeyPath, node: yaml.Node, place: Place) -> None:
        name = ".".join(path)
        self.rejected.add(path)
        value = _raw(node)
        if path in SECRETS and value is not None:
            self._refuse_secret(path, place)
        elif tag := _foreign_tag(node):
            self._problem(place, f"{name}: the tag {tag} is not read; write the value itself")
        else:
            self.rejected.discard(path)
            self.entries[path] = Entry(value, place)

    def _refuse_secret(self, path: KeyPath, place: Place) -> None:
        name, variable = ".".join(path), variable_of(path)
        self._problem(
            place,
            f"{name} = {MASK}: a secret must not be written here; set {variable} in the "
            f"environment, or {name}_file to the path of a file that holds it",
        )

    def _unknown(self, path: KeyPath, place: Place) -> None:
        path = _path(".".join(path))
        if _is_known(path):
            self._refuse_dotted(path, place)
            return
        nearest = suggest(path)
        if nearest is None and path[0] == "kafka" and (reason := refused(".".join(path[1:]))):
            self._problem(place, f"{'.'.join(path)}: is refused: {reason}")
            return
        self.rejected.add(tuple((nearest or "").split(".")))
        if nearest is None:
            hint = "see `streamdedup config schema` for what there is, or delete it"
        elif place.rank == 1:
            hint = f"did you mean {variable_of(_path(nearest))} ({nearest})?"
        else:
            hint = f"did you mean {nearest}?"
        self._problem(place, f"{'.'.join(path)}: is not an option; {hint}")

    def _refuse_dotted(self, path: KeyPath, place: Place) -> None:
        """In a file a name with dots is one name."""
        self.rejected.add(path[:2])
        if path in SECRETS:
            self._refuse_secret(path, place)
            return
        above = ", indented below it ".join(f"`{part}:`" for part in path)
        text = f"must be written as a section: {above}"
        self._problem(place, f"{'.'.join(path)}: {text}")

    def _problem(self, place: Place, text: str) -> None:
        self.problems.append(Problem(place, text))


MASK = "********"
_LISTS = (("kafka", "bootstrap_servers"), ("key", "field"))
_OF_HASH = ("hash", "hash_key", "hash_key_file")
_NOT_OPTIONS = (f"{PREFIX}TEST_", f"{PREFIX}CACHE")
_NAME = re.compile(r"[\w.-]+")
_NULL = yaml.ScalarNode("tag:yaml.org,2002:null", "")


def variable_of(path: KeyPath) -> str:
    """Return the environment's name of an option."""
    return PREFIX + "__".join(path).upper()


def suggest(path: KeyPath) -> str | None:
    """Return the option that was probably meant, known by our names, aiokafka's or Kafka's."""
    if (written := ".".join(path)) in KAFKA_NAMES:
        return KAFKA_NAMES[written]
    if path[0] not in sections() and (near := _nearest(path[0], sections())):
        path = (near, *path[1:])
        if len(path) == 1:
            return near
    last = ".".join(path[1:]) or path[0]
    plain = last.replace(".", "_").replace("-", "_")
    kafka_names = (KAFKA_NAMES.get(name) for name in (last, last.replace("_", ".")))
    return (
        next(filter(None, kafka_names), None) or _leaf(path, plain) or _client_option(path, plain)
    )


def _leaf(path: KeyPath, name: str) -> str | None:
    """Return the leaf of that name, in its section if possible, or one like it in its section."""
    for section, known in sorted(LEAVES, key=lambda leaf: leaf[0] != path[0]):
        if name in (known, f"{section}_{known}"):
            return f"{section}.{known}"
    siblings = [known for section, known in LEAVES if section == path[0]]
    longer = (known for known in siblings if len(path) > 1 and known.startswith(name))
    near = next(longer, None) or _nearest(name, siblings)
    return near and f"{path[0]}.{near}"


def _client_option(path: KeyPath, name: str) -> str | None:
    if path[0] == "kafka" or path[0] not in sections():
        for client in ("consumer", "producer"):
            if name in client_options(client):
                return f"kafka.{client}.{name}"
    return None


def _nearest(name: str, known: Sequence[str] | Mapping[str, object]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def _path_of_single(variable: str) -> KeyPath | None:
    """The option that `variable` would name if the underscores between its parts were doubled."""
    section, _, name = variable.removeprefix(PREFIX).lower().partition("_")
    if (section, name) in LEAVES:
        return section, name
    for client in ("consumer", "producer"):
        option = name.removeprefix(f"{client}_")
        if section == "kafka" and option != name and option in client_options(client):
            return section, client, option
    return None


def _path(name: str) -> KeyPath:
    return tuple(name.split(".", 2))


def _is_known(path: KeyPath) -> bool:
    if len(path) == 1:
        return path[0] in sections()
    return path in LEAVES or (len(path) == 3 and path[:2] in PASS_THROUGH)


def _file_place(path: Path, line: int) -> Place:
    return Place(0, line, f"{path}:{line}")


class _Loader(yaml.SafeLoader):
    """Builds nodes with their lines, and no aliases: a value stands where it is used."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call] # PyYAML's stub
            raise yaml.composer.ComposerError(
                None, None, "aliases (*name) are not read, write the value out", mark
            )
        return super().compose_node(parent, index)


def _compose_file(path: Path) -> yaml.Node | None:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}; name an existing file with -c FILE"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    try:
        return yaml.compose(text, _Loader)
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply; options are two levels deep") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: is not YAML: {_yaml_reason(error)}") from None


def _yaml_reason(error: yaml.YAMLError) -> str:
    """Return the reason without the text around it, which may hold a secret."""
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is damaged"
    if "\\t" in reason:
        return "a tab where it must be spaces; indent with spaces"
    if "tag handle" in reason:  # PyYAML quotes it, and `!` may be how a secret begins
        return "a tag with an unknown handle"
    return str(reason)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _raw(node: yaml.Node) -> Raw:
    if isinstance(node, yaml.SequenceNode):
        return [_raw(child) for child in node.value]
    if isinstance(node, yaml.MappingNode):
        return {str(name.value): _raw(child) for name, child in node.value}
    return None if _is_null(node) else str(node.value)


def _foreign_tag(node: yaml.Node) -> str | None:
    return None if node.tag.startswith("tag:yaml.org,2002:") else node.tag
