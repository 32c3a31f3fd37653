"""How the worker reaches and uses Kafka, as an operator configures it: `kafka`, `source`, `sink`, `delivery`.

The options of `kafka` have aiokafka's names. Secrets come from the environment or from files.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from streamdedup.kafka.passthrough import Client, PassThrough, read_client_options
from streamdedup.kafka.registry_options import SchemaRegistryOptions
from streamdedup.kafka.topic_pattern import refusal_of
from streamdedup.keys.options import Tombstones
from streamdedup.secret import (
    AllowPlaintext,
    AuthoritiesFile,
    CertificateFile,
    RegularFile,
    Secret,
    SecretFile,
    conflicting_secrets,
    half_certificates,
    is_loopback,
    secret,
    secret_file,
    sent_in_clear,
)
from streamdedup.units import count, milliseconds, seconds, size_bytes

NOT_OURS = "topics with __ belong to Kafka and its tools; name another topic"
MARK = "streamdedup.verdict"  # the header of the output that names the verdict
# The headers of an event that a list blocks; the last one only if a single change blocks it, and has a reason.
BLOCKED_BY = (
    "streamdedup.list",
    "streamdedup.list-version",
    "streamdedup.rule",
    "streamdedup.list-source",
    "streamdedup.list-reason",
)


def check_name(name: str) -> str:
    """Refuse a name that Kafka refuses for a topic, or for a group's instance."""
    if not re.fullmatch(_NAME, name) or name in (".", ".."):
        raise ValueError(
            "must be 1 to 249 of the characters a-z A-Z 0-9 . _ -, and neither . nor .."
        )
    return name


_NAME = r"[a-zA-Z0-9._-]{1,249}"
Name = Annotated[
    str, AfterValidator(check_name), Field(json_schema_extra={"pattern": f"^{_NAME}$"})
]


def _join_servers(value: object) -> object:
    if isinstance(value, list) and all(isinstance(server, str) for server in value):
        return ",".join(value)
    return value


def _check_servers(servers: str) -> str:
    hosts = [host.strip() for host in servers.split(",")]
    for number, host in enumerate(hosts, 1):
        which = f"its address {number}, of {len(hosts)}," if len(hosts) > 1 else "the address"
        match = re.fullmatch(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+)(?::([0-9]{1,5}))?", host)
        if match is not None and match[1] is None:
            raise ValueError(f"{which} has no port; write host:port, as in localhost:9092")
        if match is None or not 0 < int(match[1]) < 65536:
            raise ValueError(
                f"{which} is wrong; write host:port, several separated by commas, without a protocol and"
                " without a user"
            )
    return ",".join(hosts)


def _check_factory(name: str) -> str:
    parts = name.replace(":", ".").split(".")
    if name.count(":") != 1 or not all(part.isidentifier() for part in parts):
        raise ValueError("must have the form package.module:factory")
    return name


class KafkaOptions(BaseModel):
    """How one group of workers reaches the cluster.

    Secrets are read from the environment, or from the files that `..._file` name, and never from the configuration
    itself.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    bootstrap_servers: Annotated[
        str,
        BeforeValidator(_join_servers, json_schema_input_type=str | list[str]),
        AfterValidator(_check_servers),
    ] = Field(
        description="Brokers to ask first, `host:port`, separated by commas or as a list.",
        examples=["localhost:9092"],
    )
    group_id: str = Field(
        min_length=1,
        description="The consumer group; workers of the same group share the partitions.",
        examples=["dedup"],
    )
    group_instance_id: Name | None = Field(
        default=None,
        description="A name of this worker that stays the same over restarts and that no other worker has. "
        "It gives static membership: a restart does not move partitions.",
    )
    client_id: str = Field(
        default="streamdedup",
        min_length=1,
        description="The name under which brokers log this client.",
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT",
        description="Whether the connection is encrypted, and whether the worker authenticates itself by SASL.",
    )
    ssl_cafile: AuthoritiesFile = None
    ssl_certfile: CertificateFile = None
    ssl_keyfile: RegularFile | None = Field(
        default=None, description="The private key of `ssl_certfile`, PEM."
    )
    ssl_check_hostname: bool = Field(
        default=True, description="Whether the broker's certificate must contain its host name."
    )
    ssl_password_file: SecretFile | None = secret_file("the passphrase of `ssl_keyfile`")
    ssl_password: Secret = secret("the passphrase of `ssl_keyfile`")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = (
        Field(
            default=None,
            description="How the worker authenticates itself; required with the SASL protocols.",
        )
    )
    sasl_plain_username: str | None = Field(
        default=None, min_length=1, description="The user for PLAIN and SCRAM."
    )
    sasl_plain_password_file: SecretFile | None = secret_file("the password for PLAIN and SCRAM")
    sasl_plain_password: Secret = secret("the password for PLAIN and SCRAM")
    sasl_oauth_token_provider: Annotated[str, AfterValidator(_check_factory)] | None = Field(
        default=None,
        description="For OAUTHBEARER, `package.module:factory`: a callable without arguments that "
        "returns an aiokafka `AbstractTokenProvider`.",
    )
    allow_plaintext: AllowPlaintext = False
    give_up_after_s: Annotated[float | None, seconds(1, 31_536_000)] = Field(
        default=None,
        description="How long brokers may be away before the worker ends with status 1; not set, it "
        "waits without limit.",
    )
    consumer: PassThrough = Field(
        default={},
        description="Further options of `AIOKafkaConsumer`, by its names, except those on which "
        "the guarantee depends.",
        examples=[{"session_timeout_ms": 10000}],
    )
    producer: PassThrough = Field(
        default={},
        description="Further options of `AIOKafkaProducer`, by its names, except those on which "
        "the guarantee depends.",
        examples=[{"retry_backoff_ms": 200}],
    )

    schema_registry: SchemaRegistryOptions | None = Field(
        default=None,
        description="The Schema Registry that has the schemas of `key.format`.",
    )

    @field_validator("consumer", "producer", mode="before")
    @classmethod
    def _read_options(cls, options: object, info: ValidationInfo) -> object:
        if not options or not isinstance(options, Mapping):
            return options
        client: Client = "consumer" if info.field_name == "consumer" else "producer"
        return read_client_options(client, options)

    def conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield each contradiction: the options concerned, the wrong one first, and the reason."""
        yield from conflicting_secrets(self, "kafka", "ssl_password", "sasl_plain_password")
        yield from self._ssl_conflicts()
        yield from self._clear_conflicts()
        if self.security_protocol.startswith("SASL"):
            yield from self._sasl_conflicts()
        else:
            for leaf in _SASL_LEAVES:
                if getattr(self, leaf) is not None:
                    yield (
                        (leaf, "security_protocol"),
                        f"means nothing with kafka.security_protocol: {self.security_protocol}; "
                        "unset it, or set kafka.security_protocol to SASL_SSL or SASL_PLAINTEXT",
                    )

    @property
    def sends_in_clear(self) -> bool:
        """Whether credentials go to another machine without encryption."""
        servers = self.bootstrap_servers.split(",")
        hosts = [server.rpartition(":")[0].strip("[]") for server in servers]
        return self.security_protocol == "SASL_PLAINTEXT" and not all(map(is_loopback, hosts))

    def _clear_conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.sends_in_clear and not self.allow_plaintext:
            leaves = ("security_protocol", "bootstrap_servers")
            yield leaves, sent_in_clear("credentials", "kafka.security_protocol: SASL_SSL", "kafka")
        if self.allow_plaintext and self.security_protocol != "SASL_PLAINTEXT":
            yield (
                ("allow_plaintext", "security_protocol"),
                f"means nothing with kafka.security_protocol: {self.security_protocol}; delete it",
            )

    def _ssl_conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        encrypted = self.security_protocol.endswith("SSL")
        for leaf in _SSL_LEAVES:
            if not encrypted and getattr(self, leaf) != type(self).model_fields[leaf].default:
                yield (
                    (leaf, "security_protocol"),
                    f"means nothing with kafka.security_protocol: {self.security_protocol}; "
                    "unset it, or set kafka.security_protocol to SSL or SASL_SSL",
                )
        yield from half_certificates(self, "kafka")
        if self.ssl_password is not None and self.ssl_keyfile is None:
            leaf = "ssl_password_file" if self.ssl_password_file else "ssl_password"
            yield (leaf, "ssl_keyfile"), "means nothing without kafka.ssl_keyfile; delete it"

    def _sasl_conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.sasl_mechanism is None:
            yield (
                ("sasl_mechanism", "security_protocol"),
                f"is required with kafka.security_protocol: {self.security_protocol}; choose "
                "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
            )
            return
        oauth = self.sasl_mechanism == "OAUTHBEARER"
        for leaf in _SASL_LEAVES[1:]:
            wanted = oauth == (leaf == "sasl_oauth_token_provider")
            given = getattr(self, leaf) is not None
            if wanted and not given:
                where = (
                    f"STREAMDEDUP_KAFKA__{leaf.upper()} or kafka.{leaf}_file"
                    if leaf == "sasl_plain_password"
                    else f"kafka.{leaf}"
                )
                yield (
                    (leaf, f"{leaf}_file", "sasl_mechanism"),
                    f"is required with kafka.sasl_mechanism: {self.sasl_mechanism}; set {where}",
                )
            elif given and not wanted:
                yield (
                    (leaf, "sasl_mechanism"),
                    f"means nothing with kafka.sasl_mechanism: {self.sasl_mechanism}; delete it",
                )


_SSL_LEAVES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_password")
_SASL_LEAVES = (
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_oauth_token_provider",
)


class RepartitionOptions(BaseModel):
    """The middle topic, in which all events of a key lie in one partition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: Name = Field(
        description="The middle topic. The worker makes it, writes it and deletes what it has read; nobody else may "
        "write to it, and no other group may read it.",
        examples=["events-by-key"],
    )
    partitions: Annotated[int, count(1, 10_000, "partitions")] = Field(
        description="The number of partitions of the middle topic, which is also that of the output. It can never "
        "change: another number needs another middle topic, another group and another output.",
        examples=["12"],
    )
    unread_max: Annotated[int, count(1, 10**9, "events")] = Field(
        default=1_000_000,
        description="How many events of one middle partition may wait to be judged before the worker reads no more of "
        "the input. It bounds the size of the middle topic: each process of the first stage may go beyond it by one "
        "transaction of at most as many events.",
    )
    max_skew: Annotated[int | None, milliseconds(1, 100 * 366 * 86_400_000, bare=False)] = Field(
        default=None,
        description="With `filter.retention`, how far one partition of the input may be copied ahead of the slowest "
        "one that has unread events, by the times of the events. The windows cover as much more than `retention`. Not "
        "set, it is an eighth of `filter.retention`.",
        examples=["6h"],
    )


class SourceOptions(BaseModel):
    """The topics that are read: `topic`, or, with `repartition`, `topics` or `pattern`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic_: Name | None = Field(
        default=None, alias="topic", description="The topic to read.", examples=["events"]
    )
    topics: tuple[Name, ...] | None = Field(
        default=None,
        description="In place of `topic`, the topics to read; only with `repartition`. One may be added or taken away "
        "at a restart.",
        examples=["[events-eu, events-us]"],
    )
    pattern: str | None = Field(
        default=None,
        description="In place of `topic`, a regular expression: all topics are read whose whole name it matches, also "
        "those that come later; only with `repartition`. Topics that this deployment writes or reads otherwise, and "
        "those that begin with `__`, never match.",
        examples=["clicks-.*"],
    )
    start: Literal["earliest", "latest"] = Field(
        default="earliest",
        description="Where reading begins in a partition that this group has never read and whose output "
        "is empty.",
    )
    tombstones: Tombstones = Field(
        default="pass",
        description="What happens to events with a null value: they are emitted unjudged, judged by their "
        "key, or dropped.",
    )
    on_gap: Literal["stop", "skip"] = Field(
        default="stop",
        description="What happens if the broker has deleted events that were not read yet: the partition stops, "
        "or reading goes on at the first event that is left.",
    )
    on_damaged: Literal["stop", "skip"] = Field(
        default="stop",
        description="What happens at a record batch that cannot be read: the partition stops, or the batch is skipped, "
        "logged and counted, and its bytes go to `sink.dead_letter_topic`, if that is set. This holds for the input "
        "only: a fold of the output always stops.",
    )
    on_growth: Literal["refuse", "accept"] = Field(
        default="refuse",
        description="What happens if the topic has more partitions than when the group began, or was made again with "
        "another number of them. Keys are then in other partitions, whose filters do not contain them. `accept` lets "
        "their duplicates pass once.",
    )
    headers_max: Annotated[int, count(1, 1_000_000, "headers")] = Field(
        default=1_000,
        description="The most headers of an event. One with more is rejected (`sink.on_rejected`), and its dead letter "
        "goes without its headers: a record of a few kB can hold millions, which would hold up the worker.",
    )
    headers_bytes_max: Annotated[int, size_bytes(2**10, 2**30)] = Field(
        default=2**20,
        description="The most bytes of an event's headers, names and values together. One with more is rejected like "
        "one above `headers_max`.",
    )
    repartition: RepartitionOptions | None = Field(
        default=None,
        description="For events of one key that lie in several partitions, or topics: each event is first copied to a "
        "partition of a middle topic that its key decides, and judged there. If not set, all events of a key must be "
        "in one partition of `topic`.",
    )

    @property
    def topic(self) -> str:
        """The topic, if it is one. ValueError if they are given by `topics` or `pattern`."""
        if self.topic_ is None:
            raise ValueError("source.topic is not set: several topics are read")
        return self.topic_

    @property
    def named(self) -> tuple[str, ...] | None:
        """The topics, in order of the alphabet; None if they are given by `pattern`."""
        return (self.topic_,) if self.topic_ else self.topics and tuple(sorted(self.topics))

    @property
    def option(self) -> str:
        """The option that gives the topics, for messages."""
        if self.pattern is not None:
            return "source.pattern"
        return "source.topics" if self.topics else "source.topic"

    @property
    def shown(self) -> str:
        """The topics as text, for messages."""
        if self.pattern is not None:
            return f"the topics that match {self.pattern}"
        return ", ".join(self.named or ())

    def conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield each contradiction: the options concerned, the wrong one first, and the reason."""
        given = {"topic": self.topic_, "topics": self.topics, "pattern": self.pattern}
        chosen = [name for name, value in given.items() if value is not None]
        if not chosen:
            yield (
                ("topic",),
                "is required; name the topic to read (or set source.topics or source.pattern)",
            )
        for name in chosen[1:]:
            yield (name, chosen[0]), f"does not go with source.{chosen[0]}; set one of them"
        for name in chosen if self.repartition is None else ():
            if name != "topic":
                yield (
                    (name,),
                    "needs source.repartition: a key may come in several topics, and each partition of each has a"
                    " memory of its own; set source.repartition, or name one topic in source.topic",
                )
        if self.topics is not None and not self.topics:
            yield ("topics",), "must name a topic"
        names = self.topics or ()
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            yield ("topics",), f"names {name} twice; delete one of them"
        if self.pattern is not None and (why := refusal_of(self.pattern)):
            yield ("pattern",), why
        for name in names:
            if name.startswith("__"):
                yield ("topics",), f"must not name {name}: {NOT_OURS}"


class SinkOptions(BaseModel):
    """The topics that are written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: Name = Field(
        description="The output: the first event of every key, in the partition of the same number.",
        examples=["events-unique"],
    )
    duplicates_topic: Name | None = Field(
        default=None, description="Where duplicates go; not set, they are only counted."
    )
    duplicates_headers: bool = Field(
        default=False,
        description="Whether events on `duplicates_topic` are letters, like dead letters: with headers that name the "
        "event's topic, partition, offset and timestamp in the input, stamped with the broker's time, and cut if they "
        "are larger than the topic allows. Otherwise they are copies, byte for byte.",
    )
    blocked_topic: Name | None = Field(
        default=None,
        description="Where events go that the `blocklist` blocks, with the name and version of the list and the "
        "rule that matched; not set, they are only counted.",
    )
    dead_letter_topic: Name | None = Field(
        default=None,
        description="Where events go, with the reason, that have no usable key, or that the output would "
        "refuse or delete at once.",
    )
    on_rejected: Literal["dead_letter", "stop"] = Field(
        default="dead_letter",
        description="What happens to an event that the output refuses, or would delete at once: it becomes a dead "
        "letter, or its partition stops. Not set, it means `stop` if there is no `dead_letter_topic`.",
    )
    create_topics: bool = Field(
        default=False,
        description="Whether topics of `sink` that do not exist are created at start-up. They keep events as long as "
        "the input does, and `topic` as long as its filter remembers their keys, which without a window is for ever.",
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        default="lz4",
        description="The codec of the record batches that are written. `lz4` takes the least time, "
        "`zstd` the least space.",
    )
    shadow: bool = Field(
        default=False,
        description="Whether every event goes to `topic`, with the verdict in a header `streamdedup.verdict`. "
        "This shows what a configuration would drop before it drops anything. The other topics "
        "then get only the events that `topic` would refuse; without `dead_letter_topic` such an "
        "event stops its partition.",
    )
    on_gap: Literal["stop", "accept"] = Field(
        default="stop",
        description="What happens if events were deleted from the output that the filter does not contain yet: "
        "stop, or accept that their keys are forgotten.",
    )


class DeliveryOptions(BaseModel):
    """What is guaranteed, and how much is done at once.

    A transaction ends as soon as the interval, the number of events, or their bytes are reached.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    guarantee: Literal["exactly_once", "at_least_once"] = Field(
        default="exactly_once",
        description="Whether output and offsets are committed in one transaction. "
        "`at_least_once` works with brokers that have no transactions.",
    )
    commit_interval_ms: Annotated[int, milliseconds(1, 10_000)] = Field(
        default=100,
        description="How long a transaction is filled. It is filled for longer if it would have to wait for "
        "the commit of the one before it, up to `batch_events_max` and `batch_bytes_max`.",
    )
    batch_events_max: Annotated[int, count(1, 100_000, "events")] = Field(
        default=50_000, description="The most events that are judged in one transaction."
    )
    batch_bytes_max: Annotated[int, size_bytes(2**10, 2**30)] = Field(
        default=8 * 2**20,
        description="A transaction is closed once its events have this many bytes.",
    )
    max_in_flight: Annotated[int, count(1, 100, "transactions")] = Field(
        default=2,
        description="The most transactions of a partition that are decided and not yet committed. While one "
        "commits, the next is filled; with 1, one follows the other.",
    )
    open_transaction_s: Annotated[float, seconds(1, 86_400)] = Field(
        default=60.0,
        description="How long a partition waits for another producer's open transaction: on its output before it "
        "stops, naming it; on its input before that is warned of, since nothing above it is read until it ends.",
    )
    drain_s: Annotated[float, seconds(1, 3600)] = Field(
        default=30.0, description="How long a shutdown may take before it is cut short."
    )

    @property
    def exactly_once(self) -> bool:
        """Whether output and offsets are committed in one transaction."""
        return self.guarantee == "exactly_once"
