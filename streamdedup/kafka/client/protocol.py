"""Requests that aiokafka lacks, built from its protocol classes, and the existing requests that we send.

OffsetFetch v7 with `require_stable` (KIP-447) never returns an offset whose transaction is undecided. TxnOffsetCommit
v3 (KIP-447) names the member and its generation, by which the group fences it; aiokafka sends v0, without. Metadata v10
(KIP-516) returns topic ids, the only sign that a topic was deleted and created again. ConsumerGroupDescribe (KIP-848)
returns groups with members of the new group protocol, which DescribeGroups takes for dead; ShareGroupDescribe (KIP-932)
returns share groups. DescribeGroups v3 (KIP-430) returns our rights on a group. DescribeProducers (KIP-664) returns who
has written to a partition. ApiVersions v3 (KIP-584) returns the features that the cluster has in force. Written after
https://kafka.apache.org/protocol.
"""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any
from uuid import UUID

from aiokafka.errors import BrokerResponseError, kafka_errors
from aiokafka.protocol.admin import DescribeGroupsRequest_v3, DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0
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
from streamdedup.version import __version__

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


_Field = tuple[str, Any]
_TEXT = CompactString("utf-8")
_TAGS: _Field = ("tags", TaggedFields)


def _rows(*fields: _Field) -> CompactArray:
    return CompactArray(*fields, _TAGS)


def _by_partition(*columns: _Field) -> _Field:
    """Return the field `topics`: for each topic its partitions, and for each of these the `columns`."""
    return "topics", _rows(("topic", _TEXT), ("partitions", _rows(("partition", Int32), *columns)))


def _version(
    api_key: int, version: int, asked: Sequence[_Field], answered: Sequence[_Field]
) -> type[RequestStruct]:
    """Return a version of a request, of the fields that are `asked`, whose response has those that are `answered`."""
    of_this = {"API_KEY": api_key, "API_VERSION": version}
    response = type("_Answer", (Response,), {**of_this, "SCHEMA": Schema(*answered, _TAGS)})
    asking = {"FLEXIBLE_VERSION": True, "RESPONSE_TYPE": response, "SCHEMA": Schema(*asked, _TAGS)}
    return type("_Asked", (RequestStruct,), of_this | asking)


_THROTTLE: _Field = ("throttle_time_ms", Int32)
_OFFSET_FETCH = _version(
    9,
    7,
    [
        ("group_id", _TEXT),
        ("topics", _rows(("topic", _TEXT), ("partitions", CompactArray(Int32)))),
        ("require_stable", Boolean),
    ],
    [
        _THROTTLE,
        _by_partition(
            ("offset", Int64), ("leader_epoch", Int32), ("metadata", _TEXT), ("error_code", Int16)
        ),
        ("error_code", Int16),
    ],
)
_TXN_OFFSET_COMMIT = _version(
    28,
    3,
    [
        ("transactional_id", _TEXT),
        ("group_id", _TEXT),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation_id", Int32),
        ("member_id", _TEXT),
        ("group_instance_id", _TEXT),
        _by_partition(("offset", Int64), ("leader_epoch", Int32), ("metadata", _TEXT)),
    ],
    [_THROTTLE, _by_partition(("error_code", Int16))],
)
_METADATA = _version(
    3,
    10,
    [
        ("topics", _rows(("topic_id", Uuid), ("topic", _TEXT))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    ],
    [
        _THROTTLE,
        ("brokers", _rows(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT))),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            _rows(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    _rows(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("cluster_authorized_operations", Int32),
    ],
)
_DESCRIBE_PRODUCERS = _version(
    61,
    0,
    [("topics", _rows(("topic", _TEXT), ("partitions", CompactArray(Int32))))],
    [
        _THROTTLE,
        _by_partition(
            ("error_code", Int16),
            ("error_message", _TEXT),
            (
                "producers",
                _rows(
                    ("producer_id", Int64),
                    ("epoch", Int32),
                    ("last_sequence", Int32),
                    ("last_ms", Int64),
                    ("coordinator_epoch", Int32),
                    ("open_from", Int64),
                ),
            ),
        ),
    ],
)
_DESCRIBED = [
    ("groups", CompactArray(_TEXT)),
    ("include_authorized_operations", Boolean),
]
_ASSIGNMENT = Schema(
    (
        "partitions",
        _rows(("topic_id", Uuid), ("topic", _TEXT), ("partitions", CompactArray(Int32))),
    ),
    _TAGS,
)
_MEMBER_OF_SHARE_GROUP: Sequence[_Field] = [
    ("member_id", _TEXT),
    ("rack_id", _TEXT),
    ("member_epoch", Int32),
    ("client_id", _TEXT),
    ("client_host", _TEXT),
    ("topics", CompactArray(_TEXT)),
    ("assignment", _ASSIGNMENT),
]
_MEMBER: Sequence[_Field] = [
    ("member_id", _TEXT),
    ("instance_id", _TEXT),
    ("rack_id", _TEXT),
    ("member_epoch", Int32),
    ("client_id", _TEXT),
    ("client_host", _TEXT),
    ("topics", CompactArray(_TEXT)),
    ("topic_regex", _TEXT),
    ("assignment", _ASSIGNMENT),
    ("target_assignment", _ASSIGNMENT),
]


def _groups_of(*of_a_member: _Field) -> Sequence[_Field]:
    """Return the fields of a response about groups whose members have these fields."""
    return [
        _THROTTLE,
        (
            "groups",
            _rows(
                ("error_code", Int16),
                ("error_message", _TEXT),
                ("group_id", _TEXT),
                ("group_state", _TEXT),
                ("group_epoch", Int32),
                ("assignment_epoch", Int32),
                ("assignor_name", _TEXT),
                ("members", _rows(*of_a_member)),
                ("authorized_operations", Int32),
            ),
        ),
    ]


_CONSUMER_GROUP_DESCRIBE = (
    _version(69, 0, _DESCRIBED, _groups_of(*_MEMBER)),
    _version(69, 1, _DESCRIBED, _groups_of(*_MEMBER, ("member_type", Int8))),
)
_API_VERSIONS = _version(
    18,
    3,
    [("client_software_name", _TEXT), ("client_software_version", _TEXT)],
    [
        ("error_code", Int16),
        ("api_versions", _rows(("api_key", Int16), ("oldest", Int16), ("newest", Int16))),
        _THROTTLE,
    ],
)
_FINALIZED = 2  # the tag of ApiVersions' answer under which the features in force are
_FEATURES = _rows(("feature", _TEXT), ("newest", Int16), ("oldest", Int16))
_SHARE_GROUP_DESCRIBE = _version(77, 1, _DESCRIBED, _groups_of(*_MEMBER_OF_SHARE_GROUP))


class _Ours(Request[RequestStruct]):
    """A request of these `versions`, ascending, and of the values of its fields."""

    API_KEY = -1

    def __init__(self, versions: Sequence[type[RequestStruct]], *values: object) -> None:
        self.API_KEY, self._CLASSES = versions[0].API_KEY, tuple(versions)
        self._values = values

    @override
    def build(self, request: type[RequestStruct]) -> RequestStruct:
        return request(*self._values, _NO_TAGS)


class StableOffsetFetch(_Ours):
    """Asks for the committed offsets of some partitions, of each once no transaction on it is undecided."""

    def __init__(self, group: str, topic: str, partitions: Iterable[int]) -> None:
        super().__init__([_OFFSET_FETCH], group, [(topic, list(partitions), _NO_TAGS)], True)


class FencedOffsetCommit(_Ours):
    """Adds offsets to a transaction, if the group knows this member in this generation.

    `producer` is its transactional id, producer id and epoch; `member` its generation, member id and instance id;
    `offsets` topic and partition -> (offset, metadata).
    """

    def __init__(
        self,
        producer: tuple[str, int, int],
        group: str,
        member: tuple[int, str, str | None],
        offsets: Mapping[InputPartition, tuple[int, str]],
    ) -> None:
        transactional_id, producer_id, epoch = producer
        rows = dict[str, list[tuple[int, int, int, str, Any]]]()
        for (topic, partition), (offset, metadata) in sorted(offsets.items()):
            row = (partition, offset, NO_LEADER_EPOCH, metadata, _NO_TAGS)
            rows.setdefault(topic, []).append(row)
        by_topic = [(topic, its, _NO_TAGS) for topic, its in rows.items()]
        super().__init__(
            [_TXN_OFFSET_COMMIT], transactional_id, group, producer_id, epoch, *member, by_topic
        )


class TopicsWithIds(_Ours):
    """Asks for the ids, the partitions and our rights of the named topics; for our rights on the cluster, if wanted.

    It never creates a topic.
    """

    def __init__(self, topics: Iterable[str], *, cluster_rights: bool = False) -> None:
        named = [(UUID(int=0), topic, _NO_TAGS) for topic in topics]
        super().__init__([_METADATA], named, False, cluster_rights, True)


class DescribeProducers(_Ours):
    """Asks the leader of a partition for the producers of which it knows: those with an id that wrote to it lately."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__([_DESCRIBE_PRODUCERS], [(topic, [partition], _NO_TAGS)])


class ConsumerGroupDescribe(_Ours):
    """Asks for the members of a group that has members of the new group protocol (KIP-848)."""

    def __init__(self, group: str) -> None:
        super().__init__(_CONSUMER_GROUP_DESCRIBE, [group], False)


class ShareGroupDescribe(_Ours):
    """Asks for the members of a share group (KIP-932); the answer is an error if the group is of another type."""

    def __init__(self, group: str) -> None:
        super().__init__([_SHARE_GROUP_DESCRIBE], [group], False)


class _PlainHead(_API_VERSIONS):  # type: ignore[misc, valid-type]  # a class that is made above
    """The answer's header has no tags in any version, so that a client of any version can read it."""

    @override
    def parse_response_header(self, read_buffer: BytesIO | bytes) -> ResponseHeader_v0:
        return ResponseHeader_v0.decode(read_buffer)


class ApiVersions(_Ours):
    """Asks a broker for the requests that it takes, and the features that the cluster has in force."""

    def __init__(self) -> None:
        super().__init__([_PlainHead], "streamdedup", __version__)


def features_in(response: Any) -> dict[str, int] | None:
    """Return the features in force with their levels, of an answer to `ApiVersions`; None if the broker has none."""
    tagged = response.tags.get(_FINALIZED)
    if tagged is None:
        return None
    return {
        name: newest for name, newest, _oldest, _tags in _FEATURES.decode(BytesIO(tagged)) or ()
    }


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
