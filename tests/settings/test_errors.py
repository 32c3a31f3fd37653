"""What is refused, and the message: place, name, value if it cannot be a secret, and remedy."""

import re
from pathlib import Path

import pytest
import yaml

from streamdedup.settings import filter_option
from streamdedup.settings.tree import LEAVES, PASS_THROUGH, KeyPath
from tests.rows import every
from tests.settings.minimal import MINIMAL, problems

WRONG = [
    (
        "kafka.bootstrap_servers=a:b:c",
        "the address is wrong; write host:port, several separated by commas",
    ),
    ("kafka.bootstrap_servers=SSL://a:9092", "write host:port, several separated by commas"),
    ("kafka.bootstrap_servers=a:99999", "the address is wrong"),
    (
        "kafka.bootstrap_servers=a:1,127.0.0.1",
        "its address 2, of 2, has no port; write host:port, as in localhost:9092",
    ),
    ("kafka.bootstrap_servers='[::1]'", "the address has no port"),
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
    ("key.parts=many", "must be a list of mappings, each with header or field"),
    ("key.parts=[]", "must be a list of mappings, each with header or field"),
    ("key.parts=[a]", "must be a list of mappings, each with header or field"),
    ("key.parts=[{heder: a}]", "must be a list of mappings, each with header or field"),
    ("key.parts=[{field: [a, [b]]}]", "must be a list of mappings, each with header or field"),
    ("key.parts=[{field: ''}]", "must not be empty"),
    ("key.normalize=mail", "must be one of none, trim, lowercase, email, url"),
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
    ("source.headers_max=0", "out of range, must be 1 to 1M headers"),
    ("source.headers_bytes_max=2GiB", "out of range, must be 1KiB to 1GiB"),
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
    ("snapshot.keep=0", "out of range, must be 1 to 100 snapshots"),
    ("snapshot.interval_s=99ms", "out of range, must be 100ms to 1d"),
    ("kafka.give_up_after_s=0", "out of range, must be "),
    ("source.on_damaged=pass", "must be one of stop, skip"),
    ("source.on_growth=yes", "must be one of "),
    ("key.format=xml", "must be one of json, "),
    ("key.framing=confluent", "must be one of auto, "),
    ("sink.topic=a/b", "must be 1 to 249 of the characters"),
    ("sink.on_rejected=drop", "must be one of "),
    ("delivery.max_in_flight=0", "out of range, must be 1 to 100"),
    ("delivery.max_in_flight=101", "out of range, must be 1 to 100"),
    ("delivery.open_transaction_s=500ms", "out of range, must be 1s to "),
    ("server.host=''", "must not be empty"),
    ("server.port=-1", "must be a number from 0 to 65535"),
    ("server.port=65536", "must be a number from 0 to 65535"),
    ("server.probe_port=65536", "must be a number from 0 to 65535"),
    ("server.hosts=[http://a]", "has a name that no host has"),
    ("server.hosts=['a:80']", "has a name that no host has"),
    ("server.hosts=['*.example.org']", "has a name that no host has"),
    ("server.peers=[dedup-headless]", "has a peer without a port"),
    ("server.peers=['a:9464', 'b:0']", "has a peer without a port"),
    ("server.peers=['http://a:9464']", "has a name that no host has"),
    ("server.peers=['::1:9464']", "has a name that no host has"),
    ("server.token_file=/none", "cannot be read: No such file"),
]

MAYBE_SECRET = [
    *("a:b:c", "SSL://a:9092", "a:99999", "a:1,127.0.0.1", "'[::1]'", "a/b", "a b", ".."),
    *("a.b.c", "a-b:c", "/none.pem", "/none", "many", "maybe", "perhaps"),
    *("TLS", "GSSAPI", "newest", "keep", "accept", "md5", "skip", "fuse", "enhanced", "decay"),
    *("never", "brotli", "pass", "xml", "confluent", "drop"),
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
    ("key.path", "did you mean key.parts?"),
    ("key.pfad", "see `streamdedup config schema`"),
    ("filter.capacty", "did you mean filter.capacity?"),
    ("delivery.commit-interval-ms", "did you mean delivery.commit_interval_ms?"),
    ("kafka.group_id.x", "did you mean kafka.group_id?"),
    ("zzzzzz", "see `streamdedup config schema`"),
    ("source.repartition.topik", "did you mean source.repartition.topic?"),
    ("source.repartition.partition", "did you mean source.repartition.partitions?"),
    ("source.repartition.max_unread", "did you mean source.repartition.unread_max?"),
    ("source.repartition_topic", "did you mean source.repartition.topic?"),
    ("source.repartition.topic.name", "did you mean source.repartition.topic?"),
    ("source.partitions", "did you mean source.repartition.partitions?"),
    ("source.repartitions", "did you mean source.repartition?"),
    ("repartition.topic", "did you mean source.repartition.topic?"),
    ("repartition", "did you mean source.repartition?"),
]


class TestRefusals:
    """Every message names the place, the key, the value if it cannot be a secret, and the remedy; all come at once."""

    def test_a_wrong_value_is_refused(self, file: Path) -> None:
        """A value out of its type or range is refused with what is allowed, wherever it stands."""

        def check(row: tuple[str, str]) -> None:
            override, remedy = row
            file.write_text(MINIMAL)
            leaf, _, written = override.partition("=")
            lines = problems(file, override)
            assert len(lines) == 1
            kinds = {"[": "a list", "{": "a mapping", "'": "''"}
            given = kinds.get(written[:1], f"'{written}'")
            quoted = "" if written in MAYBE_SECRET else f" = {given}"
            assert lines[0].startswith(f"--set: {leaf}{quoted}: ")
            assert remedy in lines[0]
            section, name = leaf.split(".")
            tree = yaml.safe_load(MINIMAL)
            beside = tree.pop(section, {}) | {name: written}
            beside[name] = beside.pop(name)
            text = yaml.safe_dump(tree) + f"{section}:\n"
            text += "".join(f"  {option}: {value}\n" for option, value in beside.items())
            file.write_text(text)
            assert problems(file) == [
                lines[0].replace("--set:", f"dedup.yaml:{text.count(chr(10))}:")
            ]

        every(WRONG, check)

    def test_every_leaf_refuses_a_mapping(self, file: Path) -> None:
        """By its name, in the file as on the command line. A secret is refused there, whatever it is."""

        def check(leaf: KeyPath) -> None:
            *above, name = leaf
            lines = problems(file, f"{'.'.join(leaf)}={{a: b}}")
            assert any(line.startswith(f"--set: {'.'.join(leaf)}") for line in lines)
            tree = yaml.safe_load(MINIMAL)
            at = tree
            for part in above:
                at = at.setdefault(part, {})
            at[name] = {"a": "b"}
            other = file.with_name("other.yaml")
            other.write_text(yaml.safe_dump(tree))
            pattern = rf"other\.yaml:\d+: {re.escape('.'.join(leaf))}\b"
            assert any(re.match(pattern, line) for line in problems(other))

        every([leaf for leaf in LEAVES if leaf not in PASS_THROUGH], check)

    def test_an_unknown_name_brings_the_nearest(self, file: Path) -> None:
        """Our names, aiokafka's and Kafka's dotted ones lead to the right leaf, without values.

        The value, which may be a secret, is hidden.
        """

        def check(row: tuple[str, str]) -> None:
            name, hint = row
            assert problems(file, f"{name}=hunter2") == [
                f"--set: {name}: is not an option; {hint}"
                + (" for what there is, or delete it" if "schema" in hint else "")
            ]

        every(UNKNOWN, check)

    @pytest.mark.parametrize("name", [r"a\0b", r"\uD83E", "x" * 300, f"a/{'é' * 128}/b"])
    @pytest.mark.parametrize("option", ["snapshot.directory", "blocklist.exact"])
    def test_a_path_that_no_file_can_have_is_refused(
        self, file: Path, option: str, name: str
    ) -> None:
        """Before anything starts."""
        lines = problems(file, f'{option}="{name}"')
        assert any(line.startswith(f"--set: {option}: has a ") for line in lines), lines

    @pytest.mark.parametrize("name", ["foo", "filter.foo", "foo.bar_baz", "kafka.consumer.foo"])
    def test_a_word_before_the_equals_sign_is_named(self, file: Path, name: str) -> None:
        """It was typed as a name. What else stands there may be a secret, and is hidden, as it is in a file."""
        (line,) = problems(file, f"{name}=1")
        assert line.startswith(f"--set: {name}: is not an option")
        for secret in ("hunter2", "Hunter", "c2VjcmV0", "h-u-n", "x" * 65):
            assert secret not in "".join(problems(file, f"{name}.{secret}=1"))
            assert secret not in "".join(problems(file, f"{secret}==1"))

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
            ("SOURCE_REPARTITION", "SOURCE__REPARTITION"),
            ("SOURCE_REPARTITION_UNREAD_MAX", "SOURCE__REPARTITION__UNREAD_MAX"),
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
            "--set: KEY",
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
            "dedup.yaml:7: key.field: a tag is not read",
            "STREAMDEDUP_KEY__FIELD: key.field: means nothing with key.from: key",
        ]

    def test_a_value_on_the_command_line_that_is_no_yaml_is_named(self, file: Path) -> None:
        """A broken override leads to quotes."""
        assert problems(file, "key.field=[a") == [
            "--set: key.field: is not YAML: expected ',' or ']', but got '<stream end>'; "
            "put the value in quotes"
        ]

    def test_a_value_that_is_nested_without_end_is_refused(self, file: Path) -> None:
        """Wherever it is written, and however deep the interpreter could go."""
        [problem] = problems(file, "kafka.consumer=" + "[" * 500)
        assert problem == "--set: kafka.consumer: is nested too deeply; put the value in quotes"

    @pytest.mark.parametrize(
        ("override", "name"),
        [("nonsense", "KEY"), ("kafka.group_id a=b", "kafka.group_id"), ("=x", "KEY")],
    )
    def test_an_override_without_its_parts_shows_the_form(
        self, file: Path, override: str, name: str
    ) -> None:
        """Only the leading name is repeated: the rest may be anything."""
        assert problems(file, override) == [
            f"--set: {name}: is not followed by =; write --set {name}=value"
        ]

    def test_an_option_of_the_filter_is_refused_alike_by_itself(self) -> None:
        """What `pipe` takes as an argument has the bounds and the words of the configuration."""

        def check(row: tuple[str, str]) -> None:
            name, _, written = row[0].removeprefix("filter.").partition("=")
            with pytest.raises(ValueError, match=re.escape(row[1])):
                filter_option(name, written)

        every([row for row in WRONG if row[0].startswith("filter.")], check)

    def test_an_option_of_the_filter_is_read_alike_by_itself(self) -> None:
        """Suffixes and exponents are the configuration's."""
        assert filter_option("capacity", "5M") == 5_000_000
        assert filter_option("error_rate", "1e-3") == 0.001

    def test_a_message_is_short_however_long_the_value(self, file: Path) -> None:
        """It stays readable whatever was written."""
        assert len(problems(file, f"source.topic={'x' * 10_000}")[0]) < 300
