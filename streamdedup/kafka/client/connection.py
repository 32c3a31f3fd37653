"""How to reach the cluster: the options that all clients share, and one bare client for requests of our own."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeVar

import structlog
from aiokafka.abc import AbstractTokenProvider
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IllegalSaslStateError,
    InvalidSessionTimeoutError,
    InvalidTransactionTimeout,
    KafkaConnectionError,
    KafkaError,
    OffsetMetadataTooLargeError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedForMessageFormatError,
    UnsupportedSaslMechanismError,
    for_code,
)

from streamdedup.errors import (
    ConfigError,
    DeliveryError,
    StreamdedupError,
    traceback_without_messages,
)
from streamdedup.kafka.client.closing import close_client, starting
from streamdedup.kafka.client.creation import never_creating
from streamdedup.kafka.client.tls import ssl_context, tls_remedy
from streamdedup.kafka.options import KafkaOptions
from streamdedup.secret import is_word

log = structlog.get_logger(__name__)

T = TypeVar("T")

NOTE_BYTES = 1024  # more than any note takes
LOADING, AWAY, MOVED = 14, 15, 16  # codes of a coordinator that loads, is away, or has moved
NOT_YET = LOADING, AWAY, MOVED
_REFUSALS = {
    AuthenticationFailedError: "the credentials under kafka.sasl_*",
    SaslAuthenticationFailed: "the credentials under kafka.sasl_*",
    GroupAuthorizationFailedError: "the right Read on the group that kafka.group_id names",
    TopicAuthorizationFailedError: "the rights on that topic",
    TransactionalIdAuthorizationFailed: "the right Write on the transactional ids OUTPUT/PARTITION, and with"
    " source.repartition on MIDDLE/*",
    ClusterAuthorizationFailedError: "the right IdempotentWrite on the cluster, for brokers before 2.8",
}
_LIMITS = {
    InvalidTransactionTimeout: "set kafka.producer.transaction_timeout_ms to at most the brokers'"
    " transaction.max.timeout.ms, or raise the latter",
    InvalidSessionTimeoutError: "set kafka.consumer.session_timeout_ms to a value that the brokers'"
    " group.min.session.timeout.ms and group.max.session.timeout.ms allow",
    OffsetMetadataTooLargeError: "raise the brokers' offset.metadata.max.bytes: the note beside an offset needs up"
    f" to {NOTE_BYTES} bytes",
    UnsupportedForMessageFormatError: "set message.format.version of the topics of sink to 0.11 or later",
}


async def client_arguments(options: KafkaOptions) -> dict[str, Any]:
    """Return the keyword arguments that consumers, producers and bare clients share.

    ConfigError if the TLS files or the token provider cannot be loaded.
    """
    arguments: dict[str, Any] = {
        "bootstrap_servers": options.bootstrap_servers,
        "client_id": options.client_id,
        "security_protocol": options.security_protocol,
    }
    if options.security_protocol in ("SSL", "SASL_SSL"):
        arguments["ssl_context"] = await ssl_context(options)
    if options.security_protocol.startswith("SASL"):
        arguments |= _sasl(options)
    return arguments


class NotYetError(StreamdedupError):
    """A broker cannot answer yet: a coordinator is loading or moving, or an offset is undecided."""


def raise_for(code: int) -> None:
    """Raise the error that a broker's code stands for; NotYetError if its coordinator cannot answer yet."""
    if code in NOT_YET:
        raise NotYetError
    if code:
        raise for_code(code)


async def asked_again(client: Any, ask: Callable[[], Awaitable[T]], retry_s: float) -> T:
    """Return the answer of `ask`; repeat it every `retry_s` seconds while the broker that must answer moves or is away.

    This may wait without end, so the caller sets a time-out.
    """
    while True:
        try:
            return await ask()
        except NotYetError:
            pass
        except KafkaError as error:
            if not error.retriable:
                raise
            await client.force_metadata_update()
        await asyncio.sleep(retry_s)


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return the fields of a log line about `error`.

    An error of unknown origin may quote a key, so only its type and its place in the code are logged.
    """
    if isinstance(error, KafkaError):
        return {"error": str(error)}  # it begins with the name
    if isinstance(error, OSError | StreamdedupError):
        return {"error": f"{type(error).__name__}: {error}" if str(error) else type(error).__name__}
    return {"error": type(error).__name__, "where": traceback_without_messages(error)}


def refusal(error: BaseException) -> DeliveryError | None:
    """Return the error for the operator if the broker refuses us, so that waiting will not help; else None.

    aiokafka's producer raises an unexpected error as the cause of another one.
    """
    if type(error) is KafkaError and error.__cause__ is not None:
        error = error.__cause__
    if missing := _REFUSALS.get(type(error)):
        return DeliveryError(
            f"the broker refuses us: {error}",
            remedy=f"check {missing} (docs/security.md)",
            finding="broker-refuses",
        )
    if remedy := _LIMITS.get(type(error)):
        return DeliveryError(
            f"the broker accepts no such value: {error}", remedy=remedy, finding="broker-refuses"
        )
    return None


def fatal_of(error: Exception) -> Exception | None:
    """Return, for the operator, the error that ends whatever met `error`: one of ours, or a refusal's; None if none."""
    return error if isinstance(error, DeliveryError | ConfigError) else refusal(error)


async def bootstrap(options: KafkaOptions) -> Any:
    """Return a bare aiokafka client, connected; the caller closes it.

    ConfigError if a broker answers and refuses us; KafkaConnectionError if no broker answers.
    """
    arguments = await client_arguments(options)
    client = never_creating(AIOKafkaClient(**arguments))
    try:
        with starting():
            await client.bootstrap()
        if not await client.force_metadata_update():
            raise KafkaConnectionError(
                "no broker answered a request for the metadata of the cluster"
            )
    except BaseException as error:
        brokers = [(b.host, b.port) for b in client.cluster.brokers()]
        await close_client(client)
        if isinstance(error, KafkaConnectionError):
            await _check_welcome(brokers or [host[:2] for host in client.hosts], options, arguments)
        raise
    return client


async def _check_welcome(
    brokers: Iterable[tuple[str, int]], options: KafkaOptions, arguments: Mapping[str, Any]
) -> None:
    """ConfigError if a broker answers and refuses us: aiokafka only logs why it could not connect."""
    own = {name: value for name, value in arguments.items() if name != "bootstrap_servers"}
    for host, port in brokers:
        try:
            connection = await create_conn(host, port, **own)
        except (KafkaError, OSError) as error:  # TimeoutError is an OSError
            cause = error.__cause__ if isinstance(error, KafkaConnectionError) else error
            if reason := _unwelcome(cause, options, f"{host}:{port}"):
                raise ConfigError(reason) from None
            continue
        connection.close()
        # aiokafka takes the refusal of a token for success.
        if options.sasl_mechanism == "OAUTHBEARER":
            raise ConfigError(
                f"kafka.sasl_oauth_token_provider: {host}:{port} refuses its token",
                remedy="return one that the broker trusts",
            )


def _unwelcome(error: BaseException | None, options: KafkaOptions, broker: str) -> str | None:
    """Return what the operator must correct; None if the broker may only be away."""
    match error:
        case ssl.SSLError():
            return tls_remedy(
                error,
                broker,
                "kafka",
                name=(
                    "ssl_check_hostname",
                    "in kafka.bootstrap_servers and in the broker's advertised.listeners, use a name that it contains",
                ),
                protocol=("security_protocol", f"name a listener for {options.security_protocol}"),
            )
        case SaslAuthenticationFailed() | AuthenticationFailedError():
            return (
                f"kafka.sasl_plain_username, sasl_plain_password: {broker} refuses the user"
                f" {options.sasl_plain_username!r} ({error}); give the name and password of a user that it knows"
            )
        case UnsupportedSaslMechanismError():
            return (
                f"kafka.sasl_mechanism: {broker} does not accept {options.sasl_mechanism}; choose one that is in its"
                " sasl.enabled.mechanisms"
            )
        case IllegalSaslStateError():
            return (
                f"kafka.security_protocol: {broker} does not use SASL, but this is {options.security_protocol}; name a"
                " listener that uses SASL, or set PLAINTEXT or SSL"
            )
    return None


def _sasl(options: KafkaOptions) -> dict[str, Any]:
    arguments: dict[str, Any] = {"sasl_mechanism": options.sasl_mechanism}
    if options.sasl_mechanism == "OAUTHBEARER":
        arguments["sasl_oauth_token_provider"] = _token_provider(options)
    else:
        arguments["sasl_plain_username"] = options.sasl_plain_username
        password = options.sasl_plain_password
        arguments["sasl_plain_password"] = password.get_secret_value() if password else None
    return arguments


def _token_provider(options: KafkaOptions) -> AbstractTokenProvider:
    where = "kafka.sasl_oauth_token_provider"
    module, _, name = (options.sasl_oauth_token_provider or "").partition(":")
    try:
        provider = getattr(import_module(module), name)()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{where}: {_missing_in(module, error)}",
            remedy="give package.module:factory of something that can be imported",
        ) from None
    except Exception as error:
        raise ConfigError(
            f"{where}: the factory raised {type(error).__name__}", remedy="correct it"
        ) from error
    if not isinstance(provider, AbstractTokenProvider):
        raise ConfigError(
            f"{where}: the factory returned a {type(provider).__name__};"
            " it must return an aiokafka.abc.AbstractTokenProvider"
        )
    return _Checked(provider)


class _Checked(AbstractTokenProvider):
    """Gives the tokens of a provider on. One with a line end or another control character would forge a message."""

    def __init__(self, provider: AbstractTokenProvider) -> None:
        self._provider = provider

    async def token(self) -> str:
        """Return the provider's token. ConfigError if it is no word of visible ASCII."""
        token = await self._provider.token()
        if not isinstance(token, str) or not is_word(token):
            raise ConfigError(
                "kafka.sasl_oauth_token_provider: its token is not one word of visible ASCII characters",
                remedy="return it without line ends and blanks",
            )
        return token

    def extensions(self) -> dict[str, str]:
        """Return what the provider adds."""
        return dict(self._provider.extensions() or {})


def _missing_in(module: str, error: ImportError | AttributeError) -> str:
    """Return what is missing, without quoting the option: a user with a password looks like a module with a factory."""
    if isinstance(error, AttributeError):
        return "the module has no such factory, or the factory raised AttributeError"
    if error.name and not f"{module}.".startswith(f"{error.name}."):
        return f"the module needs {error.name}, which cannot be imported"
    return "the module cannot be imported"
