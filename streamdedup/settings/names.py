"""The names of options, dotted and as environment variables, and the search for the option that was probably meant.

A path is a dotted name in parts: section, option, and a third part below a group of options, such as
`source.repartition`, and below `kafka.consumer` and `kafka.producer`, where it is aiokafka's option.
"""

import re

from streamdedup.kafka.passthrough import KAFKA_NAMES, client_options, refused, resembles_option
from streamdedup.settings.tree import GROUPS, LEAVES, PASS_THROUGH, KeyPath, sections
from streamdedup.units import nearest

PREFIX = "STREAMDEDUP_"
MASK = "********"


def path_of(name: str) -> KeyPath:
    """Split a dotted name into a path. The third part keeps its dots: it may be one of Kafka's own names."""
    return tuple(name.split(".", 2))


def variable_of(path: KeyPath) -> str:
    """Return the name of the environment variable that sets an option."""
    return PREFIX + "__".join(path).upper()


def path_of_single(variable: str) -> KeyPath | None:
    """Return the option that `variable` would set if the underscores between its parts were doubled, or None."""
    single = variable.removeprefix(PREFIX).lower()
    for path in (*LEAVES, *GROUPS):
        if single == "_".join(path):
            return path
    section, _, name = single.partition("_")
    for client in ("consumer", "producer"):
        option = name.removeprefix(f"{client}_")
        if section == "kafka" and option != name and option in client_options(client):
            return section, client, option
    return None


def is_known(path: KeyPath) -> bool:
    """Whether the section or option exists. Below `kafka.consumer` and `kafka.producer`, every name counts as known."""
    if len(path) == 1:
        return path[0] in sections()
    return path in LEAVES or path in GROUPS or (len(path) == 3 and path[:2] in PASS_THROUGH)


def shown(path: KeyPath, *, is_typed: bool = False) -> str:
    """Return the dotted name as a message may show it. Stars hide what neither is an option's name nor resembles one.

    It may be a secret that was written in the place of a name. If it `is_typed` before the `=` of `--set`, and has only
    words in lower case, it is not hidden.
    """
    if _resembles(path) or (is_typed and _WORDS.fullmatch(".".join(path))):
        return ".".join(path)
    known = next((n for n in (2, 1) if n < len(path) and is_known(path[:n])), 0)
    return ".".join((*path[:known], MASK))


def _resembles(path: KeyPath) -> bool:
    if not all(map(_NAME.fullmatch, path)):
        return False
    if path[:2] in PASS_THROUGH and len(path) == 3:
        return resembles_option(path[2])
    reason = refused(".".join(path[1:])) if path[0] == "kafka" else None
    return is_known(path) or suggest(path) is not None or reason is not None


def suggest(path: KeyPath) -> str | None:
    """Return the option that was probably meant, or None. It is found by our names, aiokafka's or Kafka's."""
    if (written := ".".join(path)) in KAFKA_NAMES:
        return KAFKA_NAMES[written]
    if path[0] not in sections() and (near := nearest(path[0], sections())):
        path = (near, *path[1:])
        if len(path) == 1:
            return near
    if path[:2] in GROUPS and len(path) == 3:
        near = nearest(path[2], [leaf[2] for leaf in LEAVES if leaf[:2] == path[:2]])
        return near and ".".join((*path[:2], near))
    last = ".".join(path[1:]) or path[0]
    plain = last.replace(".", "_").replace("-", "_")
    kafka_names = (KAFKA_NAMES.get(name) for name in (last, last.replace("_", ".")))
    return (
        next(filter(None, kafka_names), None) or _leaf(path, plain) or _client_option(path, plain)
    )


def _leaf(path: KeyPath, name: str) -> str | None:
    """Return the option or group with that name, preferably of the section `path[0]`; else a similar one of it."""
    known_paths = sorted((*LEAVES, *GROUPS), key=lambda leaf: leaf[0] != path[0])
    for known_path in sorted(known_paths, key=lambda leaf: leaf[1:] != path):
        if name in ("_".join(known_path[n:]) for n in range(len(known_path))):
            return ".".join(known_path)
    siblings = [leaf[1] for leaf in known_paths if leaf[0] == path[0] and len(leaf) == 2]
    longer = (known for known in siblings if len(path) > 1 and known.startswith(name))
    near = next(longer, None) or nearest(name, siblings)
    return near and f"{path[0]}.{near}"


def _client_option(path: KeyPath, name: str) -> str | None:
    if path[0] == "kafka" or path[0] not in sections():
        for client in ("consumer", "producer"):
            if name in client_options(client):
                return f"kafka.{client}.{name}"
    return None


_NAME = re.compile(r"[\w.-]+")
_WORDS = re.compile(r"(?=.{1,64}\Z)[a-z]+(?:[_.][a-z]+)*")
