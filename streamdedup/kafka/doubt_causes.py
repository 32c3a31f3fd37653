"""The cause, one of `metrics.DOUBTS`, of an error. It is only counted: every doubt is resolved in the same way."""

from aiokafka.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    ProducerFenced,
    RequestTimedOutError,
    TransactionCoordinatorFenced,
    UnknownProducerId,
)

from streamdedup.kafka.sink import (
    DoubtError,
    ForeignWriteError,
    RefusedError,
    ReplacedConnectionError,
)
from streamdedup.kafka.source import UnreadableError

_CAUSES: tuple[tuple[str, tuple[type[Exception], ...]], ...] = (
    (
        "fenced",
        (
            ProducerFenced,
            InvalidProducerEpoch,
            InvalidProducerIdMapping,
            TransactionCoordinatorFenced,
            UnknownProducerId,
        ),
    ),
    ("foreign_write", (ForeignWriteError,)),
    ("refused", (RefusedError,)),
    ("unreadable", (UnreadableError,)),
    ("timeout", (TimeoutError, KafkaTimeoutError, RequestTimedOutError)),
    (
        "connection",
        (ReplacedConnectionError, KafkaConnectionError, NodeNotReadyError, ConnectionError),
    ),
    ("mismatch", (DoubtError,)),
    ("broker", (KafkaError,)),
)

IF_REPEATED = "none if it is rare: the broker is asked what was committed; if repeated, resolve what the error names"


def doubt_cause(error: Exception) -> str:
    """Return the cause of the doubt that `error` raises."""
    return next((cause for cause, types in _CAUSES if isinstance(error, types)), "other")
