"""Claims about errors that no patience cures: they are named, with their remedy, wherever aiokafka puts them."""

from typing import Any

import pytest
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidSessionTimeoutError,
    InvalidTransactionTimeout,
    KafkaError,
    NotEnoughReplicasError,
    OffsetMetadataTooLargeError,
    ProducerFenced,
    UnsupportedForMessageFormatError,
)

from streamdedup.kafka.client.connection import NOTE_BYTES, refusal
from streamdedup.kafka.offsets import Note

NAMED = {
    InvalidTransactionTimeout: ("kafka.producer.transaction_timeout_ms", "transaction.max.timeout"),
    InvalidSessionTimeoutError: ("kafka.consumer.session_timeout_ms", "group.min.session.timeout"),
    OffsetMetadataTooLargeError: ("offset.metadata.max.bytes",),
    UnsupportedForMessageFormatError: ("message.format.version",),
    ClusterAuthorizationFailedError: ("IdempotentWrite", "docs/security.md"),
}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", NAMED)
def test_a_limit_of_the_brokers_is_named_with_what_it_limits(
    kind: type[KafkaError], wrapped: bool
) -> None:
    """Also as the cause of the bare error that the producer raises for what it did not expect."""
    error: KafkaError = kind()
    if wrapped:
        error = KafkaError("Unexpected error during batch delivery")
        error.__cause__ = kind()
    found = refusal(error)
    assert found is not None
    for name in NAMED[kind]:
        assert name in str(found)


@pytest.mark.parametrize("kind", [ProducerFenced, NotEnoughReplicasError, KafkaError])
def test_what_may_pass_is_waited_for(kind: type[KafkaError]) -> None:
    """A doubt is settled by asking again."""
    assert refusal(kind()) is None


def test_no_note_is_longer_than_is_said() -> None:
    """Every field with the longest value that it takes."""
    most = (1 << 63) - 1
    ids: Any = {"cluster_id": "x" * 64, "input_id": "x" * 36, "output_id": "x" * 36}
    names = ("label", "watermark", "partitions", "born", "floor", "since", "meaning")
    numbers: Any = dict.fromkeys(names, most)
    note = Note(**ids, **numbers, atomic=True)
    assert len(note.encode()) <= NOTE_BYTES
