"""What is refused, and the message: place, name, value and remedy."""

import re
from pathlib import Path

import pytest
import yaml

from streamdedup.settings import filter_option
from tests.settings.minimal import MINIMAL, problems

WRONG = [
    ("kafka.bootstrap_servers=a:b:c", "has the wrong address 'a:b:c'; write host:port"),
    ("kafka.bootstrap_servers=SSL://a:9092", "write host:port, several separated by commas"),
    ("kafka.bootstrap_servers=a:99999", "has the wrong address 'a:99999'"),
    (
        "kafka.bootstrap_servers=a:1,127.0.0.1",
        "has the address '127.0.0.1' without a port; write host:port, as in 127.0.0.1:9092",
    ),
    ("kafka.bootstrap_servers='[::1]'", "has the address '[::1]' without a port"),
    ("kafka.group_id=''", "must not be empty"),
    ("kafka.group_id=[a]", "must be a text"),
    ("kafka.group_instance_id=a/b", "must be 1 to 249 of the characters"),
    ("kafka.security_protocol=TLS", "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ("kafka.sasl_mechanism=GSSAPI", "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ("kafka.ssl_cafile=/none.pem", "cannot be read: No such file"),
    ("kafka.ssl_check_hostname=maybe", "must be true or false"),
    ("kafka.sasl_oauth_token_provider=a.b.c", "must have the form package.module:factory"),
    ("kafka.sasl_oauth_token_provider=a-b:c", "must have the form package.module:factory"),
    ("source.topic=a b", "must be 1 to 249 of the characters a-z A-Z 0-9 . _ -"),
    ("source.topic=..", "and neither . nor .."),
    ("source.start=newest", "must be one of earliest, latest"),
    ("source.tombstones=keep", "must be one of pass, judge, drop"),
    ("source.on_gap=accept", "must be one of stop, skip"),
    ("key.from=jsn", "must be one of json, key, value, header"),
    ("key.field=''", "must not be empty"),
    ("key.field={a: b}", "must be a text or a list of texts"),
    ("key.normalize=mail", "must be one of none, trim, lowercase, email"),
    ("key.hash=md5", "must be one of murmur3, siphash"),
    ("key.on_malformed=skip", "must be one of dead_letter, pass, drop"),
    ("filter.kind=fuse", "must be one of bloom, blocked, exact, bitmap, counting, cuckoo, dleft"),
    ("filter.hash=md5", "must be one of murmur3, siphash"),
    ("filter.hash_key_file=/none", "cannot be read: No such file"),
    ("filter.probe=enhanced", "must be one of standard, double"),
    ("filter.capacity=0", "out of range, must be 1 to 1000G keys"),
    ("filter.capacity=-1", "out of range, must be 1 to 1000G keys"),
    ("filter.capacity=many", "is not an integer; write one like 100_000 or 100M"),
    ("filter.error_rate=0", "must be a number from 1e-15 to 0.5"),
    ("filter.error_rate=0.6", "must be a number from 1e-15 to 0.5"),
    ("filter.error_rate=nan", "must be a number from 1e-15 to 0.5"),
    ("filter.on_full=decay", "must be one of grow, stop, warn"),
    ("filter.max_size=100", "out of range, must be 1KiB to"),
    ("filter.retention=0", "out of range, must be 1ms to"),
    ("filter.retention=7", "has no unit; write one, as in 7d, 90s or 250ms"),
    ("filter.max_jump=3600", "has no unit; write one, as in 7d, 90s or 250ms"),
    ("filter.generations=1", "out of range, must be 2 to 64 generations"),
    ("filter.late=never", "must be one of pass, drop"),
    ("filter.refresh=perhaps", "must be true or false"),
    ("filter.partition_headroom=11", "must be a number from 0 to 10"),
    ("sink.compression=brotli", "must be one of none, gzip, snappy, lz4, zstd"),
    ("sink.on_gap=skip", "must be one of stop, accept"),
    ("delivery.guarantee=at_most_once", "must be one of exactly_once, at_least_once"),
    ("delivery.commit_interval_ms=61s", "out of range, must be 1ms to 10s"),
    ("delivery.drain_s=500ms", "out of range, must be 1s to 1h"),
    ("delivery.batch_events_max=2M", "out of range, must be 1 to 100k events"),
    ("delivery.batch_bytes_max=1kB", "out of range, must be 1KiB to 1GiB"),
    ("snapshot.interval_s=2d", "out of range, must be 100ms to 1d"),
    ("snapshot.keep=101", "out of range, must be 1 to 100 snapshots"),
    ("snapshot.directory=''", "is empty, must be a path"),
]

UNKNOWN = [
    ("kafka.groupid", "did you mean kafka.group_id?"),
    ("kafka.bootstrap.servers", "did you mean kafka.bootstrap_servers?"),
    ("kafka.group.id", "did you mean kafka.group_id?"),
    ("kafka.sasl.password", "did you mean kafka.sasl_plain_password?"),
    ("kafka.sasl_username", "did you mean kafka.sasl_plain_username?"),
    ("kafka.session.timeout.ms", "did you mean kafka.consumer.session_timeout_ms?"),
    ("kafka.session_timeout_ms", "did you mean kafka.consumer.session_timeout_ms?"),
    ("kafka.transaction.timeout.ms", "did you mean kafka.producer.transaction_timeout_ms?"),
    ("kafka.auto.offset.reset", "did you mean source.start?"),
    ("kafka.topic", "did you mean source.topic?"),
    ("sinks.topic", "did you mean sink.topic?"),
    ("snapshots.dir", "did you mean snapshot.directory?"),
    ("group.id", "did you mean kafka.group_id?"),
    ("key.path", "see `streamdedup config schema`"),
    ("filter.capacty", "did you mean filter.capacity?"),
    ("delivery.commit-interval-ms", "did you mean delivery.commit_interval_ms?"),
    ("kafka.group_id.x", "did you mean kafka.group_id?"),
    ("zzzzzz", "see `streamdedup config schema`"),
]


class TestRefusals:
    """Every message names the place, the key, the value and the remedy; all come at once."""

    @pytest.mark.parametrize(("override", "remedy"), WRONG)
    def test_a_wrong_value_is_refused(self, file: Path, override: str, remedy: str) -> None:
        """A value out of its type or range is refused with what is allowed, wherever it stands."""
        leaf, _, written = override.partition("=")
        lines = problems(file, override)
        assert len(lines) == 1
        assert lines[0].startswith(f"--set: {leaf} = ")
        assert remedy in lines[0]
        section, name = leaf.split(".")
        tree = yaml.safe_load(MINIMAL)
        beside = tree.pop(section, {}) | {name: written}
        beside[name] = beside.pop(name)
        text = yaml.safe_dump(tree) + f"{section}:\n"
        text += "".join(f"  {option}: {value}\n" for option, value in beside.items())
        file.write_text(text)
        assert problems(file) == [lines[0].replace("--set:", f"dedup.yaml:{text.count(chr(10))}:")]

    @pytest.mark.parametrize(("name", "hint"), UNKNOWN)
    def test_an_unknown_name_brings_the_nearest(self, file: Path, name: str, hint: str) -> None:
        """Our names, aiokafka's and Kafka's dotted ones lead to the right leaf, without values."""
        assert problems(file, f"{name}=hunter2") == [
            f"--set: {name}: is not an option; {hint}"
            + (" for what there is, or delete it" if "schema" in hint else "")
        ]

    @pytest.mark.parametrize("name", ["enable_auto_commit", "enable.auto.commit"])
    def test_a_refused_option_is_refused_wherever_it_stands(self, file: Path, name: str) -> None:
        """Options on which the guarantee rests are named as such beside `kafka.consumer`, too."""
        (line,) = problems(file, f"kafka.{name}=true")
        assert line.startswith(f"--set: kafka.{name}: is refused: offsets are committed together")

    def test_an_unknown_variable_brings_the_nearest_variable(self, file: Path) -> None:
        """The hint is written as the variable that was meant."""
        assert problems(file, KAFKA__GROUPID="x") == [
            "STREAMDEDUP_KAFKA__GROUPID: kafka.groupid: is not an option; did you mean "
            "STREAMDEDUP_KAFKA__GROUP_ID (kafka.group_id)?"
        ]

    @pytest.mark.parametrize(
        ("written", "meant"),
        [
            ("KAFKA_GROUP_ID", "KAFKA__GROUP_ID"),
            ("KAFKA_SASL_PLAIN_PASSWORD", "KAFKA__SASL_PLAIN_PASSWORD"),
            ("KAFKA_CONSUMER", "KAFKA__CONSUMER"),
            ("KAFKA_CONSUMER_CLIENT_RACK", "KAFKA__CONSUMER__CLIENT_RACK"),
            ("KAFKA_PRODUCER_TRANSACTION_TIMEOUT_MS", "KAFKA__PRODUCER__TRANSACTION_TIMEOUT_MS"),
        ],
    )
    def test_a_variable_that_lacks_an_underscore_is_refused(
        self, file: Path, written: str, meant: str
    ) -> None:
        """It would be ignored in silence; its value, which may be a secret, is not shown."""
        assert problems(file, **{written: "hunter2"}) == [
            f"STREAMDEDUP_{written}: names no option; write STREAMDEDUP_{meant}, with two underscores"
        ]

    def test_a_required_leaf_in_such_a_variable_is_not_also_called_missing(
        self, file: Path
    ) -> None:
        """One fault gives one line, here too."""
        file.write_text(MINIMAL.replace("  group_id: dedup\n", ""))
        (line,) = problems(file, KAFKA_GROUP_ID="x")
        assert line.startswith("STREAMDEDUP_KAFKA_GROUP_ID: names no option; ")

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                "sink.compression: zstd\n",
                "14: sink.compression: must be written as a section: `sink:`, indented below it "
                "`compression:`",
            ),
            (
                "kafka.consumer.client_rack: a\n",
                "14: kafka.consumer.client_rack: must be written as a section: `kafka:`, indented "
                "below it `consumer:`, indented below it `client_rack:`",
            ),
            (
                "delivery.drains: 1\n",
                "14: delivery.drains: is not an option; did you mean delivery.drain_s?",
            ),
        ],
    )
    def test_a_dotted_name_in_a_file_is_to_be_a_section(
        self, file: Path, text: str, expected: str
    ) -> None:
        """It is the name of --set and of our messages, but no name of YAML's."""
        file.write_text(MINIMAL + text)
        assert problems(file) == [f"dedup.yaml:{expected}"]

    def test_a_required_leaf_by_its_dotted_name_is_not_also_called_missing(
        self, file: Path
    ) -> None:
        """Also below its section's beginning, where a client's options stand."""
        file.write_text(MINIMAL.replace("filter:\n  capacity: 1000\n", "filter.capacity: 1000\n"))
        (line,) = problems(file)
        assert line.startswith("dedup.yaml:8: filter.capacity: must be written as a section: ")
        file.write_text(MINIMAL.replace("source:", "  producer.transaction_timeout_ms: 5\nsource:"))
        (line,) = problems(file)
        assert "kafka.producer.transaction_timeout_ms: must be written as a section" in line

    def test_a_secret_by_its_dotted_name_is_refused_as_such(self, file: Path) -> None:
        """A section would be no better a place for it."""
        file.write_text(MINIMAL + "kafka.ssl_password: hunter2\n")
        (line,) = problems(file)
        assert "kafka.ssl_password = ********: a secret must not be written here" in line

    def test_a_misspelt_required_leaf_is_not_also_called_missing(self, file: Path) -> None:
        """One fault gives one line."""
        file.write_text(MINIMAL.replace("group_id", "group.id"))
        assert problems(file) == [
            "dedup.yaml:3: kafka.group.id: is not an option; did you mean kafka.group_id?"
        ]

    def test_all_problems_are_reported_at_once(self, file: Path) -> None:
        """Unknown names, wrong values, missing ones and contradictions of all sources together."""
        file.write_text(
            "kafka:\n"
            "  bootstrap.servers: localhost:9092\n"
            "  security_protocol: SASL_SSL\n"
            "  consumer: {isolation_level: x, acks: all}\n"
            "source:\n"
            "  topic: events\n"
            "filter:\n"
            "  error_rate: 2\n"
            "key:\n"
            "  from: kye\n"
            "sink:\n"
            "  topic: events\n"
        )
        lines = problems(file, "nonsense", "snapshot.keep=0", DELIVERY__DRAIN_S="2h")
        assert [": ".join(line.split(": ")[:2]).split(" = ")[0] for line in lines] == [
            "dedup.yaml:2: kafka.bootstrap.servers",
            "dedup.yaml:4: kafka.consumer.acks",
            "dedup.yaml:4: kafka.consumer.isolation_level",
            "dedup.yaml:8: filter.error_rate",
            "dedup.yaml:10: key.from",
            "dedup.yaml:12: sink.topic",
            "STREAMDEDUP_DELIVERY__DRAIN_S: delivery.drain_s",
            "--set: nonsense",
            "--set: snapshot.keep",
            "dedup.yaml: filter.capacity",
            "dedup.yaml: kafka.group_id",
            "dedup.yaml: kafka.sasl_mechanism",
            "dedup.yaml: snapshot.directory",
        ]

    def test_a_value_that_a_variable_corrects_is_checked_against_the_others(
        self, file: Path
    ) -> None:
        """The file's value is unreadable, the variable's is in force, so its contradictions count."""
        file.write_text(MINIMAL.replace("field: id", "field: !env FIELD"))
        lines = problems(file, "key.from=key", KEY__FIELD="id")
        assert [line.split("; ")[0] for line in lines] == [
            "dedup.yaml:7: key.field: the tag !env is not read",
            "STREAMDEDUP_KEY__FIELD: key.field = 'id': means nothing with key.from: key",
        ]

    def test_a_value_on_the_command_line_that_is_no_yaml_is_named(self, file: Path) -> None:
        """A broken override leads to quotes."""
        assert problems(file, "key.field=[a") == [
            "--set: key.field: is not YAML: expected ',' or ']', but got '<stream end>'; "
            "put the value in quotes"
        ]

    @pytest.mark.parametrize(
        ("override", "name"),
        [("nonsense", "nonsense"), ("kafka.group_id a=b", "kafka.group_id"), ("=x", "KEY")],
    )
    def test_an_override_without_its_parts_shows_the_form(
        self, file: Path, override: str, name: str
    ) -> None:
        """Only the leading name is repeated: the rest may be anything."""
        assert problems(file, override) == [
            f"--set: {name}: is not followed by =; write --set {name}=value"
        ]

    @pytest.mark.parametrize(
        ("override", "remedy"), [pair for pair in WRONG if pair[0].startswith("filter.")]
    )
    def test_an_option_of_the_filter_is_refused_alike_by_itself(
        self, override: str, remedy: str
    ) -> None:
        """What `pipe` takes as an argument has the bounds and the words of the configuration."""
        name, _, written = override.removeprefix("filter.").partition("=")
        with pytest.raises(ValueError, match=re.escape(remedy)):
            filter_option(name, written)

    def test_an_option_of_the_filter_is_read_alike_by_itself(self) -> None:
        """Suffixes and exponents are the configuration's."""
        assert filter_option("capacity", "5M") == 5_000_000
        assert filter_option("error_rate", "1e-3") == 0.001

    def test_long_values_are_cut(self, file: Path) -> None:
        """A message stays readable whatever was written."""
        assert len(problems(file, f"source.topic={'x' * 10_000}")[0]) < 300


REFUSED_OPTIONS = [
    ("consumer.enable_auto_commit", "offsets are committed together with the output"),
    ("consumer.enable.auto.commit", "offsets are committed together with the output"),
    ("consumer.isolation_level", "aborted events must not be judged"),
    ("consumer.auto_offset_reset", "set source.start and source.on_gap instead"),
    ("producer.linger_ms", "set delivery.commit_interval_ms instead"),
    ("consumer.group_id", "set kafka.group_id instead"),
    ("consumer.group_instance_id", "set kafka.group_instance_id instead"),
    ("consumer.max_poll_records", "set delivery.batch_events_max instead"),
    ("consumer.partition_assignment_strategy", "all workers of a group must have the same one"),
    ("consumer.check_crcs", "a damaged byte is never trusted"),
    ("consumer.value_deserializer", "events are copied byte for byte"),
    ("consumer.sasl_plain_password", "set kafka.sasl_plain_password instead"),
    ("consumer.ssl_context", "it is made from kafka.ssl_cafile"),
    ("consumer.exclude_internal_topics", "only source.topic is read"),
    ("producer.transactional_id", "it is named after the output partition"),
    ("producer.acks", "set delivery.guarantee instead"),
    ("producer.enable_idempotence", "set delivery.guarantee instead"),
    ("producer.compression_type", "set sink.compression instead"),
    ("producer.partitioner", "an event that passes goes to the partition of the same number"),
    ("producer.key_serializer", "events are copied byte for byte"),
    ("producer.bootstrap_servers", "set kafka.bootstrap_servers instead"),
    ("producer.loop", "the worker sets it itself"),
    ("producer.api_version", "the worker sets it itself"),
]

UNKNOWN_OPTIONS = [
    ("consumer.session.timeout.ms", "is Kafka's name; write session_timeout_ms"),
    ("consumer.sesion_timeout_ms", "did you mean session_timeout_ms?"),
    (
        "consumer.transaction_timeout_ms",
        "is an option of kafka.producer; set kafka.producer.transaction_timeout_ms",
    ),
    ("producer.batch.size", "set kafka.producer.max_batch_size instead"),
    ("producer.session_timeout_ms", "set kafka.consumer.session_timeout_ms instead"),
    ("consumer.sasl.password", "set kafka.sasl_plain_password instead"),
    ("consumer.zzz", "choose one of those of aiokafka's consumer, or delete it"),
    ("consumer.topics", "is not an option of aiokafka's consumer"),
]

WRONG_OPTIONS = [
    ("consumer.session_timeout_ms=soon", "= 'soon': is not a duration"),
    ("consumer.fetch_max_bytes=64M", "= '64M': has the unknown unit 'M'; did you mean MiB?"),
    ("consumer.client_rack=[a]", "= ['a']: must be a text"),
    ("producer.transaction_timeout_ms=-5", "= '-5': out of range, must be 0 or more"),
    ("producer.transaction_timeout_ms={a: b}", "= {'a': 'b'}: is not a duration"),
]


class TestPassThrough:
    """Options of aiokafka's clients go through, but for those on which the guarantee rests."""

    @pytest.mark.parametrize(("option", "reason"), REFUSED_OPTIONS)
    def test_an_option_of_the_guarantee_is_refused(
        self, file: Path, option: str, reason: str
    ) -> None:
        """The refusal gives the reason and where to set it instead, and shows no value."""
        (line,) = problems(file, f"kafka.{option}=hunter2")
        assert line.startswith(f"--set: kafka.{option}: is refused: ")
        assert reason in line
        assert "hunter2" not in line

    @pytest.mark.parametrize(("option", "hint"), UNKNOWN_OPTIONS)
    def test_an_unknown_option_brings_the_nearest(self, file: Path, option: str, hint: str) -> None:
        """Kafka's names, misspellings and options of the other client are told apart."""
        (line,) = problems(file, f"kafka.{option}=hunter2")
        assert line.startswith(f"--set: kafka.{option}: ")
        assert hint in line
        assert "hunter2" not in line

    @pytest.mark.parametrize(("override", "reason"), WRONG_OPTIONS)
    def test_a_value_of_the_wrong_type_is_refused(
        self, file: Path, override: str, reason: str
    ) -> None:
        """The types are those of aiokafka's own defaults."""
        (line,) = problems(file, f"kafka.{override}")
        assert reason in line

    def test_every_option_of_aiokafka_is_either_passed_or_refused(self, file: Path) -> None:
        """What aiokafka has and we do not refuse is taken; nothing falls between."""
        import inspect

        import aiokafka

        taken = set()
        for client, made in (
            ("consumer", aiokafka.AIOKafkaConsumer),
            ("producer", aiokafka.AIOKafkaProducer),
        ):
            for name in set(inspect.signature(made).parameters) - {"topics"}:
                try:
                    read(file, f"kafka.{client}.{name}=5")
                except ConfigError as error:
                    assert f"kafka.{client}.{name}: is refused: " in str(error)
                else:
                    taken.add(f"{client}.{name}")
        assert {"consumer.session_timeout_ms", "producer.request_timeout_ms"} <= taken
        assert not any("commit" in name or "serializer" in name for name in taken)


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """Return a file that exists."""
    path = tmp_path / "some.pem"
    path.write_text("pem")
    return path


class TestSecurity:
    """Secrets come from the environment or from files, and are shown nowhere."""

    SASL = ("kafka.security_protocol=SASL_SSL", "kafka.sasl_plain_username=me")

    @pytest.mark.parametrize("name", ["sasl_plain_password", "ssl_password"])
    def test_a_secret_written_in_the_file_or_on_the_command_line_is_refused(
        self, file: Path, name: str
    ) -> None:
        """The message says where it belongs and does not repeat it."""
        file.write_text(MINIMAL.replace("source:", f"  {name}: hunter2\nsource:"))
        lines = problems(file, f"kafka.{name}=hunter3")
        belongs = (
            f"kafka.{name} = ********: a secret must not be written here; set "
            f"STREAMDEDUP_KAFKA__{name.upper()} in the environment, or kafka.{name}_file to the "
            "path of a file that holds it"
        )
        assert lines == [f"dedup.yaml:4: {belongs}", f"--set: {belongs}"]

    @pytest.mark.parametrize("leaf", sorted(".".join(path) for path in SECRETS))
    @pytest.mark.parametrize("written", [" hunter2", ": hunter2", " hunter2==", "=!hunter2!x", ""])
    def test_a_secret_in_a_broken_override_is_not_repeated(
        self, file: Path, leaf: str, written: str
    ) -> None:
        """Where the `=` is missing, or the value is no YAML, only the name is told, and where it belongs."""
        (line,) = problems(file, f"{leaf}{written}")
        assert line.startswith(f"--set: {leaf} = ********: a secret must not be written here; set ")
        assert "hunter2" not in line

    def test_a_broken_file_does_not_quote_a_tag(self, file: Path) -> None:
        """A secret may begin like a tag, and is not repeated."""
        file.write_text(MINIMAL.replace("source:", "  ssl_password: !hunter2!x\nsource:"))
        message = refusal(file)
        assert "dedup.yaml:4: is not YAML: a tag with an unknown handle" in message
        assert "hunter2" not in message

    def test_a_secret_from_the_environment_is_used_and_never_shown(self, file: Path) -> None:
        """The password is there for the client, and masked in `show` and `repr`."""
        settings = read(
            file,
            *self.SASL,
            "kafka.sasl_mechanism=SCRAM-SHA-512",
            KAFKA__SASL_PLAIN_PASSWORD="hunter2",  # noqa: S106
        )
        assert settings.kafka.sasl_plain_password is not None
        assert settings.kafka.sasl_plain_password.get_secret_value() == "hunter2"
        shown = show(settings)
        line = "  sasl_plain_password: '********'  # STREAMDEDUP_KAFKA__SASL_PLAIN_PASSWORD\n"
        assert line in shown
        assert "hunter2" not in shown + repr(settings) + str(settings)

    @pytest.mark.parametrize("end", ["", "\n", "\r\n"])
    def test_a_secret_is_read_from_its_file(self, file: Path, tmp_path: Path, end: str) -> None:
        """One line end at the end is not part of the secret; all else is."""
        secret = tmp_path / "password"
        secret.write_bytes(f" hunter2 {end}".encode())
        settings = read(
            file,
            *self.SASL,
            "kafka.sasl_mechanism=PLAIN",
            f"kafka.sasl_plain_password_file={secret}",
        )
        assert settings.kafka.sasl_plain_password is not None
        assert settings.kafka.sasl_plain_password.get_secret_value() == " hunter2 "
        assert "hunter2" not in show(settings) + repr(settings)

    @pytest.mark.parametrize("content", [b"", b"\n", b"\xff"])
    def test_a_file_without_a_secret_is_refused(
        self, file: Path, tmp_path: Path, content: bytes
    ) -> None:
        """An empty or unreadable secret is a mistake, not a password."""
        secret = tmp_path / "password"
        secret.write_bytes(content)
        (line,) = problems(
            file,
            *self.SASL,
            "kafka.sasl_mechanism=PLAIN",
            f"kafka.sasl_plain_password_file={secret}",
        )
        assert "kafka.sasl_plain_password: cannot be read from" in line

    def test_errors_about_other_leaves_show_no_secret(self, file: Path) -> None:
        """A secret appears in no message, not even in one about the leaf beside it."""
        message = refusal(
            file,
            "filter.error_rate=2",
            KAFKA__SASL_PLAIN_PASSWORD="hunter2",  # noqa: S106
        )
        assert "kafka.sasl_plain_password = ********: means nothing with" in message
        message += refusal(file, KAFKA__SASL_PASSWORD="hunter2")  # noqa: S106
        assert "did you mean STREAMDEDUP_KAFKA__SASL_PLAIN_PASSWORD" in message
        assert "hunter2" not in message

    @pytest.mark.parametrize(
        ("overrides", "expected"),
        [
            (
                ["kafka.security_protocol=SASL_SSL"],
                ["kafka.sasl_mechanism: is required with kafka.security_protocol: SASL_SSL"],
            ),
            (
                ["kafka.security_protocol=SASL_SSL", "kafka.sasl_mechanism=PLAIN"],
                [
                    "kafka.sasl_plain_password: is required with kafka.sasl_mechanism: PLAIN; set "
                    "STREAMDEDUP_KAFKA__SASL_PLAIN_PASSWORD or kafka.sasl_plain_password_file",
                    "kafka.sasl_plain_username: is required with kafka.sasl_mechanism: PLAIN",
                ],
            ),
            (
                ["kafka.security_protocol=SASL_PLAINTEXT", "kafka.sasl_mechanism=OAUTHBEARER"],
                ["kafka.sasl_oauth_token_provider: is required with"],
            ),
            (
                [
                    *SASL,
                    "kafka.sasl_mechanism=OAUTHBEARER",
                    "kafka.sasl_oauth_token_provider=my.tokens:make",
                ],
                ["kafka.sasl_plain_username = 'me': means nothing with kafka.sasl_mechanism"],
            ),
            (
                ["kafka.sasl_plain_username=me"],
                [
                    "means nothing with kafka.security_protocol: PLAINTEXT; unset it, or set "
                    "kafka.security_protocol to SASL_SSL or SASL_PLAINTEXT"
                ],
            ),
            (
                ["kafka.ssl_cafile=PEM"],
                ["kafka.ssl_cafile = 'PEM': means nothing with kafka.security_protocol: PLAIN"],
            ),
            (
                ["kafka.ssl_check_hostname=no"],
                ["kafka.ssl_check_hostname = 'no': means nothing with"],
            ),
            (
                ["kafka.security_protocol=SSL", "kafka.ssl_certfile=PEM"],
                ["kafka.ssl_keyfile: is required with kafka.ssl_certfile"],
            ),
            (
                ["kafka.security_protocol=SSL", "kafka.ssl_keyfile=PEM"],
                ["kafka.ssl_certfile: is required with kafka.ssl_keyfile"],
            ),
            (
                ["kafka.security_protocol=SSL", "kafka.ssl_password_file=PEM"],
                ["kafka.ssl_password_file = 'PEM': means nothing without kafka.ssl_keyfile"],
            ),
        ],
    )
    def test_security_must_be_complete_and_to_the_point(
        self, file: Path, pem: Path, overrides: Sequence[str], expected: Sequence[str]
    ) -> None:
        """What a protocol needs must be there, and what it does not use must not."""
        lines = problems(file, *(text.replace("PEM", str(pem)) for text in overrides))
        assert len(lines) == len(expected)
        for line, part in zip(lines, expected, strict=True):
            name = re.sub(r"'[^']*some\.p[^']*'|'[^']*\.\.\.", "'PEM'", line)  # a long one is cut
            assert part in name

    def test_a_secret_is_set_once(self, file: Path, pem: Path) -> None:
        """With both the variable and the file, nobody could tell which is used."""
        (line,) = problems(
            file,
            *self.SASL,
            "kafka.sasl_mechanism=PLAIN",
            f"kafka.sasl_plain_password_file={pem}",
            KAFKA__SASL_PLAIN_PASSWORD="x",  # noqa: S106
        )
        assert "is set, and so is kafka.sasl_plain_password; set one of the two" in line

    def test_the_key_of_a_hash_is_32_hexadecimal_digits(self, file: Path, tmp_path: Path) -> None:
        """From the environment or its file, 16 bytes; they are shown nowhere."""
        digits = "00112233445566778899AAbbccddeeff"
        path = tmp_path / "hash-key"
        path.write_text(f"{digits}\n")
        from_file = read(file, "filter.hash=siphash", f"filter.hash_key_file={path}")
        settings = read(file, "filter.hash=siphash", FILTER__HASH_KEY=digits)
        assert settings.filter.hash_key_bytes == bytes.fromhex(digits)
        assert from_file.filter.hash_key_bytes == bytes.fromhex(digits)
        shown = show(settings) + show(from_file) + repr(settings) + repr(from_file)
        assert "  hash_key: '********'  # STREAMDEDUP_FILTER__HASH_KEY\n" in shown
        assert digits not in shown
        assert read(file).filter.hash_key_bytes == b""

    @pytest.mark.parametrize(
        "wrong",
        ["0123456789abcdef" * 2 + "0", "0123456789abcdeg" * 2, "hunter2"],
        ids=["long", "no digits", "short"],
    )
    def test_a_key_of_a_hash_that_is_none_is_not_repeated(
        self, file: Path, tmp_path: Path, wrong: str
    ) -> None:
        """Of another length, or not of hexadecimal digits: the message tells how to make one, and not what is there."""
        path = tmp_path / "hash-key"
        path.write_text(wrong)
        (line,) = problems(file, "filter.hash=siphash", FILTER__HASH_KEY=wrong)
        assert "filter.hash_key = ********: must be 32 hexadecimal digits (16 random" in line
        assert "as from: openssl rand -hex 16" in line
        (other,) = problems(file, "filter.hash=siphash", f"filter.hash_key_file={path}")
        assert "; hash-key holds something else" in other
        assert wrong not in line + other

    def test_a_key_without_its_hash_is_refused(self, file: Path, pem: Path) -> None:
        """A key that is not used means that the hash was forgotten; and one is set once."""
        digits = "0123456789abcdef" * 2
        pem.write_text(digits)
        (line,) = problems(file, FILTER__HASH_KEY=digits)
        assert "filter.hash_key = ********: means nothing with filter.hash: murmur3; unset" in line
        (line,) = problems(file, f"filter.hash_key_file={pem}")
        assert "filter.hash_key_file = " in line
        assert "set filter.hash: siphash" in line
        twice = ["filter.hash=siphash", f"filter.hash_key_file={pem}"]
        (line,) = problems(file, *twice, FILTER__HASH_KEY=digits)
        assert "is set, and so is filter.hash_key; set one of the two" in line

    def test_complete_security_is_taken(self, file: Path, pem: Path) -> None:
        """TLS with a client certificate, and OAUTHBEARER with a provider, are accepted."""
        settings = read(
            file,
            "kafka.security_protocol=SASL_SSL",
            "kafka.sasl_mechanism=OAUTHBEARER",
            "kafka.sasl_oauth_token_provider=my.tokens:make",
            f"kafka.ssl_cafile={pem}",
            f"kafka.ssl_certfile={pem}",
            f"kafka.ssl_keyfile={pem}",
            "kafka.ssl_check_hostname=false",
            KAFKA__SSL_PASSWORD="x",  # noqa: S106
        )
        assert settings.kafka.ssl_keyfile == pem
        assert settings.kafka.ssl_check_hostname is False


class TestContradictions:
    """Leaves that do not fit together are refused, on whichever of them is at fault."""

    @pytest.mark.parametrize(
        ("overrides", "expected"),
        [
            (["key.field=null"], "key.field: is required with key.from: json; name the field"),
            (
                ["key.from=header", "key.field=null"],
                "key.field: is required with key.from: header; name the header",
            ),
            (["key.from=key"], "key.field = 'id': means nothing with key.from: key; delete it"),
            (["key.from=value"], "key.field = 'id': means nothing with key.from: value"),
            (["key.from=header", "key.field=[a, b]"], "must be one name, not a list"),
            (["key.field=/a~b"], "holds the wrong JSON Pointer '/a~b'; write ~0 for ~"),
            (["key.field=[id, /a~2]"], "holds the wrong JSON Pointer '/a~2'"),
            (
                ["key.on_malformed=dead_letter"],
                "key.on_malformed = 'dead_letter': needs sink.dead_letter_topic",
            ),
            (
                ["filter.capacity=900G"],
                "filter.capacity = '900G': does not fit filter.kind: bloom: it takes 3.09 TiB, and the most is 1 TiB"
                " (with on_full: grow, the first stage gets half of filter.error_rate); set filter.capacity to 291G at"
                " most, or raise filter.error_rate",
            ),
            (
                ["filter.capacity=900G", "filter.on_full=stop"],
                "filter.capacity = '900G': does not fit filter.kind: bloom: it takes 2.94 TiB, and the most is 1 TiB;"
                " set filter.capacity to 305G at most, or raise filter.error_rate",
            ),
            (
                ["filter.kind=bitmap", "filter.capacity=100M"],
                "filter.capacity = '100M': does not fit filter.kind: bitmap: it takes 11.4 TiB, and the most is 1 TiB;"
                " set filter.capacity to 8M at most",
            ),
            (
                ["filter.kind=window", "filter.capacity=500G", "filter.generations=9"],
                "filter.capacity = '500G': does not fit filter.kind: window: it takes ",
            ),
            (
                ["filter.kind=blocked", "filter.error_rate=1e-12"],
                "filter.error_rate = '1e-12': does not fit filter.kind: blocked: its lowest error rate is 1e-09;"
                " raise it, or choose another filter.kind",
            ),
            (
                ["filter.kind=exact", "filter.capacity=1G", "filter.error_rate=1e-15"],
                "filter.error_rate = '1e-15': does not fit filter.kind: exact: with fingerprints of 8 bytes "
                "its error rate is",
            ),
            (
                ["filter.kind=dleft", "filter.capacity=1G", "filter.error_rate=1e-15"],
                "filter.error_rate = '1e-15': does not fit filter.kind: dleft: it takes remainders of 56 bits",
            ),
            (
                ["filter.capacity=100M", "filter.max_size=1KiB"],
                "filter.max_size = '1KiB': is less than the filters start with, which is 377474616B for "
                "filter.capacity at half of filter.error_rate; raise it",
            ),
            (
                ["filter.kind=window", "filter.retention=6ms"],
                "filter.retention = '6ms': is too short for 8 generations: it is split into 7 of at least 1ms each",
            ),
            (
                ["filter.refresh=true"],
                "filter.refresh = 'true': means nothing with filter.kind: bloom",
            ),
            (
                ["key.hash=siphash"],
                "key.hash = 'siphash': differs from filter.hash: murmur3; delete it, and choose the hash with",
            ),
            (
                ["filter.kind=cuckoo", "filter.probe=double"],
                "filter.probe = 'double': means nothing with filter.kind: cuckoo; set probe: "
                "standard, or choose bitmap, bloom, counting",
            ),
            (
                ["filter.hash=siphash"],
                "filter.hash_key: is required with filter.hash: siphash; set "
                "STREAMDEDUP_FILTER__HASH_KEY to 32 hexadecimal digits (16 random bytes), as from: "
                "openssl rand -hex 16; or filter.hash_key_file to a file that holds them",
            ),
            (["sink.topic=events"], "sink.topic = 'events': must differ from source.topic"),
            (
                ["sink.duplicates_topic=events-unique"],
                "sink.duplicates_topic = 'events-unique': must differ from sink.topic",
            ),
            (
                ["sink.dead_letter_topic=events"],
                "sink.dead_letter_topic = 'events': must differ from source.topic",
            ),
        ],
    )
    def test_a_contradiction_is_refused(
        self, file: Path, overrides: Sequence[str], expected: str
    ) -> None:
        """One contradiction gives one line with its remedy."""
        (line,) = problems(file, *overrides)
        assert expected in line

    @pytest.mark.parametrize(
        "overrides",
        [
            ["key.field=/a~0b/~1"],
            ["key.field=~"],
            ["key.from=header", "key.field=/a~b"],
            ["key.from=key", "key.field=null"],
            ["key.field=[id, /user/id]"],
            ["filter.capacity=291G"],
            ["filter.capacity=305G", "filter.on_full=stop"],
            ["filter.kind=cuckoo", "filter.error_rate=1e-15"],
            ["filter.kind=window", "filter.retention=7ms"],
            ["key.hash=murmur3"],
            ["filter.kind=counting", "filter.probe=double"],
        ],
    )
    def test_what_fits_is_taken(self, file: Path, overrides: Sequence[str]) -> None:
        """Pointers with right escapes, headers of any name and keys without a field are fine."""
        if overrides == ["key.field=~"]:
            overrides = ["key.field='~'"]
        assert read(file, *overrides).source.topic == "events"

    def test_malformed_events_go_where_the_topics_allow(self, file: Path) -> None:
        """Not set, `on_malformed` is dead_letter with that topic, else pass; and that is shown."""
        assert read(file).key.on_malformed == "pass"
        assert "  on_malformed: pass  # default\n" in show(read(file))
        with_topic = read(file, "sink.dead_letter_topic=dead")
        assert with_topic.key.on_malformed == "dead_letter"
        kept = read(file, "sink.dead_letter_topic=dead", "key.on_malformed=drop")
        assert kept.key.on_malformed == "drop"


class TestShown:
    """What is effective can be seen, edited with help, and looked up."""

    def test_show_names_the_origin_of_each_value(self, file: Path) -> None:
        """File and line, variable, command line, or default."""
        shown = show(read(file, "snapshot.keep=5", SINK__COMPRESSION="zstd"))
        assert f"  group_id: dedup  # {file}:3\n" in shown
        assert "  compression: zstd  # STREAMDEDUP_SINK__COMPRESSION\n" in shown
        assert "  keep: 5  # --set\n" in shown
        assert "  error_rate: 1e-06  # default\n" in shown

    def test_what_is_shown_can_be_read_again(self, file: Path, tmp_path: Path) -> None:
        """The shown tree is a configuration with the same effect."""
        settings = read(
            file,
            "kafka.consumer={session_timeout_ms: 6s, client_rack: '007'}",
            "key.field=[tenant, '#x: y']",
            "sink.topic='0123'",
            "kafka.client_id='null'",
            "delivery.drain_s=1.5s",
        )
        again = tmp_path / "again.yaml"
        again.write_text(show(settings))
        assert read(again).model_dump() == settings.model_dump()

    def test_a_time_is_shown_with_its_unit(self, file: Path, tmp_path: Path) -> None:
        """Where a bare number would be refused, what is shown has a unit, and is read again."""
        settings = read(
            file, "filter.kind=window", "filter.retention=36h", "filter.max_jump=1500ms"
        )
        shown, again = show(settings), tmp_path / "again.yaml"
        assert "  retention: 36h  # --set\n" in shown
        assert "  max_jump: 1500ms  # --set\n" in shown
        again.write_text(shown)
        assert read(again).filter == settings.filter

    def test_a_contradiction_is_told_once(self, file: Path) -> None:
        """`refresh` of a filter that is no window is one problem, also with exactly_once, which is the default."""
        assert len(problems(file, "filter.refresh=true")) == 1
        (line,) = problems(file, "filter.kind=window", "filter.refresh=true")
        assert "does not work with exactly_once" in line

    @pytest.mark.parametrize("name", ["dedup", "demo"])
    def test_the_examples_are_right(self, name: str) -> None:
        """The files that ship are accepted as they are."""
        settings = load(ROOT / "config" / f"{name}.yaml", environ={})
        guarantee = {"dedup": "exactly_once", "demo": "at_least_once"}[name]
        assert settings.delivery.guarantee == guarantee

    def test_the_example_names_every_option_but_the_rare_ones(self) -> None:
        """dedup.yaml shows every leaf, as a value or in a comment, but for the rarely needed."""
        text = (ROOT / "config" / "dedup.yaml").read_text()
        missing = {
            f"{section}.{name}"
            for section, name, _ in leaves()
            if not re.search(rf"^  (# )?{name}: ", text, re.MULTILINE)
        }
        assert missing == {
            "kafka.client_id",
            "kafka.ssl_check_hostname",
            "kafka.ssl_password_file",
            "kafka.sasl_oauth_token_provider",
            "kafka.record_path",
            *(f"key.email_{rule}" for rule in ("preset", "tags", "dots", "aliases")),
        }

    def test_every_leaf_is_described_and_no_other_is_allowed(self) -> None:
        """The schema tells an editor what each option is for, and knows no others."""
        made = schema()
        assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        for model in [made, *made["$defs"].values()]:
            assert model["additionalProperties"] is False
        described = [leaf["description"] for _, _, leaf in leaves()]
        assert all(text.endswith(".") for text in described)

    def test_every_number_is_bounded(self) -> None:
        """No leaf takes any number whatever."""
        numbers = [
            part
            for _, _, leaf in leaves()
            for part in leaf.get("anyOf", [leaf])
            if part.get("type") in ("integer", "number")
        ]
        assert len(numbers) == 15
        assert all("minimum" in part and "maximum" in part for part in numbers)

    def test_required_leaves_have_an_example(self) -> None:
        """A message about a missing leaf can show how to set it."""
        required = {
            f"{section}.{name}": leaf.get("examples")
            for section, name, leaf in leaves()
            if name in schema()["$defs"][_definition(section)].get("required", [])
        }
        assert len(required) == 5
        assert all(required.values())

    def test_the_schema_requires_a_capacity_and_a_directory_only_where_there_is_a_filter(
        self,
    ) -> None:
        """`filter: null` and `kind: none` take neither, in an editor as in `load`."""
        made = schema()
        assert made["properties"]["filter"]["anyOf"][1] == {"type": "null"}
        assert made["$defs"]["FilterOptions"]["else"] == {"required": ["capacity"]}
        assert made["else"] == {"required": ["snapshot"]}
        assert "snapshot" not in made["required"]

    def test_the_schema_has_no_place_for_secrets(self) -> None:
        """An editor marks a secret in a file as wrong, as `load` does."""
        assert "hash_key" not in schema()["$defs"]["FilterOptions"]["properties"]
        options = schema()["$defs"]["KafkaOptions"]["properties"]
        assert {"sasl_plain_password", "ssl_password"}.isdisjoint(options)
        assert {"sasl_plain_password_file", "ssl_password_file"} <= set(options)

    def test_the_documentation_is_generated_from_the_tree(self) -> None:
        """docs/configuration.md holds the reference as the tree yields it."""
        assert reference_markdown() in (ROOT / "docs" / "configuration.md").read_text()

    def test_reading_settings_imports_nothing_heavy(self, file: Path) -> None:
        """A command that only checks a file starts fast: no numba, numpy or aiokafka."""
        code = (
            "import sys, pathlib; from streamdedup.settings import load, schema, show; "
            "show(load(pathlib.Path(sys.argv[1]), environ={})); schema(); "
            "print(*{'numba', 'numpy', 'aiokafka'} & set(sys.modules))"
        )
        run = subprocess.run(
            [sys.executable, "-c", code, str(file)], check=True, capture_output=True, text=True
        )
        assert run.stdout == "\n"


ONLY_SCREENS = MINIMAL.replace("filter:\n  capacity: 1000\n", "filter: null\n").replace(
    "snapshot:\n  directory: var/snapshots\n", ""
)


@pytest.fixture
def listed(tmp_path: Path) -> str:
    """Return the override that names a block list which can be read; what is in it is not looked at here."""
    path = tmp_path / "block.list"
    path.write_bytes(b"a list")
    return f"blocklist.file={path}"


class TestLists:
    """Lists that are named, and what goes with them."""

    def test_there_are_none_unless_they_are_named(self, file: Path) -> None:
        """Both files are optional."""
        settings = read(file)
        assert (settings.allowlist.file, settings.blocklist.file) == (None, None)

    def test_both_are_read_from_their_sections(self, file: Path, tmp_path: Path) -> None:
        """As any option, with a home directory in the path if need be."""
        for name in ("allow.list", "block.list"):
            (tmp_path / name).write_bytes(b"a list")
        sections = "".join(f"{w}list:\n  file: {tmp_path}/{w}.list\n" for w in ("allow", "block"))
        file.write_text(f"{MINIMAL}{sections}")
        settings = read(file, "sink.blocked_topic=blocked")
        assert settings.allowlist.file == tmp_path / "allow.list"
        assert settings.blocklist.file == tmp_path / "block.list"
        assert settings.sink.blocked_topic == "blocked"

    @pytest.mark.parametrize("which", ["allowlist", "blocklist"])
    def test_a_file_that_is_not_there_is_a_problem(self, file: Path, which: str) -> None:
        """Told with the others by `config check`, before anything is started."""
        lines = problems(file, f"{which}.file=/nowhere/x.list", "sink.topic=events")
        assert any(
            line.startswith(
                f"--set: {which}.file = '/nowhere/x.list': cannot be read: No such file or directory; name a file"
            )
            for line in lines
        )
        assert any("sink.topic" in line for line in lines)

    def test_the_command_that_checks_finds_it(self, file: Path) -> None:
        """`streamdedup config check` ends with status 2."""
        command = [sys.executable, "-m", "streamdedup", "config", "check", str(file)]
        command += ["--set", "blocklist.file=/nowhere/x.list"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 2
        assert "blocklist.file = '/nowhere/x.list': cannot be read" in done.stderr

    @pytest.mark.parametrize("leaf", ["allowlist.file", "sink.blocked_topic"])
    def test_what_goes_with_a_block_list_means_nothing_without(self, file: Path, leaf: str) -> None:
        """An allow list exempts from it, and its topic takes what it blocks."""
        (line,) = problems(file, f"{leaf}={file}" if leaf.endswith("file") else f"{leaf}=blocked")
        assert leaf in line
        assert line.endswith(
            "means nothing without blocklist.file; set blocklist.file, or unset it"
        )

    def test_a_store_is_asked_only_where_there_is_a_list(self, file: Path, listed: str) -> None:
        """And its place means nothing where it is not asked."""
        (line,) = problems(file, "blocklist.on_positive=verify")
        assert "blocklist.on_positive = 'verify': means nothing without blocklist.file" in line
        (line,) = problems(file, listed, "blocklist.exact=/var/lib/x.exact")
        assert "blocklist.exact = '/var/lib/x.exact': means nothing with blocklist.on_pos" in line
        settings = read(file, listed, "blocklist.on_positive=verify", "blocklist.exact=~/x.exact")
        assert settings.blocklist.exact == Path.home() / "x.exact"
        assert read(file, listed).blocklist.on_positive == "drop"

    def test_the_topic_of_blocked_events_is_no_other(self, file: Path, listed: str) -> None:
        """As every topic, it must differ from all others."""
        (line,) = problems(file, listed, "sink.blocked_topic=events-unique")
        assert line.endswith("must differ from sink.topic; name another topic")

    def test_keys_of_several_fields_are_on_no_list(self, file: Path, listed: str) -> None:
        """A list would never match them, without a word; one field in a list is one."""
        (line,) = problems(file, listed, "key.field=[tenant, id]")
        assert "needs keys of one field, but key.field names several" in line
        assert read(file, listed, "key.field=[id]").blocklist.file


class TestNoFilter:
    """`filter: null`: a worker that only screens."""

    def test_it_needs_no_capacity_and_no_snapshots(self, file: Path, listed: str) -> None:
        """Neither is used."""
        file.write_text(ONLY_SCREENS)
        settings = read(file, listed)
        assert settings.filter.kind == "none"
        assert not settings.filter.remembers
        assert settings.filter.hash == "murmur3"
        assert "kind: none  # " in show(settings)

    def test_what_is_shown_can_be_read_again(self, file: Path, listed: str, tmp_path: Path) -> None:
        """With the same meaning."""
        file.write_text(ONLY_SCREENS)
        again = tmp_path / "again.yaml"
        again.write_text(show(read(file, listed)))
        assert read(again).filter == read(file, listed).filter

    def test_what_is_not_in_force_is_not_shown(self, file: Path, listed: str) -> None:
        """Neither the size of a filter that is not there, nor where it would be saved."""
        file.write_text(ONLY_SCREENS)
        tree = yaml.safe_load(show(read(file, listed, "snapshot.keep=5")))
        assert tree["filter"] == {
            "kind": "none",
            "hash": "murmur3",
            "hash_key_file": None,
            "hash_key": None,
        }
        assert "snapshot" not in tree
        assert tree.keys() == sections().keys() - {"snapshot"}

    def test_a_section_that_is_only_empty_is_a_filter_without_a_capacity(
        self, file: Path, listed: str
    ) -> None:
        """Who comments out what stands in it has not asked for no filter."""
        file.write_text(MINIMAL.replace("  capacity: 1000\n", ""))
        (line,) = problems(file, listed)
        assert "filter.capacity: is required" in line

    def test_without_a_block_list_nothing_is_left_to_do(self, file: Path) -> None:
        """Every event would pass: that is told by the line of the `null`."""
        file.write_text(ONLY_SCREENS)
        (line,) = problems(file)
        assert line.startswith("dedup.yaml:8: filter.kind = 'none': leaves nothing to do without")

    @pytest.mark.parametrize(
        ("override", "leaf"),
        [
            ("filter.capacity=5", "capacity"),
            ("filter.error_rate=0.1", "error_rate"),
            ("filter.retention=7d", "retention"),
            ("filter.on_full=warn", "on_full"),
        ],
    )
    def test_what_is_of_a_filter_means_nothing(
        self, file: Path, listed: str, override: str, leaf: str
    ) -> None:
        """It is refused by name, as it would do nothing."""
        file.write_text(ONLY_SCREENS)
        (line,) = problems(file, listed, override)
        assert f"filter.{leaf}" in line
        assert "means nothing with filter.kind: none" in line

    def test_no_event_is_a_duplicate(self, file: Path, listed: str) -> None:
        """So there is no topic for them."""
        file.write_text(ONLY_SCREENS)
        (line,) = problems(file, listed, "sink.duplicates_topic=again")
        assert "sink.duplicates_topic = 'again': means nothing with filter.kind: none" in line

    def test_a_later_null_takes_back_the_filter_but_not_the_hash(
        self, file: Path, listed: str
    ) -> None:
        """What the file says of the filter is void; lists are asked for digests of the same hash."""
        digits = "00112233445566778899aabbccddeeff"
        file.write_text(
            MINIMAL.replace(
                "capacity: 1000", "{capacity: 1000, error_rate: 0.1, hash: siphash}"
            ).replace("filter:\n  ", "filter: ")
        )
        settings = read(file, listed, "filter=null", FILTER__HASH_KEY=digits)
        assert (settings.filter.kind, settings.filter.hash) == ("none", "siphash")
        assert settings.filter.hash_key_bytes == bytes.fromhex(digits)

    def test_a_later_kind_is_a_filter_again(self, file: Path, listed: str) -> None:
        """Leaf by leaf, the later wins."""
        file.write_text(ONLY_SCREENS)
        settings = read(
            file, listed, "filter.kind=exact", "filter.capacity=5", "snapshot.directory=there"
        )
        assert (settings.filter.kind, settings.filter.capacity) == ("exact", 5)


def _definition(section: str) -> str:
    found = schema()["properties"][section]
    reference: str = found.get("anyOf", [found])[0]["$ref"]  # `filter` may be null
    return reference.rpartition("/")[2]


def leaves() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield section, name and schema of every leaf."""
    for section in schema()["properties"]:
        for name, leaf in schema()["$defs"][_definition(section)]["properties"].items():
            yield section, name, leaf
