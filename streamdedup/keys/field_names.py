"""Names the fields that many events have, for an operator whose `key.field` leads nowhere. It never names data.

An object may be a map, keyed by addresses: only a name that many events have counts, and in an object that has mostly
other names, one that half of such objects have. Of a format with schemas, the names are those of the schema.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import orjson
from typing_extensions import override

from streamdedup.events import Column, EventBatch
from streamdedup.keys.extract import Extractor
from streamdedup.keys.formats.field_paths import Path, Paths, paths_of
from streamdedup.keys.formats.schema_registry import PREFIX_BYTES

SAMPLED_MAX = 10_000  # events
BYTES_MAX, TEXT_BYTES_MAX = 32 << 20, 1 << 20  # of the values of all of these, and of one
FIELDS_MAX = 300_000  # read in all of these: a second
# Paths; if there are more, those that less than a hundredth of the events have are dropped.
COUNTED_MAX = 50_000
SHARE_MIN, EVENTS_MIN = 0.1, 5  # of the sampled events
SHOWN_MAX, SHOWN_CHARS_MAX = 20, 40
_ADDRESS = re.compile(r"[^@]@[^@]")
_MARK = b"\xef\xbb\xbf"  # of byte order
_VARINT_BYTES_MAX, INDEXES_MAX = 5, 16

Objects = dict[str, Any]


class Named(NamedTuple):
    """The fields that many events have: at most `SHOWN_MAX` names, and how many `more` there are; a text for people."""

    names: list[str]
    more: int = 0

    @override
    def __str__(self) -> str:
        more = [f"and {self.more:,} more"] if self.more else []
        return ", ".join([*self.names, *more]) or "none"


class FieldNames:
    """Counts which fields the values of events have, in a sample of at most `SAMPLED_MAX` events.

    `extractor` knows the format of the values. Make this before it meets the first schema: from then on, the fields of
    each are kept.
    """

    def __init__(self, extractor: Extractor) -> None:
        self.events = 0
        """How many events are in the sample: null and very large values are left out."""
        self._extractor, self._schemas = extractor, extractor.schemas
        if self._schemas is not None:
            self._schemas.keep_fields()
        self._bytes = self._read = 0  # bytes, and fields
        self._every, self._passed = 1, 0
        self._having = Counter[Path]()  # how many events have a path
        self._fields = Counter[Path]()  # how many fields objects at a path have, in all events

    def spread(self, events: int, partitions: int) -> None:
        """Sample evenly from the next `events` events. So many `partitions`, theirs included, share what is left."""
        share = max(1, (SAMPLED_MAX - self.events) // max(1, partitions))
        self._every, self._passed = max(1, -(-events // share)), 0

    def add(self, batch: EventBatch) -> None:
        """Count the fields of the events of `batch` that belong to the sample."""
        taken = list[int]()
        sizes = batch.values.sizes.tolist()
        for row in range(-self._passed % self._every, len(batch), self._every):
            if self.events + len(taken) == SAMPLED_MAX or self._read >= FIELDS_MAX:
                break
            if self._bytes + max(0, sizes[row]) > BYTES_MAX:
                break
            if 0 <= sizes[row] <= TEXT_BYTES_MAX:
                self._bytes += sizes[row]
                taken.append(row)
        self._passed += len(batch)
        if taken:
            self._count(self._extractor.texts(batch.take(np.array(taken, dtype=np.int64))))

    def common(self) -> Named:
        """Return the names that many events have, as `key.field` takes them, but cut; the most frequent come first."""
        least = max(EVENTS_MIN, SHARE_MIN * self.events)
        frequent = {path: events for path, events in self._having.items() if events >= least}
        known = Counter[Path]()
        for path, events in frequent.items():
            known[path[:-1]] += events
        maps = {path for path, fields in self._fields.items() if 2 * known[path] < fields}
        named = [path for path in frequent if self._may_be_named(path, maps)]
        objects = {path[:end] for path in named for end in range(1, len(path))}
        named = [path for path in named if path not in objects]  # what is in them is named
        named.sort(key=lambda path: -frequent[path])
        return Named([*map(_shown, named[:SHOWN_MAX])], max(0, len(named) - SHOWN_MAX))

    def _may_be_named(self, path: Path, maps: set[Path]) -> bool:
        """Return whether no part of `path` is an address, or stands in one of `maps` and not in half of its objects."""
        if any(map(_ADDRESS.search, path)):
            return False
        for end in range(len(path)):
            objects = self._having[path[:end]] if end else self.events
            if path[:end] in maps and 2 * self._having[path[: end + 1]] < objects:
                return False
        return True

    def _count(self, texts: Column) -> None:
        by_schema = Counter[tuple[int, tuple[int, ...]]]()
        for text in texts:
            if self._read >= FIELDS_MAX:
                break
            self.events += 1
            if self._schemas is not None and text and not text[0]:
                indexes = _indexes(text) if self._schemas.type == "PROTOBUF" else ()
                by_schema[int.from_bytes(text[1:PREFIX_BYTES]), indexes] += 1
            else:
                paths = _paths(text or b"")
                self._read += len(paths)
                self._note(paths, 1)
        for (number, indexes), events in by_schema.items():
            self._note(self._schemas.fields_of(number, indexes) if self._schemas else (), events)

    def _note(self, paths: Paths, events: int) -> None:
        for path in paths:
            self._having[path] += events
            self._fields[path[:-1]] += events
        if len(self._having) > COUNTED_MAX:
            few = [path for path, having in self._having.items() if 100 * having < self.events]
            for path in few:
                del self._having[path]
                self._fields.pop(path, None)


def _paths(text: bytes) -> Paths:
    """Return the paths of the fields of a JSON text; none if it is no object."""
    try:
        value = orjson.loads(text.removeprefix(_MARK))
    except orjson.JSONDecodeError:
        return ()
    return paths_of(value, _members) if isinstance(value, dict) else ()


def _members(value: Objects) -> Iterator[tuple[str, Objects | None]]:
    for name, inner in value.items():
        yield name, inner if isinstance(inner, dict) else None


def _indexes(framed: bytes) -> tuple[int, ...]:
    """Return which message of its file a value of Protobuf is: its index within the message around it, after that's."""
    at = PREFIX_BYTES

    def next_() -> int:
        nonlocal at
        raw = 0
        for number, byte in enumerate(framed[at : at + _VARINT_BYTES_MAX]):
            raw |= (byte & 127) << 7 * number
            if byte < 128:
                at += number + 1
                return raw >> 1 ^ -(raw & 1)
        return -1

    count = next_()
    if count == 0:
        return (0,)  # which is written without its index
    return tuple(next_() for _ in range(min(count, INDEXES_MAX)))


def _shown(path: Path) -> str:
    dotted = ".".join(path)
    if not all(path) or any("." in name for name in path) or dotted.startswith("/"):
        dotted = "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)
    return dotted if len(dotted) <= SHOWN_CHARS_MAX else f"{dotted[: SHOWN_CHARS_MAX - 1]}…"
