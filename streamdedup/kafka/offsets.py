"""The committed input offset, and the note that is committed with it.

`consumer.committed()` says "nothing" while a coordinator loads, and can be stale behind a commit; a stable OffsetFetch,
asked after the old owner was fenced, is neither. The note tells to which logs the offset belongs.
"""

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.commit import OffsetFetchRequest

from streamdedup.kafka.protocol import StableOffsetFetch

RETRY_S = 0.02
UNSTABLE_OFFSET_COMMIT = 88  # aiokafka does not know it
NOT_YET = {14, 15, 16, UNSTABLE_OFFSET_COMMIT}  # the coordinator loads, is away, has moved


@dataclass(frozen=True, slots=True)
class Note:
    """What a commit's metadata says: the logs that its offset belongs to, and how far the output was.

    Ids are None where the broker tells none; `watermark`, in ms since 1970 or in keys, where the filter has no time.
    `partitions` counts those of the input at this commit, `born` when the group began; None in older notes.
    """

    cluster_id: str | None
    input_id: str | None
    output_id: str | None
    label: int
    watermark: int | None = None
    partitions: int | None = None
    born: int | None = None

    def encode(self) -> str:
        """The text to commit."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        ids = {name: getattr(self, name) for name in ("cluster_id", "input_id", "output_id")}
        return orjson.dumps({"streamdedup": 1, **ids, **told}).decode()

    @classmethod
    def decode(cls, text: str | None) -> "Note | None":
        """The note in a commit's metadata; None where an operator's tool, or a format to come, made it."""
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
                "label": int() as label,
            }:
                later = (found.get(name) for name in ("watermark", "partitions", "born"))
                known = (value if type(value) is int else None for value in later)
                return cls(cluster_id, input_id, output_id, label, *known)
        return None


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset of the input, with its note where it has one."""

    offset: int
    note: Note | None


async def committed(
    client: Any,
    group: str,
    topic: str,
    partition: int,
    *,
    stable: bool,
) -> Committed | None:
    """The committed offset; None where there is none. Waits until it is decided: bound it with a time-out.

    Raises NotImplementedError where `stable` is asked of a broker before 2.5.
    """
    request = (
        StableOffsetFetch(group, topic, partition)
        if stable
        else OffsetFetchRequest(group, [(topic, [partition])])
    )
    while True:
        try:
            response = await _ask(client, group, request)
            row = response.topics[0][1][0] if response.topics else None
            code = getattr(response, "error_code", 0) or (row[_error_column(row)] if row else 0)
            if code == 0:
                return _committed(row)
            if code not in NOT_YET:
                raise for_code(code)
        except KafkaError as error:
            if not (error.retriable or error.invalid_metadata):
                raise
            await client.force_metadata_update()
        await asyncio.sleep(RETRY_S)


async def notes(client: Any, group: str, topic: str, partitions: int) -> dict[int, Note]:
    """The notes of the group's committed offsets, by partition, decided or not. Bound it with a time-out."""
    request = OffsetFetchRequest(group, [(topic, list(range(partitions)))])
    while True:
        try:
            response = await _ask(client, group, request)
            rows = response.topics[0][1] if response.topics else []
            codes = {getattr(response, "error_code", 0), *(row[_error_column(row)] for row in rows)}
            if not codes & NOT_YET:
                found = {row[0]: _committed(row) for row in rows if row[_error_column(row)] == 0}
                return {p: c.note for p, c in found.items() if c is not None and c.note is not None}
        except KafkaError as error:
            if not (error.retriable or error.invalid_metadata):
                raise
            await client.force_metadata_update()
        await asyncio.sleep(RETRY_S)


async def tells_stable_offsets(client: Any, group: str, topic: str) -> bool:
    """Whether the broker knows stable OffsetFetch (Kafka 2.5); raises nothing but what refuses us."""
    try:
        await _ask(client, group, StableOffsetFetch(group, topic, 0))
    except NotImplementedError:
        return False
    except KafkaError as error:
        if not (error.retriable or error.invalid_metadata):
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
