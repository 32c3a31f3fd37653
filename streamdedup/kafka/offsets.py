"""The committed input offset, and the note that is committed with it.

`consumer.committed()` returns nothing while a coordinator loads, and can return an old offset shortly after a commit.
A stable OffsetFetch, sent after the previous owner was fenced, does neither. The note names the logs that the offset
belongs to.
"""

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard, TypeVar

import orjson
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError
from aiokafka.protocol.commit import OffsetFetchRequest

from streamdedup.errors import StreamdedupError
from streamdedup.kafka.client.connection import NOT_YET, NotYetError, asked_again, raise_for
from streamdedup.kafka.client.protocol import StableOffsetFetch

T = TypeVar("T")

RETRY_S = 0.02
UNSTABLE_OFFSET_COMMIT = 88  # a code that aiokafka lacks
NO_SUCH_GROUP = 69
_OPTIONAL = ("watermark", "partitions", "born", "floor", "since", "meaning", "placed", "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The metadata of a commit: the logs that the offset belongs to, and how far the output was.

    - Ids are None if the broker reports none.
    - `label` is the output offset up to which the filter had folded the output.
    - `watermark` is in ms since 1970, or in keys if the filter counts keys; None if the filter does not forget.
    - `partitions` is the number of partitions of the input at this commit, `born` that number when the group began.
      Both are None in older notes.
    - `atomic`: the offset was committed in one transaction with what was emitted. So no event of ours stands at or
      above the label.
    - After a `reset --forget`, nothing in the output below the offset `floor` counts as emitted, and the input is read
      again from the offset `since` on.
    - `meaning` is the check of the meaning by which keys were taken until this commit; None in older notes.
    - `placed` is the number of partitions over which `source.repartition` had placed the events by their judged keys;
      None if they lay as their producers had placed them.
    - `head` is how far the first stage of `source.repartition` stood in event time in this partition, in ms since 1970
      (-1 if its events have no times); None if it keeps no partitions together.
    """

    cluster_id: str | None
    input_id: str | None
    output_id: str | None
    label: int
    watermark: int | None = None
    partitions: int | None = None
    born: int | None = None
    atomic: bool = False
    floor: int | None = None
    since: int | None = None
    meaning: int | None = None
    placed: int | None = None
    head: int | None = None

    def encode(self) -> str:
        """Return the text to commit."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        if not self.atomic:
            del fields["atomic"]
        ids = {name: getattr(self, name) for name in ("cluster_id", "input_id", "output_id")}
        return orjson.dumps({"streamdedup": 1, **ids, **fields}).decode()

    @classmethod
    def decode(cls, text: str | None) -> "Note | None":
        """Return the note in a commit's metadata; None if another tool or a later version wrote it.

        A number that is no int64 is left out. If the label is no offset, the note is not ours: None.
        """
        try:
            found = orjson.loads(text or "")
        except orjson.JSONDecodeError:
            return None
        match found:
            case {
                "streamdedup": 1,
                "cluster_id": str() | None as cluster_id,
                "input_id": str() | None as input_id,
                "output_id": str() | None as output_id,
                "label": label,
            } if _is_number(label, 0):
                fields = {name: found.get(name) for name in _OPTIONAL}
                known = {name: value for name, value in fields.items() if _is_number(value)}
                atomic = found.get("atomic") is True
                return cls(
                    cluster_id=cluster_id,
                    input_id=input_id,
                    output_id=output_id,
                    label=label,
                    **known,
                    atomic=atomic,
                )
        return None


def _is_number(value: object, least: int = -(1 << 63)) -> TypeGuard[int]:
    """Return whether `value` is an int64 from `least` on, as Kafka's offsets and times are; True is none."""
    return type(value) is int and least <= value < 1 << 63


class UndecidedError(StreamdedupError):
    """A transaction that would change the committed offset has not ended."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset of the input, and its note, or None if it has none."""

    offset: int
    note: Note | None


async def committed_all(
    client: Any, group: str, topic: str, partitions: Collection[int], *, stable: bool
) -> dict[int, Committed]:
    """Return the committed offsets of those `partitions` that have one, in one request. The caller sets a time-out.

    Raise UndecidedError if `stable` is asked while a transaction on one of them has not ended, and NotImplementedError
    if it is asked of a broker before 2.5.
    """
    request = (
        StableOffsetFetch(group, topic, sorted(partitions))
        if stable
        else OffsetFetchRequest(group, [(topic, sorted(partitions))])
    )
    return await asked(client, group, request, lambda response: _offsets_in(response, topic))


def _offsets_in(response: Any, topic: str) -> dict[int, Committed]:
    rows = response.topics[0][1] if response.topics else []
    group_code = getattr(response, "error_code", 0)
    for partition, code in [
        ("*", group_code),
        *((row[0], row[_error_column(row)]) for row in rows),
    ]:
        if code == UNSTABLE_OFFSET_COMMIT:
            raise UndecidedError(
                f"the offset of {topic}/{partition} is in a transaction that has not ended"
            )
        raise_for(code)
    found = {row[0]: _committed(row) for row in rows}
    return {partition: committed for partition, committed in found.items() if committed}


async def topics_of(client: Any, group: str) -> frozenset[str]:
    """Return the topics on which the group has committed offsets, as of its last decided transactions.

    The caller sets a time-out. A group that does not exist has none.
    """
    return await _topics_with(client, group, lambda _: True)


async def middles_of(client: Any, group: str) -> frozenset[str]:
    """Return the topics that the group reads as the middle of `source.repartition`, by the notes of its offsets.

    The caller sets a time-out. A group that does not exist has none.
    """
    return await _topics_with(client, group, reads_middle)


async def inputs_of(client: Any, group: str, output_id: str) -> frozenset[str]:
    """Return the topics that the group reads for the output of that id, by the notes of its offsets.

    The caller sets a time-out. A group that does not exist has none.
    """
    return await _topics_with(client, group, lambda committed: writes_to(committed, output_id))


def writes_to(committed: Committed, output_id: str) -> bool:
    """Return whether a worker whose output has that id has committed this."""
    return committed.note is not None and committed.note.output_id == output_id


def reads_middle(committed: Committed) -> bool:
    """Return whether a second stage of `source.repartition` has committed this, so that its topic is a middle."""
    return committed.note is not None and committed.note.placed is not None


async def _topics_with(
    client: Any, group: str, fits: Callable[[Committed], bool]
) -> frozenset[str]:
    """Return the topics on which an offset of the group fits; of all topics in one request."""

    def topics_in(response: Any) -> frozenset[str]:
        if (code := getattr(response, "error_code", 0)) == NO_SUCH_GROUP:
            return frozenset()
        raise_for(code)
        topics = response.topics or ()  # librdkafka's mock broker answers with null
        return frozenset(
            topic
            for topic, rows in topics
            if any(fits(committed) for row in rows if (committed := _committed(row)))
        )

    return await asked(client, group, OffsetFetchRequest(group, None), topics_in)


async def notes(client: Any, group: str, topic: str, partitions: int) -> dict[int, Note]:
    """Return the notes of the group's committed offsets, by partition, decided or not. The caller sets a time-out."""
    request = OffsetFetchRequest(group, [(topic, list(range(partitions)))])

    def notes_in(response: Any) -> dict[int, Note]:
        rows = response.topics[0][1] if response.topics else []
        codes = {getattr(response, "error_code", 0), *(row[_error_column(row)] for row in rows)}
        if not codes.isdisjoint(NOT_YET):
            raise NotYetError
        found = {row[0]: _committed(row) for row in rows if row[_error_column(row)] == 0}
        return {p: c.note for p, c in found.items() if c is not None and c.note is not None}

    return await asked(client, group, request, notes_in)


async def asked(client: Any, group: str, request: Any, answer_in: Callable[[Any], T]) -> T:
    """Return what `answer_in` finds in the coordinator's answer; ask again while it loads, moves or is away."""

    async def ask() -> T:
        return answer_in(await _ask(client, group, request))

    return await asked_again(client, ask, RETRY_S)


async def supports_stable_offsets(client: Any, group: str, topic: str) -> bool:
    """Return whether the broker supports stable OffsetFetch (Kafka 2.5).

    An error that may pass counts as yes. Any other error is raised: the broker refuses us.
    """
    try:
        await _ask(client, group, StableOffsetFetch(group, topic, [0]))
    except NotImplementedError:
        return False
    except KafkaError as error:
        if not error.retriable:
            raise
    return True


async def _ask(client: Any, group: str, request: Any) -> Any:
    node = await client.coordinator_lookup(CoordinationType.GROUP, group)
    return await client.send(node, request, group=ConnectionGroup.COORDINATION)


def _error_column(row: tuple[Any, ...]) -> int:
    return -2 if isinstance(row[-1], dict) else -1  # v7 ends in tagged fields


def _committed(row: tuple[Any, ...] | None) -> Committed | None:
    if row is None or row[1] < 0:
        return None
    metadata = row[_error_column(row) - 1]
    return Committed(int(row[1]), Note.decode(metadata))
