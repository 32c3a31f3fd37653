"""Where values come from: defaults, file, environment, command line."""

from pathlib import Path

import pytest

from streamdedup.errors import ConfigError
from streamdedup.settings import load, show
from tests.settings.minimal import MINIMAL, read


class TestSources:
    """Defaults, file, environment, command line: the later wins."""

    def test_what_is_not_set_has_its_default(self, file: Path) -> None:
        """The first of the alternatives is the default, and the promise is exactly once."""
        settings = read(file)
        assert settings.delivery.guarantee == "exactly_once"
        assert settings.filter.error_rate == 1e-6
        assert settings.snapshot.keep == 3
        assert settings.kafka.security_protocol == "PLAINTEXT"
        assert settings.key.from_ == "json"

    def test_a_later_source_wins_leaf_by_leaf(self, file: Path) -> None:
        """The environment beats the file, the command line both; other leaves stay."""
        settings = read(
            file,
            "sink.topic=from-set",
            KAFKA__GROUP_ID="from-env",
            SINK__TOPIC="from-env",
            SINK__CREATE_TOPICS="true",
        )
        assert settings.sink.topic == "from-set"
        assert settings.kafka.group_id == "from-env"
        assert settings.sink.create_topics is True
        assert settings.source.topic == "events"

    def test_null_is_the_default_again(self, file: Path) -> None:
        """`null` on the command line and an empty variable take back what the file said."""
        file.write_text(MINIMAL + "  keep: 7\ndelivery:\n  drain_s: 5s\n")
        settings = read(file, "snapshot.keep=null", DELIVERY__DRAIN_S="")
        assert (settings.snapshot.keep, settings.delivery.drain_s) == (3, 30.0)
        assert "  keep: 3  # default\n" in show(settings)

    def test_options_passed_through_are_merged_by_name(self, file: Path) -> None:
        """Each layer may add options of aiokafka's clients, with units, and of the right types."""
        file.write_text(
            MINIMAL.replace(
                "source:",
                "  consumer:\n    fetch_max_bytes: 64MiB\n    client_rack: 1\nsource:",
            )
        )
        settings = read(
            file,
            "kafka.consumer.session_timeout_ms=6000",
            "kafka.producer={retry_backoff_ms: 5, transaction_timeout_ms: 1m}",
            KAFKA__CONSUMER__SESSION_TIMEOUT_MS="5s",
            KAFKA__CONSUMER="{heartbeat_interval_ms: 1s}",
        )
        assert settings.kafka.consumer == {
            "fetch_max_bytes": 67_108_864,
            "client_rack": "1",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 1000,
        }
        assert settings.kafka.producer == {
            "retry_backoff_ms": 5,
            "transaction_timeout_ms": 60_000,
        }
        without = read(file, "kafka.consumer.client_rack=null").kafka.consumer
        assert without == {"fetch_max_bytes": 67_108_864}

    @pytest.mark.parametrize("written", ["a:1,b:2", "[a:1, b:2]", '["a:1","b:2"]'])
    def test_a_list_may_come_from_anywhere(self, file: Path, written: str) -> None:
        """Lists are read from the file, the environment and the command line alike."""
        in_file = file.parent / "listed.yaml"
        in_file.write_text(MINIMAL.replace("localhost:9092", written))
        assert read(in_file).kafka.bootstrap_servers == "a:1,b:2"
        assert read(file, KAFKA__BOOTSTRAP_SERVERS=written).kafka.bootstrap_servers == "a:1,b:2"
        override = f"kafka.bootstrap_servers={written}"
        assert read(file, override).kafka.bootstrap_servers == "a:1,b:2"
        assert read(file, KEY__FIELD="[tenant, id]").key.field == ("tenant", "id")
        key = read(file, "key.field=null", KEY__PARTS="[{header: a}, {field: [b, c]}]").key
        assert (key.headers, key.paths) == (("a",), ("b", "c"))

    def test_an_ipv6_address_in_the_environment_is_no_list(self, file: Path) -> None:
        """Brackets that are part of an address are left alone."""
        settings = read(file, KAFKA__BOOTSTRAP_SERVERS="[::1]:9092")
        assert settings.kafka.bootstrap_servers == "[::1]:9092"

    def test_the_environment_is_taken_as_it_is(self, file: Path) -> None:
        """A variable is text, not YAML: no character in it needs quoting."""
        assert read(file, KAFKA__GROUP_ID="a: #b 'c'").kafka.group_id == "a: #b 'c'"

    def test_an_option_may_be_written_in_lower_case_in_a_variable(self, file: Path) -> None:
        """After the prefix; its value keeps its spaces."""
        assert read(file, source__start="latest").source.start == "latest"
        assert read(file, Kafka__Client_Id=" me ").kafka.client_id == " me "

    def test_an_override_is_read_up_to_its_first_equals_sign(self, file: Path) -> None:
        """Spaces around a name and a value do not count; without a value it is the default; the last wins."""
        assert read(file, " source.start = latest ").source.start == "latest"
        assert read(file, "kafka.client_id=a=b").kafka.client_id == "a=b"
        assert read(file, "source.start=latest", "source.start=").source.start == "earliest"

    def test_a_section_that_is_null_takes_nothing_back(self, file: Path) -> None:
        """It has no options; only a filter may be null as a whole, in a file or on the command line."""
        file.write_text(MINIMAL + "delivery: {drain_s: 5s}\nserver:\n")
        settings = read(file, "delivery=null", FILTER="null", DELIVERY="{drain_s: 7}")
        assert (settings.delivery.drain_s, settings.filter.capacity) == (5.0, 1000)

    def test_variables_that_are_not_options_are_left_alone(self, file: Path) -> None:
        """What has no `__`, and what belongs to the tests or the caches, is not ours to judge.

        Kubernetes makes variables of a service's name, and the service may bear ours. The prefix is in capitals.
        """
        load(file, environ={"streamdedup_source__start": "x"})
        read(
            file,
            CONFIG="x",
            PORT_9092_TCP="x",
            KAFKA_SERVICE_HOST="x",
            KAFKA_PORT="x",
            KAFKA_CONSUMER_SERVICE_PORT="x",
            TEST_BOOTSTRAP="x",
            TEST__X="x",
            CACHE__DIR="x",
        )

    def test_the_file_may_be_named_in_the_environment(self, file: Path) -> None:
        """`$STREAMDEDUP_CONFIG` stands in for -c; without both, the message says so."""
        named = load(None, environ={"STREAMDEDUP_CONFIG": str(file)})
        assert named.kafka.group_id == "dedup"
        assert load(file, environ={"STREAMDEDUP_CONFIG": "none.yaml"}).kafka.group_id == "dedup"
        for environ in ({}, {"STREAMDEDUP_CONFIG": ""}):
            with pytest.raises(ConfigError, match=r"pass -c FILE or set STREAMDEDUP_CONFIG=FILE"):
                load(None, environ=environ)

    def test_settings_themselves_read_no_environment(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only `load` looks at variables, so no stray one changes the tree."""
        monkeypatch.setenv("KAFKA", '{"group_id": "stray"}')
        monkeypatch.setenv("DELIVERY", '{"drain_s": 1}')
        assert read(file).delivery.drain_s == 30.0

    def test_the_tree_is_frozen(self, file: Path) -> None:
        """Nothing changes a setting after it was read."""
        settings = read(file)
        with pytest.raises(ValueError, match="frozen"):
            settings.kafka.group_id = "other"
        with pytest.raises(ValueError, match="frozen"):
            settings.key = settings.key
