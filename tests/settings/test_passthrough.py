"""Options of aiokafka's clients that go through, and those that are refused."""

from pathlib import Path

import pytest

from streamdedup.errors import ConfigError
from tests.rows import every
from tests.settings.minimal import problems, read

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
    ("consumer.exclude_internal_topics", "only the topics of source are read"),
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
    ("consumer.session_timeout_ms=soon", ": is not a duration"),
    ("consumer.fetch_max_bytes=64M", "= '64M': has the unknown unit 'M'; did you mean MiB?"),
    ("consumer.client_rack=[a]", "= a list: must be a text"),
    ("producer.transaction_timeout_ms=-5", "= '-5': out of range, must be 0 or more"),
    ("producer.transaction_timeout_ms={a: b}", "= a mapping: is not a duration"),
]


class TestPassThrough:
    """Options of aiokafka's clients go through, but for those on which the guarantee rests."""

    def test_an_option_that_does_not_go_through_has_a_reason(self, file: Path) -> None:
        """If it is refused, where to set it instead; Kafka's names and misspellings bring the nearest. No value."""

        def check(row: tuple[str, str]) -> None:
            option, reason = row
            (line,) = problems(file, f"kafka.{option}=hunter2")
            assert line.startswith(f"--set: kafka.{option}: ")
            assert (": is refused: " in line) == (row in REFUSED_OPTIONS)
            assert reason in line
            assert "hunter2" not in line

        every([*REFUSED_OPTIONS, *UNKNOWN_OPTIONS], check)

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
