"""`streamdedup lists changes`: the single changes of a blocklist that are in force, and who made them, when and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamdedup.errors import ConfigError, MalformedError
from streamdedup.kafka.base import Connect
from streamdedup.kafka.cluster import UNANSWERED, kafka_cluster, soon
from streamdedup.lists.in_force import ChangeInForce, ChangesInForce, changes_in_force
from streamdedup.lists.matching import asked_for
from streamdedup.lists.normalization import Normalizing
from streamdedup.settings import Settings
from streamdedup.units import counted, escaped, moment

LIMIT_MAX = 100_000


@dataclass(frozen=True)
class Report:
    """The changes in force of the control topic `topic`. Their entries are shown only if `shows_entries`."""

    topic: str
    found: ChangesInForce
    shows_entries: bool

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON values."""
        return {
            "topic": self.topic,
            "in_force": self.found.total,
            "malformed": self.found.malformed,
            "open_transactions": [
                {"partition": partition, "offset": offset}
                for partition, offset in sorted(self.found.hidden.items())
            ],
            "changes": [self._as_json(change) for change in self.found.newest],
        }

    def _as_json(self, change: ChangeInForce) -> dict[str, Any]:
        shown = {
            "partition": change.partition,
            "offset": change.offset,
            "op": change.op,
            "kind": change.kind,
            "actor": change.actor or None,
            "time": _time(change.time_ms),
            "reason": change.reason or None,
        }
        entry = change.entry.decode(errors="backslashreplace")
        return {**shown, "entry": entry} if self.shows_entries else shown

    def as_text(self) -> str:
        """Return a line for each change, its fields separated by tabs; what is not known is `-`."""
        return "".join("\t".join(self._fields(change)) + "\n" for change in self.found.newest)

    def _fields(self, change: ChangeInForce) -> list[str]:
        fields = [
            f"{change.partition}/{change.offset}",
            change.op,
            change.kind,
            escaped(change.actor) or "-",
            _time(change.time_ms) or "-",
            escaped(change.reason) or "-",
        ]
        return [*fields, escaped(change.entry)] if self.shows_entries else fields

    def notes(self) -> list[str]:
        """Return what a person must know beside the changes, a line each."""
        total, shown = self.found.total, len(self.found.newest)
        notes = []
        if shown < total:
            notes.append(f"the newest {shown:,} of {total:,} changes; --limit shows more")
        if not total:
            notes.append("no change that was asked for is in force")
        if self.found.malformed:
            messages = counted(self.found.malformed, "malformed message")
            notes.append(f"{self.topic} has {messages}, which change nothing")
        notes += [
            f"a transaction is open on {self.topic}/{partition} from offset {offset} on; what is written after that is"
            " not in force before it ends"
            for partition, offset in sorted(self.found.hidden.items())
        ]
        return notes


async def in_force(
    settings: Settings,
    asked: Sequence[bytes],
    *,
    limit: int,
    shows_entries: bool,
    connect: Connect = kafka_cluster,
) -> Report:
    """Return the changes in force that concern the keys and entries `asked`, or all; at most `limit`, the newest.

    A key is concerned by the changes of its domains, too. ConfigError if there is no control topic, or if one of
    `asked` is neither a key nor an entry. DeliveryError if the broker refuses us or does not answer.
    """
    topic = settings.blocklist.control_topic
    if topic is None:
        raise ConfigError(
            "blocklist.control_topic is not set, so there are no single changes; set it to the topic of the workers"
        )
    normalizing = Normalizing(settings.key.normalize, settings.key.rules)
    entries = {
        entry
        for number, text in enumerate(asked, 1)
        for entry in _entries(number, text, normalizing)
    }
    async with soon(connect, settings.kafka, UNANSWERED) as cluster:
        found = await changes_in_force(
            cluster, topic, normalizing.normalizer(), entries if asked else None, limit
        )
    return Report(topic, found, shows_entries or bool(asked))


def _entries(number: int, text: bytes, normalizing: Normalizing) -> list[bytes]:
    try:
        return [entry.text for entry in asked_for(text, normalizing)]
    except MalformedError as reason:
        raise ConfigError(f"entry {number} is not valid: {reason}") from None


def _time(time_ms: int) -> str | None:
    """Return a message's timestamp, ms since 1970, for people; None if it has none."""
    return moment(time_ms) if time_ms >= 0 else None
