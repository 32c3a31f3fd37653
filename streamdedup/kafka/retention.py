"""How long the output keeps its events: as long as its filter remembers their keys, or a fold misses some of them.

How long a filter remembers is given in ms; None if it never forgets by itself, 0 if there is none.
"""

from dataclasses import dataclass

from streamdedup.kafka.topics import FOREVER, Topic

PLACE_BYTES_MAX = 512  # of the headers that name an event's place; its topic's name has at most 249
_BYTES_MAX = "max.message.bytes"
_LIMITS = (
    _BYTES_MAX,
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",
)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """That an output deletes events before its filter forgets their keys: what it does, and what to do about it."""

    reason: str
    remedy: str


def settings_like(source: Topic) -> dict[str, str]:
    """Return the settings of a topic that keeps events as long as `source`."""
    settings = {"cleanup.policy": "delete"}
    if retention := source.settings.get("retention.ms"):
        settings["retention.ms"] = retention
    return settings


def output_settings(source: Topic, remembered_ms: int | None) -> dict[str, str]:
    """Return the settings of an output that keeps events as long as `source`, and as long as its filter needs.

    If the filter forgets by the events' times, the output keeps these, whatever the brokers' default is.
    """
    settings = settings_like(source)
    if remembered_ms:
        settings["message.timestamp.type"] = "CreateTime"
    if remembered_ms != 0:
        source_ms = source.retention_ms if source.settings else 0
        kept_ms = FOREVER if remembered_ms is None else max(source_ms, remembered_ms)
        settings["retention.ms"] = "-1" if kept_ms >= FOREVER else str(kept_ms)
        settings["retention.bytes"] = "-1"
    return settings


def duplicates_settings(source: Topic, output: Topic, *, are_letters: bool) -> dict[str, str]:
    """Return the settings of a topic for duplicates, which takes all events that `output` takes, as far as known.

    If they `are_letters`, it has room for their headers, and needs no limits of time.
    """
    limits = {name: output.settings[name] for name in _LIMITS if name in output.settings}
    if are_letters:
        more = {_BYTES_MAX: str(output.bytes_max + PLACE_BYTES_MAX)} if _BYTES_MAX in limits else {}
        return settings_like(source) | more
    return settings_like(source) | limits


def shortfall(output: Topic, remembered_ms: int | None) -> Shortfall | None:
    """Return in what `output` falls short; None if in nothing, or its settings are not known."""
    if remembered_ms == 0 or not output.deletes_by_age:
        return None
    needed_ms = FOREVER if remembered_ms is None else remembered_ms
    short = {}
    if output.retention_ms < needed_ms:
        short["retention.ms"] = "-1" if remembered_ms is None else f"{remembered_ms} or more"
    if output.number("retention.bytes", -1) >= 0:
        short["retention.bytes"] = "-1"
    if not short:
        return None
    found = ", ".join(f"{name}={output.settings[name]}" for name in short)
    needed = ", ".join(f"{name}={value}" for name, value in short.items())
    forgets = "which it never does" if remembered_ms is None else f"after {remembered_ms} ms"
    return Shortfall(
        f"{output.name} deletes events ({found}) before the filter forgets their keys ({forgets}), so only snapshots"
        " keep these keys: without one that fits, they are lost",
        f"set {needed} on {output.name}",
    )
