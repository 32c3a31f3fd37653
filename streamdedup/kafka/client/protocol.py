"""Six requests that aiokafka lacks, built from its protocol classes, and the existing requests that we send.

OffsetFetch v7 with `require_stable` (KIP-447) never returns an offset whose transaction is undecided. TxnOffsetCommit
v3 (KIP-447) names the member and its generation, by which the group fences it; aiokafka sends v0, without. Metadata v10
(KIP-516) returns topic ids, the only sign that a topic was deleted and created again. ConsumerGroupDescribe (KIP-848)
returns groups with members of the new group protocol, which DescribeGroups takes for dead; ShareGroupDescribe (KIP-932)
returns share groups. DescribeGroups v3 (KIP-430) returns our rights on a group. Written after https://kafka.apache.org/protocol.
"""

from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any
from uuid import UUID

from aiokafka.errors import BrokerResponseError, kafka_errors
from aiokafka.protocol.admin import DescribeGroupsRequest_v3, DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)
from typing_extensions import override

from streamdedup.kafka.partitions import InputPartition

EARLIEST, LATEST = -2, -1
NO_LEADER_EPOCH = -1
_NO_TAGS: dict[int, bytes] = {}
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class InvalidRecordError(BrokerResponseError):
    """The broker refused a record (KIP-467). aiokafka has no class for this error."""

    errno = 87
    message = "INVALID_RECORD"
    description = "A record failed the broker's validation."


kafka_errors.setdefault(InvalidRecordError.errno, InvalidRecordError)


class Uuid:
    """The wire type of a topic id: 16 bytes, all zero if the broker knows none."""

    @classmethod
    def encode(cls, value: UUID) -> bytes:
        """Return the 16 bytes, most significant first."""
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> UUID:
        """Return the id in the next 16 bytes."""
        return UUID(bytes=data.read(16))

    @classmethod
    def repr(cls, value: UUID) -> str:
        """Return the text for aiokafka's debug log."""
        return str(value)


def _by_partition(*columns: tuple[str, Any]) -> tuple[str, CompactArray]:
    """Return the field `topics`: for each topic its partitions, and for each of these the `columns`."""
    rows = CompactArray(("partition", Int32), *columns, ("tags", TaggedFields))
    topic = ("topic", CompactString("utf-8"))
    return "topics", CompactArray(topic, ("partitions", rows), ("tags", TaggedFields))


class _OffsetFetchResponseV7(Response):
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _by_partition(
            ("offset", Int64),
            ("leader_epoch", Int32),
            ("metadata", CompactString("utf-8")),
            ("error_code", Int16),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _OffsetFetchRequestV7(RequestStruct):
    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _OffsetFetchResponseV7
    SCHEMA = Schema(
        ("group_id", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")),
                ("partitions", CompactArray(Int32)),
                ("tags", TaggedFields),
            ),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class StableOffsetFetch(Request[_OffsetFetchRequestV7]):
    """Asks for the committed offsets of some partitions, of each once no transaction on it is undecided."""

    API_KEY = 9

    def __init__(self, group: str, topic: str, partitions: Iterable[int]) -> None:
        self._group, self._topic, self._partitions = group, topic, list(partitions)

    @override
    def build(self, request: type[_OffsetFetchRequestV7]) -> _OffsetFetchRequestV7:
        return request(self._group, [(self._topic, self._partitions, {})], True, {})


class _TxnOffsetCommitResponseV3(Response):
    API_KEY = 28
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _by_partition(("error_code", Int16)),
        ("tags", TaggedFields),
    )


class _TxnOffsetCommitRequestV3(RequestStruct):
    API_KEY = 28
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TxnOffsetCommitResponseV3
    SCHEMA = Schema(
        ("transactional_id", CompactString("utf-8")),
        ("group_id", CompactString("utf-8")),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation_id", Int32),
        ("member_id", CompactString("utf-8")),
        ("group_instance_id", CompactString("utf-8")),
        _by_partition(
            ("offset", Int64), ("leader_epoch", Int32), ("metadata", CompactString("utf-8"))
        ),
        ("tags", TaggedFields),
    )


class FencedOffsetCommit(Request[_TxnOffsetCommitRequestV3]):
    """Adds offsets to a transaction, if the group knows this member in this generation.

    `producer` is its transactional id, producer id and epoch; `member` its generation, member id and instance id;
    `offsets` topic and partition -> (offset, metadata).
    """

    API_KEY = 28

    def __init__(
        self,
        producer: tuple[str, int, int],
        group: str,
        member: tuple[int, str, str | None],
        offsets: Mapping[InputPartition, tuple[int, str]],
    ) -> None:
        self._producer, self._group, self._member = producer, group, member
        self._offsets = offsets

    @override
    def build(self, request: type[_TxnOffsetCommitRequestV3]) -> _TxnOffsetCommitRequestV3:
        transactional_id, producer_id, epoch = self._producer
        rows = dict[str, list[tuple[int, int, int, str, Any]]]()
        for (topic, partition), (offset, metadata) in sorted(self._offsets.items()):
            row = (partition, offset, NO_LEADER_EPOCH, metadata, _NO_TAGS)
            rows.setdefault(topic, []).append(row)
        return request(
            transactional_id,
            self._group,
            producer_id,
            epoch,
            *self._member,
            [(topic, its, _NO_TAGS) for topic, its in rows.items()],
            _NO_TAGS,
        )


class _MetadataResponseV10(Response):
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _MetadataRequestV10(RequestStruct):
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponseV10
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", Uuid), ("topic", CompactString("utf-8")), ("tags", TaggedFields)
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicsWithIds(Request[_MetadataRequestV10]):
    """Asks for the ids, the partitions and our rights of the named topics; for our rights on the cluster, if wanted.

    It never creates a topic.
    """

    API_KEY = 3

    def __init__(self, topics: list[str], *, cluster_rights: bool = False) -> None:
        self._topics, self._cluster_rights = topics, cluster_rights

    @override
    def build(self, request: type[_MetadataRequestV10]) -> _MetadataRequestV10:
        named = [(UUID(int=0), topic, _NO_TAGS) for topic in self._topics]
        return request(named, False, self._cluster_rights, True, {})


class _DescribeGroupsRequestV3(DescribeGroupsRequest_v3):
    RESPONSE_TYPE = DescribeGroupsResponse_v3  # aiokafka decodes that of v2, which has no rights


class GroupRights(Request[_DescribeGroupsRequestV3]):
    """Asks for our rights on a group, whether it exists or not."""

    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    @override
    def build(self, request: type[_DescribeGroupsRequestV3]) -> _DescribeGroupsRequestV3:
        return request([self._group], True)


_ASSIGNMENT = Schema(
    (
        "partitions",
        CompactArray(
            ("topic_id", Uuid),
            ("topic", CompactString("utf-8")),
            ("partitions", CompactArray(Int32)),
            ("tags", TaggedFields),
        ),
    ),
    ("tags", TaggedFields),
)


def _described_groups(*of_a_member: tuple[str, type]) -> Schema:
    """Return the schema of the response about groups of KIP-848, with these more fields of a member."""
    return _groups_with(
        ("member_id", CompactString("utf-8")),
        ("instance_id", CompactString("utf-8")),
        ("rack_id", CompactString("utf-8")),
        ("member_epoch", Int32),
        ("client_id", CompactString("utf-8")),
        ("client_host", CompactString("utf-8")),
        ("topics", CompactArray(CompactString("utf-8"))),
        ("topic_regex", CompactString("utf-8")),
        ("assignment", _ASSIGNMENT),
        ("target_assignment", _ASSIGNMENT),
        *of_a_member,
    )


def _groups_with(*of_a_member: tuple[str, Any]) -> Schema:
    """Return the schema of a response about groups whose members have these fields."""
    member = (*of_a_member, ("tags", TaggedFields))
    return Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("group_id", CompactString("utf-8")),
                ("group_state", CompactString("utf-8")),
                ("group_epoch", Int32),
                ("assignment_epoch", Int32),
                ("assignor_name", CompactString("utf-8")),
                ("members", CompactArray(*member)),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ConsumerGroupDescribeResponseV0(Response):
    API_KEY = 69
    API_VERSION = 0
    SCHEMA = _described_groups()


class _ConsumerGroupDescribeResponseV1(Response):
    API_KEY = 69
    API_VERSION = 1
    SCHEMA = _described_groups(("member_type", Int8))


class _ConsumerGroupDescribeRequestV0(RequestStruct):
    API_KEY = 69
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ConsumerGroupDescribeResponseV0
    SCHEMA = Schema(
        ("groups", CompactArray(CompactString("utf-8"))),
        ("include_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _ConsumerGroupDescribeRequestV1(RequestStruct):
    API_KEY = 69
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ConsumerGroupDescribeResponseV1
    SCHEMA = _ConsumerGroupDescribeRequestV0.SCHEMA


class ConsumerGroupDescribe(
    Request[_ConsumerGroupDescribeRequestV0 | _ConsumerGroupDescribeRequestV1]
):
    """Asks for the members of a group that has members of the new group protocol (KIP-848)."""

    API_KEY = 69

    def __init__(self, group: str) -> None:
        self._group = group

    @override
    def build(
        self,
        request: type[_ConsumerGroupDescribeRequestV0] | type[_ConsumerGroupDescribeRequestV1],
    ) -> _ConsumerGroupDescribeRequestV0 | _ConsumerGroupDescribeRequestV1:
        return request([self._group], False, {})


class _ShareGroupDescribeResponseV1(Response):
    API_KEY = 77
    API_VERSION = 1
    SCHEMA = _groups_with(
        ("member_id", CompactString("utf-8")),
        ("rack_id", CompactString("utf-8")),
        ("member_epoch", Int32),
        ("client_id", CompactString("utf-8")),
        ("client_host", CompactString("utf-8")),
        ("topics", CompactArray(CompactString("utf-8"))),
        ("assignment", _ASSIGNMENT),
    )


class _ShareGroupDescribeRequestV1(RequestStruct):
    API_KEY = 77
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ShareGroupDescribeResponseV1
    SCHEMA = _ConsumerGroupDescribeRequestV0.SCHEMA


class ShareGroupDescribe(Request[_ShareGroupDescribeRequestV1]):
    """Asks for the members of a share group (KIP-932); the answer is an error if the group is of another type."""

    API_KEY = 77

    def __init__(self, group: str) -> None:
        self._group = group

    @override
    def build(self, request: type[_ShareGroupDescribeRequestV1]) -> _ShareGroupDescribeRequestV1:
        return request([self._group], False, {})


def list_offsets(topic: str, partitions: Iterable[int], which: int, isolation: int) -> Any:
    """Return the request for the EARLIEST or LATEST offsets; LATEST with READ_COMMITTED is the last stable offset."""
    return OffsetRequest(-1, isolation, [(topic, [(p, which) for p in partitions])])


def fetch_one(topic: str, partition: int, offset: int, bytes_max: int) -> Any:
    """Return the request for the record batches from `offset` on.

    The first batch is returned whole, however large it is (KIP-74).
    """
    where = [(topic, [(partition, offset, bytes_max)])]
    return FetchRequest(0, 0, bytes_max, READ_UNCOMMITTED, where)


def all_topics() -> Any:
    """Return the request for the metadata of every topic, for brokers without topic ids: it never creates a topic."""
    return MetadataRequest(None)
