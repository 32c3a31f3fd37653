"""Claims about errors that no patience cures: they are named, with their remedy, wherever aiokafka puts them."""

import sys
from types import ModuleType
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider
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

from streamdedup.errors import ConfigError
from streamdedup.kafka.client.connection import NOTE_BYTES, client_arguments, refusal
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.options import KafkaOptions

NAMED = {
    InvalidTransactionTimeout: ("kafka.producer.transaction_timeout_ms", "transaction.max.timeout"),
    InvalidSessionTimeoutError: ("kafka.consumer.session_timeout_ms", "group.min.session.timeout"),
    OffsetMetadataTooLargeError: ("offset.metadata.max.bytes",),
    UnsupportedForMessageFormatError: ("message.format.version",),
    ClusterAuthorizationFailedError: ("IdempotentWrite", "docs/security.md"),
}


@pytest.mark.finding("broker-refuses")
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


class Tokens(AbstractTokenProvider):  # type: ignore[misc] # aiokafka has no types
    """Returns one token."""

    def __init__(self, token: Any) -> None:
        self._token = token

    async def token(self) -> Any:
        """The token."""
        return self._token

    def extensions(self) -> dict[str, str]:
        """One."""
        return {"pool": "1"}


@pytest.mark.parametrize("token", ["a.b.c", "a\nb", "a\r\n", "a\x01auth=b", "a b", "", None])
async def test_a_token_that_is_no_word_is_refused_where_it_is_read(
    token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider of the operator's own may read it from a file with a line end. The message does not repeat it."""
    module: Any = ModuleType("acme_tokens")
    module.make = lambda: Tokens(token)
    monkeypatch.setitem(sys.modules, "acme_tokens", module)
    options = KafkaOptions(
        bootstrap_servers="localhost:1",
        group_id="g",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider="acme_tokens:make",  # noqa: S106 - a name
    )
    provider = (await client_arguments(options))["sasl_oauth_token_provider"]
    assert provider.extensions() == {"pool": "1"}
    if token == "a.b.c":  # noqa: S105 - no secret
        assert await provider.token() == token
        return
    with pytest.raises(ConfigError, match="one word of visible ASCII") as refused:
        await provider.token()
    assert not token or token not in str(refused.value)
