"""Every finding of a worker, once: what is not as an operator wants it, where, since when, and what to do about it.

`/readyz` and the gauge `streamdedup_finding` are made from findings, and so is the table of docs/operate.md. Each has a
section in docs/runbook.md. No finding holds a key.
"""

# How to add a finding (paths are below `streamdedup/`, unless they begin with another folder)
#
# 1. Here: a `Kind` with id, severity and meaning. By its definition it is in the list of all kinds.
# 2. Where it is seen: `server/findings.py` reads it from the worker's status. If an error of delivery stops a
#    partition, the error names it: `DeliveryError(..., finding="the-id", remedy=...)`.
# 3. docs/runbook.md: a section "### `the-id`" with five parts. `make docs` writes its meaning and tests, the table of
#    docs/operate.md, and the runbook that a worker serves.
# 4. A test that causes it, marked `@pytest.mark.finding("the-id")`. The build fails without one.

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from streamdedup.errors import StreamdedupError


class Severity(StrEnum):
    """How much a finding matters."""

    FAILURE = "failure"  # events wait
    WARNING = "warning"  # events are decided, but not as the operator wants, or soon not any more
    NOTE = "note"  # nobody need act


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: its id, its severity, and what it means, in a sentence for the documents."""

    id: str
    severity: Severity
    meaning: str

    def at(self, place: str | None, sentence: str, remedy: str | None = None) -> "Finding":
        """Return a finding of this kind. `place` is None if it concerns the whole worker."""
        return Finding(self, place, sentence, remedy)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as an operator wants it. No part of it holds a key.

    `place` names a partition, a topic or a list; None if it is the whole worker. `sentence` says what is found, and
    `remedy` what to do; it is None if nobody need act. `since` is in s since 1970; None before a `Log` has seen it.
    """

    kind: Kind
    place: str | None
    sentence: str
    remedy: str | None = None
    since: float | None = None

    @property
    def text(self) -> str:
        """Return the sentence with place and remedy."""
        said = f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence
        return f"{self.place}: {said}" if self.place else said


def of_error(error: Exception, otherwise: Kind, place: str | None, state: str = "") -> Finding:
    """Return what `error` has found at `place`; it is of the kind `otherwise`, unless the error names another.

    `state` is put before the sentence.
    """
    kind, sentence, remedy = otherwise, str(error), None
    if isinstance(error, StreamdedupError):
        kind = KINDS.get(error.finding or "", otherwise)
        sentence, remedy = error.sentence, error.remedy
    return kind.at(place, f"{state}: {sentence}" if state else sentence, remedy)


class Log:
    """Remembers since when each finding is active. Any thread may use it."""

    def __init__(self) -> None:
        self._since: Mapping[tuple[str, str | None], float] = {}
        self._lock = threading.Lock()

    def observe(self, now: float, active: Iterable[Finding]) -> list[Finding]:
        """Return the findings that are `active` at `now` (s since 1970), each with its `since`.

        A finding that is not among them has ended.
        """
        with self._lock:
            known, found = self._since, list(active)
            self._since = {
                at: known.get(at, now) for at in ((each.kind.id, each.place) for each in found)
            }
            return [replace(each, since=self._since[each.kind.id, each.place]) for each in found]


_F, _W, _N = Severity.FAILURE, Severity.WARNING, Severity.NOTE

# --- the worker ---

LOOP_STANDS = Kind("loop-stands", _F, "The event loop has stood still for more than 10 s.")
BROKER_AWAY = Kind("broker-away", _F, "No broker answers, or one that is needed does not.")
REGISTRY_AWAY = Kind("registry-away", _F, "The Schema Registry does not answer.")
STARTING = Kind(
    "starting",
    _F,
    "The worker connects, joins its group, or waits for partitions. It ends by itself.",
)
DRAINING = Kind("draining", _F, "The worker was asked to end, and finishes what it has begun.")
GROUP_REFUSES = Kind(
    "group-of-another-configuration",
    _F,
    "The group has members with another configuration, and refuses this worker.",
)

# --- a partition ---

PARTITION_STARTS = Kind(
    "partition-starts",
    _F,
    "A partition is fenced, or its output is folded. It ends by itself, in the time that the output takes to read.",
)
SNAPSHOT_WAITS = Kind("snapshot-waits", _F, "A partition waits for the disk of the snapshots.")
LARGE_BATCH_WAITS = Kind(
    "large-batch-waits", _F, "A partition waits until fewer large record batches are in memory."
)
LOOKUP_WAITS = Kind(
    "lookup-waits", _F, "A partition waits for the disk of a list, or of an exact store."
)
FILTER_FULL = Kind("filter-full", _F, "The filter of a partition is full, and may not grow.")
WITHOUT_MEMORY = Kind(
    "filter-without-memory", _F, "A partition could not have the memory that it needs."
)
PARTITION_STOPPED = Kind(
    "partition-stopped", _F, "A partition has stopped, for a reason that has no finding of its own."
)
SECOND_WRITER = Kind(
    "second-writer", _F, "Another producer wrote between our events of the output."
)
FOREIGN_TRANSACTION = Kind(
    "foreign-transaction", _F, "A transaction that is not ours is open in the output."
)
FOREIGN_OFFSETS = Kind(
    "foreign-offsets", _F, "A transaction that is not ours would change the group's offsets."
)
OUTPUT_LOST_END = Kind("output-lost-end", _F, "The output is shorter than it was.")
OUTPUT_MADE_AGAIN = Kind(
    "output-made-again", _F, "The output is not the topic that the group's offsets belong to."
)
OUTPUT_TRIMMED = Kind(
    "output-trimmed", _F, "The output was deleted beyond the snapshots, so its keys are not known."
)
OUTPUT_TRIMMED_OTHER_SETTINGS = Kind(
    "output-trimmed-other-settings",
    _F,
    "The output was deleted, and only a snapshot of other settings has its keys.",
)
INPUT_TRIMMED = Kind("input-trimmed", _F, "Events of the input were deleted before they were read.")
EVENT_REFUSED = Kind(
    "event-refused", _F, "The output would refuse an event, and no letter may report it."
)
HEADERS_EXCEEDED = Kind(
    "headers-exceeded", _F, "An event has too many headers, and no letter may report it."
)
LETTER_REFUSED = Kind("letter-refused", _F, "The broker refuses a letter.")
BATCH_UNREADABLE = Kind("batch-unreadable", _F, "A record batch of the input cannot be read.")
OLD_FORMAT = Kind("old-format", _F, "The input has records of a format from before Kafka 0.11.")
CHOSEN_KEYS = Kind("keys-chosen", _F, "Somebody seems to choose keys that slow the filter down.")
INPUT_GROWN = Kind(
    "input-grown", _F, "The input has more partitions than before, so keys have moved."
)
INPUT_REMADE = Kind(
    "input-remade", _F, "The input was made again with another number of partitions."
)
SCHEMA_UNKNOWN = Kind(
    "schema-unknown", _F, "An event has a schema that the registry does not know."
)
SCHEMA_CHANGED = Kind("schema-changed", _F, "A schema id names another schema than before.")
OUTPUT_WITHOUT_KEY = Kind(
    "output-without-key", _F, "An event of the output has no key by this configuration."
)
REGISTRY_REFUSES = Kind("registry-refuses", _F, "The Schema Registry refuses the worker.")
BROKER_REFUSES = Kind("broker-refuses", _F, "The broker refuses the worker: a right or a limit.")
MEANING_DIFFERS = Kind(
    "meaning-differs", _F, "The offsets were committed with another key, output or middle topic."
)
MIDDLE_TRIMMED = Kind("middle-trimmed", _F, "The middle topic lost events before they were read.")
MIDDLE_STRANGER = Kind("middle-stranger", _F, "A stranger wrote to the middle topic.")
KEY_MISPLACED = Kind(
    "key-misplaced", _F, "An event is in another partition than the one of its key."
)

# --- the first stage of source.repartition ---

STAGE_STARTS = Kind("repartition-starts", _F, "The first stage starts. It ends by itself.")
STAGE_STOPPED = Kind("repartition-stopped", _F, "The first stage has stopped.")
STAGE_PARTITION_STOPPED = Kind(
    "repartition-partition-stopped", _F, "The first stage has stopped to read a partition."
)

# --- what is decided, and not as it should be ---

MIDDLE_NOT_PURGED = Kind(
    "middle-not-purged", _W, "What was read cannot be deleted from the middle topic, which grows."
)
STAGE_MISSING = Kind("repartition-missing", _W, "The first stage's group has no members.")
INPUT_LEFT_OUT = Kind(
    "input-refused", _W, "A topic matches `source.pattern`, and cannot be an input."
)
STAGE_PAUSED = Kind("repartition-paused", _W, "The first stage waits for the second one.")
PARTITIONS_UNSERVED = Kind("partitions-unserved", _W, "No member of the group has some partitions.")
CLOCK_DIFFERS = Kind("clock-differs", _W, "This machine's clock and a broker's differ.")
OTHER_PROTOCOL = Kind(
    "group-of-another-protocol",
    _W,
    "Members of the new group protocol took partitions of the group.",
)
NO_LEADER = Kind("partition-without-leader", _W, "A partition has no leader.")
INPUT_TRANSACTION = Kind(
    "input-transaction-open", _W, "A transaction on the input stays open; nothing above is read."
)
OUTPUT_SHARED = Kind("output-shared", _W, "Another deployment writes to the output.")
OUTPUT_FORGETS = Kind(
    "output-forgets-first", _W, "The output deletes events before the filter forgets their keys."
)
LIST_REFUSED = Kind(
    "list-refused", _W, "A list's file is refused, and the list before it is in force."
)
ACROSS_PARTITIONS = Kind(
    "duplicates-across-partitions", _W, "Events of one key come in several partitions."
)
BEYOND_CAPACITY = Kind(
    "filter-beyond-capacity",
    _W,
    "A filter has more keys than its error rate allows, as `filter.on_full: warn` permits.",
)
VERDICT_PREVAILS = Kind(
    "verdict-prevails", _W, "Many events are malformed, rejected or late, which should be rare."
)

# --- for information ---

STAGE_HELD = Kind("repartition-held", _N, "Partitions of the input wait for slower ones.")
CLOCK_UNVERIFIED = Kind("clock-unverified", _N, "The time of a broker is not known yet.")

KINDS: Mapping[str, Kind] = {
    kind.id: kind for kind in tuple(globals().values()) if isinstance(kind, Kind)
}
"""All kinds of findings by their ids, in the order of their definitions above."""
