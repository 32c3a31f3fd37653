"""The messages of a control topic. Each adds an entry to the list or removes one; the record key is the entry.

The value is JSON: `{"op": "add", "reason": "...", "actor": "..."}` or `{"op": "remove", ...}`. A null value takes the
change back. `op` alone decides; `reason` and `actor` are optional texts for people. Record keys are normalized, so that
compaction keeps the last message about each entry.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import orjson

from streamdedup.errors import ConfigError, MalformedError
from streamdedup.events import Column
from streamdedup.filters.base import Mask
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.topics import READ, Topic
from streamdedup.keys.normalizers.base import (
    BELOW,
    EXACT,
    DomainEntry,
    DomainNormalizer,
    Normalizer,
)
from streamdedup.lists.entry import WILD, hinted, wildcard
from streamdedup.lists.overlay import (
    ADDED,
    CHANGES_MAX,
    MOVED_MAX,
    PARTITIONS_MAX,
    REMOVED,
    UNCHANGED,
    Changes,
)

ENTRY_BYTES_MAX = 4096
REASON_CHARS_MAX = 1000
ACTOR_CHARS_MAX = 100
VALUE_BYTES_MAX = 16_384  # the longest texts take 12 bytes a character in JSON, as two escapes
OPS = {"add": ADDED, "remove": REMOVED}
_OP_OF = {ADDED: "add", REMOVED: "remove", UNCHANGED: "undo"}

Op = Literal["add", "remove", "undo"]


@dataclass(frozen=True)
class Change:
    """The effect of a message. The list holds its entry by `keys`; `change` is ADDED, REMOVED or UNCHANGED for each.

    `reason` and `actor` are empty if the message has none.
    """

    keys: tuple[bytes, ...]
    change: int
    reason: str = ""
    actor: str = ""


def read_change(entry: bytes | None, value: bytes | None, normal: Normalizer | None) -> Change:
    """Return the change that a message asks for; MalformedError if the message is wrong.

    `entry` is the record key, and `normal` the list's normalizer.
    """
    if entry is None:
        raise MalformedError(
            "the record key is null; it must be the entry that is added or removed"
        )
    written, key = control_entry(entry, normal)
    if entry != written:
        raise MalformedError(
            "the record key is not normalized, so another message could contradict it"
        )
    if value is None:
        return Change((key,), UNCHANGED)
    op, reason, actor = _read(value)
    return Change((key,), op, reason, actor)


def plain_entries(entries: Column, normal: Normalizer | None) -> Mask:
    """Return which of `entries` are normalized keys beyond doubt: (n,). `read_change` need not normalize them.

    Python takes up to 1 ms to normalize an address, and a topic may hold millions.
    """
    plain = np.zeros(len(entries), dtype=np.bool_)
    if isinstance(normal, DomainNormalizer):
        found, _ = normal.of_column(entries)
        for row, (entry, normalized) in enumerate(zip(entries, found, strict=True)):
            plain[row] = (
                entry == normalized
                and entry is not None
                and 0 < len(entry) <= ENTRY_BYTES_MAX
                and entry[:1] not in (EXACT, BELOW)
                and entry.translate(None, WILD) == entry
            )
    return plain


def control_key(entry: bytes, normal: Normalizer | None) -> bytes:
    """Return the record key of an entry. MalformedError as `control_entry` raises it."""
    return control_entry(entry, normal)[0]


def op_of(change: Change) -> str:
    """Return how a message writes that change: `add`, `remove`, or `undo`, which is a null value."""
    return _OP_OF[change.change]


def control_entry(entry: bytes, normal: Normalizer | None) -> tuple[bytes, bytes]:
    """Return the record key of an entry, the same however the entry is written, and the key by which a list holds it.

    MalformedError if it is not an entry, or stands for two domains. The latter would have two record keys for one key
    of the list, and nothing would show which of the two messages came last.
    """
    if len(entry) > ENTRY_BYTES_MAX:
        raise MalformedError(f"the entry has more than {ENTRY_BYTES_MAX} bytes")
    if not isinstance(normal, DomainNormalizer):
        key = normal.of_key(entry) if normal else entry
    else:
        text = entry.decode(errors="replace")
        try:
            if entry.lstrip()[:1] in (EXACT, BELOW):
                return _of_domain(normal.of_domain_entry(entry))
            if why := wildcard(text, normal):
                raise MalformedError(why)
            key = normal.of_key(entry)
        except MalformedError as error:
            raise MalformedError(hinted(str(error), text, normal, in_build=False)) from None
    if not key:
        raise MalformedError("the entry is empty")
    return key, key


def _of_domain(entry: DomainEntry) -> tuple[bytes, bytes]:
    if len(entry.keys) > 1:
        raise MalformedError(
            "the domain is an alias of another domain, and the two have different subdomains: write @DOMAIN for the"
            " domain alone, or build the list again with this entry"
        )
    return entry.text, entry.keys[0]


def message(op: Op, reason: str, actor: str = "") -> bytes | None:
    """Return the value of a message, None for "undo". ConfigError if a text is too long, or given with "undo"."""
    texts = {"reason": (reason, REASON_CHARS_MAX), "actor": (actor, ACTOR_CHARS_MAX)}
    given = {name: text for name, (text, _) in texts.items() if text}
    if op == "undo":
        for name in given:
            raise ConfigError(
                f"--{name} is for add and remove: the message that undoes a change is null and holds no {name};"
                f" delete --{name}"
            )
        return None
    for name, text in given.items():
        if len(text) > (most := texts[name][1]):
            raise ConfigError(
                f"--{name} has {len(text)} characters; the limit is {most}; shorten it"
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ConfigError(f"--{name} is not UTF-8", remedy="write it in UTF-8")
    return orjson.dumps({"op": op, **given})


def _read(value: bytes) -> tuple[int, str, str]:
    """Return the change, the reason and the actor of a message.

    A reason or an actor that is no text counts as none, and one that is too long is cut. Neither decides anything, so
    workers of all versions agree on what the message changes.
    """
    if len(value) > VALUE_BYTES_MAX:
        raise MalformedError(f"the value has more than {VALUE_BYTES_MAX} bytes")
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise MalformedError("the value is not valid JSON") from None
    op = found.get("op") if isinstance(found, dict) else None
    if not isinstance(op, str) or op not in OPS:
        raise MalformedError('the value is not an object whose "op" is "add" or "remove"')
    return (
        OPS[op],
        _text(found.get("reason"), REASON_CHARS_MAX),
        _text(found.get("actor"), ACTOR_CHARS_MAX),
    )


def _text(given: object, chars_max: int) -> str:
    return given[:chars_max] if isinstance(given, str) else ""


def refuse_too_many(changes: Changes, topic: str) -> None:
    """Raise ConfigError if `topic` holds more changes than a worker keeps. Blocking, for some milliseconds."""
    if changes.more_than(CHANGES_MAX):
        raise ConfigError(
            f"the topic {topic} holds more than {CHANGES_MAX:,} changes",
            remedy="build the list again with them, and write null values for their keys",
        )
    if changes.moved > MOVED_MAX:
        raise ConfigError(
            f"the topic {topic} holds changes of more than {MOVED_MAX:,} entries in several partitions each, as after"
            " partitions were added",
            remedy="run `streamdedup lists undo` and then `lists add` or `remove` for such entries",
        )


async def control_topic(cluster: Cluster, topic: str) -> Topic:
    """Return the control topic `topic`.

    ConfigError if it is missing, not compacted by key alone, has too many partitions, or we may not read it.
    """
    found = (await cluster.describe([topic])).topics.get(topic)
    if found is None:
        raise ConfigError(
            f"the topic {topic} does not exist or may not be seen",
            remedy="create it with cleanup.policy=compact, or delete blocklist.control_topic",
        )
    if found.settings and (not found.compacted or found.deletes_by_age):
        raise ConfigError(
            f"the topic {topic} deletes old messages, so changes of the list would be lost",
            remedy="set its cleanup.policy to compact",
        )
    if not found.may(READ):
        raise ConfigError(
            f"the right Read on topic {topic} is missing", remedy="grant it (docs/security.md)"
        )
    if found.partitions > PARTITIONS_MAX:
        raise ConfigError(
            f"the topic {topic} has {found.partitions} partitions, and a control topic may have {PARTITIONS_MAX} at"
            " most",
            remedy="name another one in blocklist.control_topic",
        )
    return found
