"""Reads YAML into nodes that know their lines.

A scalar stays the text that was written, so no version of YAML interprets it. Aliases are refused. No message quotes a
value, because it may be a secret.
"""

from pathlib import Path

import yaml

from streamdedup.errors import ConfigError
from streamdedup.named_files import read_short

Raw = str | list["Raw"] | dict[str, "Raw"] | None

DEPTH_MAX = 100  # levels; so the limit is ours, and not that of the interpreter
NULL = yaml.ScalarNode("tag:yaml.org,2002:null", "")


def read_file(path: Path) -> yaml.Node | None:
    """Return the root of a YAML file, None if it is empty. ConfigError if it cannot be read or is not YAML.

    It may be a pipe, which is read once.
    """
    try:
        text = read_short(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}; name an existing file with -c FILE"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    try:
        return read_text(text)
    except RecursionError:
        raise ConfigError(
            f"{path}: is nested too deeply; options are three levels deep at most"
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: is not YAML: {reason(error)}") from None


def read_text(text: str) -> yaml.Node | None:
    """Return the root of a YAML text, or None if it is empty. Raises YAMLError if it is not YAML.

    Raises RecursionError if it is nested more than DEPTH_MAX levels deep.
    """
    return yaml.compose(text, _Loader)


def plain(text: str) -> yaml.Node:
    """Return a node that holds the text as it is, without reading it as YAML. An empty text is `null`."""
    return yaml.ScalarNode("tag:yaml.org,2002:str", text) if text else NULL


def reason(error: yaml.YAMLError) -> str:
    """Return what is wrong, without the text around it, which may hold a secret."""
    why = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is damaged"
    if "\\t" in why:
        return "it is indented with a tab; indent with spaces"
    if "tag handle" in why:  # PyYAML quotes it, and `!` may be how a secret begins
        return "a tag with an unknown handle"
    return str(why)


def is_null(node: yaml.Node) -> bool:
    """Whether a node is `null` or empty."""
    return isinstance(node, yaml.ScalarNode) and node.tag == NULL.tag


def raw(node: yaml.Node) -> Raw:
    """Return the value of a node: texts, lists and mappings of texts, or None."""
    if isinstance(node, yaml.SequenceNode):
        return [raw(child) for child in node.value]
    if isinstance(node, yaml.MappingNode):
        return {str(name.value): raw(child) for name, child in node.value}
    return None if is_null(node) else str(node.value)


def is_tagged(node: yaml.Node) -> bool:
    """Whether a node has a tag, such as `!env`, that is not one of YAML's own."""
    return not node.tag.startswith("tag:yaml.org,2002:")


def repeats(node: yaml.Node) -> bool:
    """Whether a mapping in a value has one name twice, of which `raw` would keep the last."""
    if isinstance(node, yaml.SequenceNode):
        return any(map(repeats, node.value))
    if not isinstance(node, yaml.MappingNode):
        return False
    names = {name.value for name, _ in node.value}
    return len(names) < len(node.value) or any(repeats(child) for _, child in node.value)


class _Loader(yaml.SafeLoader):
    """Composes nodes, and refuses aliases: each value is written where it is used."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call] # PyYAML's stub
            raise yaml.composer.ComposerError(
                None, None, "an alias (*name) is not allowed; write the value itself", mark
            )
        if self._depth > DEPTH_MAX:
            raise RecursionError
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node
