"""Options that are passed to aiokafka's clients, and those that are refused.

Names and types are aiokafka's own, read from its signatures. aiokafka is imported only when needed.
"""

import functools
import inspect
from collections.abc import Mapping
from typing import Literal

from pydantic import TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from streamdedup.units import nearest, parse_bytes, parse_count, parse_milliseconds

Client = Literal["consumer", "producer"]
OptionValue = str | int | bool
PassThrough = Mapping[str, OptionValue]

UNKNOWN_OPTION: Literal["unknown_option"] = "unknown_option"
"""The type of an error in a name. The value must then not be shown: it may be a secret."""
WRONG_OPTION: Literal["wrong_option"] = "wrong_option"
"""The type of an error in a value."""

KAFKA_NAMES: Mapping[str, str] = {
    "metadata.broker.list": "kafka.bootstrap_servers",
    "bootstrap.servers": "kafka.bootstrap_servers",
    "brokers": "kafka.bootstrap_servers",
    "group.id": "kafka.group_id",
    "group.instance.id": "kafka.group_instance_id",
    "client.id": "kafka.client_id",
    "security.protocol": "kafka.security_protocol",
    "ssl.ca.location": "kafka.ssl_cafile",
    "ssl.truststore.location": "kafka.ssl_cafile",
    "ssl.certificate.location": "kafka.ssl_certfile",
    "ssl.keystore.location": "kafka.ssl_certfile",
    "ssl.key.location": "kafka.ssl_keyfile",
    "ssl.key.password": "kafka.ssl_password",
    "ssl.endpoint.identification.algorithm": "kafka.ssl_check_hostname",
    "sasl.mechanism": "kafka.sasl_mechanism",
    "sasl.mechanisms": "kafka.sasl_mechanism",
    "sasl.username": "kafka.sasl_plain_username",
    "sasl.password": "kafka.sasl_plain_password",
    "sasl.jaas.config": "kafka.sasl_plain_username",
    "auto.offset.reset": "source.start",
    "compression.type": "sink.compression",
    "max.poll.records": "delivery.batch_events_max",
    "auto.commit.interval.ms": "delivery.commit_interval_ms",
    "fetch.wait.max.ms": "kafka.consumer.fetch_max_wait_ms",
    "batch.size": "kafka.producer.max_batch_size",
}
"""Our options by the names that Kafka's Java client and librdkafka have for them."""

_CONNECTION = "it must be the same for all clients; set kafka.{name} instead"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "bootstrap_servers",
            "client_id",
            "group_id",
            "group_instance_id",
            "security_protocol",
            "sasl_mechanism",
            "sasl_plain_username",
            "sasl_plain_password",
            "sasl_oauth_token_provider",
        ),
        _CONNECTION,
    ),
    "ssl_context": "it is made from kafka.ssl_cafile, ssl_certfile and ssl_keyfile; set these "
    "instead",
    **dict.fromkeys(
        ("sasl_kerberos_service_name", "sasl_kerberos_domain_name"),
        "Kerberos is not offered; choose another kafka.sasl_mechanism",
    ),
    "enable_auto_commit": "offsets are committed together with the output; delete it",
    "auto_commit_interval_ms": "offsets are committed together with the output; "
    "set delivery.commit_interval_ms instead",
    "linger_ms": "a batch is sent as soon as it is full or its transaction ends; "
    "set delivery.commit_interval_ms instead",
    "isolation_level": "aborted events must not be judged; delete it",
    "auto_offset_reset": "the worker decides where reading begins; set source.start and source.on_gap "
    "instead",
    "transactional_id": "it is named after the output partition that it fences; delete it",
    **dict.fromkeys(
        ("acks", "enable_idempotence"),
        "an event counts as emitted when all replicas have it; set delivery.guarantee instead",
    ),
    "compression_type": "set sink.compression instead",
    **dict.fromkeys(
        ("key_serializer", "value_serializer", "key_deserializer", "value_deserializer"),
        "events are copied byte for byte; delete it",
    ),
    "partitioner": "an event that passes goes to the partition of the same number; delete it",
    "partition_assignment_strategy": "all workers of a group must have the same one; delete it",
    "check_crcs": "a damaged byte is never trusted; delete it",
    "max_poll_records": "set delivery.batch_events_max instead",
    "exclude_internal_topics": "only the topics of source are read; delete it",
    **dict.fromkeys(("loop", "api_version"), "the worker sets it itself; delete it"),
}


@functools.cache
def client_options(client: Client) -> Mapping[str, object]:
    """Return the options of an aiokafka client that may be passed, with their defaults."""
    import aiokafka

    made = {"consumer": aiokafka.AIOKafkaConsumer, "producer": aiokafka.AIOKafkaProducer}[client]
    return {
        name: parameter.default
        for name, parameter in inspect.signature(made).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_POSITIONAL and name not in _REFUSED
    }


def read_client_options(client: Client, options: Mapping[str, object]) -> PassThrough:
    """Return the options, converted to the types that aiokafka expects.

    All wrong options are refused together, each with its remedy: a pydantic `ValidationError`.
    """
    values: dict[str, OptionValue] = {}
    errors: list[InitErrorDetails] = []
    for name, raw in options.items():
        try:
            values[name] = _read_option(client, name, raw)
        except ValueError as error:
            unknown = isinstance(error, _UnknownOptionError)
            kind = UNKNOWN_OPTION if unknown else WRONG_OPTION
            made = PydanticCustomError(kind, "{why}", {"why": str(error)})
            errors.append(InitErrorDetails(type=made, loc=(name,), input=None))
    if errors:
        raise ValidationError.from_exception_data(client, errors, hide_input=True)
    return values


def refused(name: str) -> str | None:
    """Return why an operator may not set an option, given by aiokafka's name or Kafka's.

    Return None if the operator may set it, or if no option has this name.
    """
    plain = name.replace(".", "_")
    return _REFUSED[plain].format(name=plain) if plain in _REFUSED else None


def resembles_option(name: str) -> bool:
    """Whether a name is that of an option of aiokafka or Kafka, refused ones included, or nearly so."""
    plain = name.replace(".", "_")
    known = {*client_options("consumer"), *client_options("producer"), *_REFUSED}
    return name in KAFKA_NAMES or nearest(plain, known) is not None


def _read_option(client: Client, name: str, raw: object) -> OptionValue:
    known = client_options(client)
    if name not in known:
        raise _UnknownOptionError(_unknown_option(client, name))
    default = known[name]
    if isinstance(default, bool):
        return _read_bool(raw)
    if name.endswith("_ms"):
        return parse_milliseconds(raw)
    if name.endswith(("_bytes", "_size")):
        return parse_bytes(raw)
    if isinstance(default, int):
        return parse_count(raw)
    if not isinstance(raw, str):
        raise ValueError("must be a text; put it in quotes")
    return raw


class _UnknownOptionError(ValueError):
    """The option is not aiokafka's, or the operator may not set it."""


def _read_bool(raw: object) -> bool:
    try:
        return _BOOL.validate_python(raw)
    except ValidationError:
        raise ValueError("must be true or false") from None


_BOOL = TypeAdapter(bool)


def _unknown_option(client: Client, name: str) -> str:
    plain = name.replace(".", "_")
    if name in KAFKA_NAMES and plain not in _REFUSED:
        return f"is not an option of aiokafka; set {KAFKA_NAMES[name]} instead"
    if reason := refused(name):
        return f"is refused: {reason}"
    if plain in client_options(client):
        return f"is Kafka's name; write {plain}, which is aiokafka's"
    other: Client = "producer" if client == "consumer" else "consumer"
    if plain in client_options(other):
        return f"is an option of kafka.{other}; set kafka.{other}.{plain} instead"
    near = nearest(plain, client_options(client))
    hint = (
        f"did you mean {near}?"
        if near
        else f"choose one of those of aiokafka's {client}, or delete it"
    )
    return f"is not an option of aiokafka's {client}; {hint}"
