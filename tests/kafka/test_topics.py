"""Claims about topics that do not fit: all of it is said at once, each with its remedy, before the group is joined."""

from collections.abc import Mapping

import pytest

from streamdedup.errors import ConfigError
from streamdedup.kafka.options import SinkOptions
from streamdedup.kafka.topics import (
    DEFAULT_MESSAGE_BYTES_MAX,
    RIGHTS_UNKNOWN,
    Topic,
    Topology,
    check,
    sink_topics,
)

SINK = SinkOptions(topic="unique", duplicates_topic="again", dead_letter_topic="letters")
WITH_BLOCKED = SinkOptions(topic="unique", blocked_topic="letters")
ONLY_OUTPUT = SinkOptions(topic="unique")
EVERYTHING = (1 << 13) - 1
READ, WRITE, DESCRIBE = 3, 4, 8  # Kafka's codes of AclOperation


def topic(
    name: str, partitions: int = 4, rights: int = RIGHTS_UNKNOWN, **settings: str | int
) -> Topic:
    """A topic; `cleanup_policy="compact"` sets `cleanup.policy`."""
    dotted = {key.replace("_", "."): str(value) for key, value in settings.items()}
    return Topic(name, f"{name}-id", partitions, 3, rights, dotted)


def topology(*changed: Topic, without: tuple[str, ...] = ()) -> Topology:
    """Four topics that fit, but for `changed` and `without`."""
    found = {
        name: topic(name, cleanup_policy="delete")
        for name in ("events", "unique", "again", "letters")
    }
    found |= {one.name: one for one in changed}
    return Topology("cluster", {name: one for name, one in found.items() if name not in without})


def problems(topics: Topology, sink: SinkOptions = SINK) -> list[str]:
    """The lines of the refusal; none where there is no refusal."""
    try:
        check(topics, "events", sink)
    except ConfigError as error:
        return str(error).splitlines()
    return []


def test_what_fits_is_not_refused() -> None:
    """As many partitions, or more, in topics that are there: nothing to say."""
    assert problems(topology()) == []
    assert problems(topology(topic("unique", 5), topic("again", 40))) == []


def test_only_topics_in_use_are_looked_at() -> None:
    """A side topic that is not configured need not exist."""
    assert problems(topology(without=("again", "letters")), ONLY_OUTPUT) == []
    assert sink_topics(ONLY_OUTPUT) == ["unique"]
    assert sink_topics(SINK) == ["unique", "again", "letters"]


@pytest.mark.parametrize("name", ["unique", "again", "letters"])
def test_a_missing_output_is_named_with_both_remedies(name: str) -> None:
    """Every topic that is written must be there, or be made by us on demand."""
    (line,) = problems(topology(without=(name,)))
    assert f"the topic {name} does not exist" in line
    assert "create it, or set sink.create_topics: true" in line


def test_a_missing_input_is_never_made_by_us() -> None:
    """It is named; the remedy is the operator's alone."""
    (line,) = problems(topology(without=("events",)))
    assert "the topic events does not exist" in line
    assert line.endswith("create it")


def test_without_the_input_no_topic_is_asked_for_that_we_would_make() -> None:
    """With `create_topics` the others are made as soon as the input is there: only that one is the operator's."""
    made = SINK.model_copy(update={"create_topics": True})
    (line,) = problems(topology(without=("events", "unique", "again", "letters")), made)
    assert line == "the topic events does not exist or may not be seen; create it"
    (line,) = problems(topology(without=("unique",)), made)  # it was made, and is not seen
    assert line == "the topic unique does not exist or may not be seen; create it"


@pytest.mark.parametrize("name", ["unique", "again", "letters"])
def test_too_few_partitions_are_named_with_both_counts(name: str) -> None:
    """Events keep their partition, so what is written needs as many as what is read."""
    (line,) = problems(topology(topic(name, 3)))
    assert f"the topic {name} has 3 partitions, events has 4" in line
    assert f"add partitions to {name}" in line
    assert ("make events again with 3" in line) == (name == "unique")


def test_an_output_that_is_remembered_is_not_just_widened() -> None:
    """An input with more partitions moves keys, so the advice names what happens to those that were emitted."""
    (line,) = problems(topology(topic("unique", 3)))
    assert "If nothing was emitted yet, add partitions to unique" in line
    assert "set source.on_growth: accept and add partitions to unique" in line


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_compacted_output_is_refused(policy: str) -> None:
    """What is compacted away would be forgotten by a fold."""
    (line,) = problems(topology(topic("unique", cleanup_policy=policy)))
    assert f"the topic unique is compacted (cleanup.policy={policy})" in line
    assert "set cleanup.policy=delete" in line


def test_an_input_may_be_compacted() -> None:
    """Only the output is our memory."""
    assert problems(topology(topic("events", cleanup_policy="compact"))) == []
    assert problems(topology(topic("unique", cleanup_policy="delete"))) == []


def test_duplicates_must_fit_where_they_go() -> None:
    """A duplicates topic that takes less than the output would refuse a batch for ever."""
    (line,) = problems(topology(topic("again", max_message_bytes=1000)))
    wide = f"less than unique ({DEFAULT_MESSAGE_BYTES_MAX})"
    assert f"the topic again has max.message.bytes=1000, {wide}" in line
    same = {"max_message_bytes": 1000}
    assert problems(topology(topic("again", **same), topic("unique", **same))) == []
    assert problems(topology(topic("again", max_message_bytes=1 << 30))) == []


@pytest.mark.parametrize(
    "setting", ["message_timestamp_after_max_ms", "message_timestamp_before_max_ms"]
)
def test_duplicates_must_fit_by_their_timestamps(setting: str) -> None:
    """What the output takes, the duplicates topic takes; one that the broker stamps takes any."""
    (line,) = problems(topology(topic("again", **{setting: 1000})))
    assert f"the topic again has {setting.replace('_', '.')}=1000, less than unique" in line
    unknown = topology(topic("again", **{setting: 1000}), topic("unique"))
    assert problems(unknown) == []
    by_broker = topic("again", message_timestamp_type="LogAppendTime", **{setting: 1000})
    assert problems(topology(by_broker)) == []


@pytest.mark.parametrize("name", ["again", "letters"])
def test_a_compacted_side_topic_is_refused(name: str) -> None:
    """It refuses events without a key, and a transaction with one of them could never commit."""
    (line,) = problems(topology(topic(name, cleanup_policy="compact,delete")))
    assert f"the topic {name} is compacted (cleanup.policy=compact,delete)" in line


@pytest.mark.parametrize(
    ("name", "missing", "right"),
    [
        ("events", READ, "Read"),
        ("unique", READ, "Read"),
        ("unique", WRITE, "Write"),
        ("again", WRITE, "Write"),
        ("letters", WRITE, "Write"),
    ],
)
def test_a_missing_right_is_named(name: str, missing: int, right: str) -> None:
    """The input is read, the output read and written, the side topics written."""
    (line,) = problems(topology(topic(name, rights=EVERYTHING & ~(1 << missing))))
    assert line == f"the right {right} on topic {name} is missing; grant it (docs/security.md)"


@pytest.mark.parametrize(
    ("name", "needed"),
    [("events", [READ]), ("unique", [READ, WRITE]), ("again", [WRITE]), ("letters", [WRITE])],
)
def test_no_more_rights_are_asked_for_than_needed(name: str, needed: list[int]) -> None:
    """The least rights by which we work are enough; unknown ones are not held against anybody."""
    rights = sum(1 << operation for operation in [*needed, DESCRIBE])
    assert problems(topology(topic(name, rights=rights))) == []
    assert problems(topology(topic(name, rights=RIGHTS_UNKNOWN))) == []


def test_everything_is_said_at_once() -> None:
    """Rights, missing topics, partitions and compaction: one refusal, each problem once."""
    lines = problems(
        topology(
            topic("events", rights=1 << DESCRIBE),
            topic("unique", 2, 1 << DESCRIBE, cleanup_policy="compact"),
            topic("again", 1),
            without=("letters",),
        )
    )
    expected = [
        "right Read on topic events",
        "right Read on topic unique",
        "right Write on topic unique",
        "topic letters does not exist",
        "topic unique has 2 partitions",
        "topic again has 1 partitions",
        "topic unique is compacted",
    ]
    assert len(lines) == len(expected)
    for part in expected:
        assert sum(part in line for line in lines) == 1, (part, lines)


def test_a_side_topic_that_serves_twice_is_named_once() -> None:
    """Duplicates and dead letters may go to one topic; what is wrong with it is one problem."""
    both = SinkOptions(topic="unique", duplicates_topic="side", dead_letter_topic="side")
    assert len(problems(topology(), both)) == 1


@pytest.mark.parametrize(
    ("settings", "limit"), [({}, DEFAULT_MESSAGE_BYTES_MAX), ({"max.message.bytes": "7"}, 7)]
)
def test_the_size_limit_is_the_topics_or_kafkas(settings: Mapping[str, str], limit: int) -> None:
    """Where the broker does not tell, Kafka's default is the limit."""
    assert Topic("t", None, 1, 1, settings=settings).bytes_max == limit


# --- lists ---


def test_the_topic_of_blocked_events_is_checked_as_the_other_side_topics() -> None:
    """It must be there, have as many partitions as the input, and keep what it is given."""
    assert sink_topics(WITH_BLOCKED) == ["unique", "letters"]
    assert problems(topology(), WITH_BLOCKED) == []
    (line,) = problems(topology(without=("letters",)), WITH_BLOCKED)
    assert "the topic letters does not exist" in line
    (line,) = problems(topology(topic("letters", 3)), WITH_BLOCKED)
    assert "the topic letters has 3 partitions, events has 4" in line
    (line,) = problems(topology(topic("letters", cleanup_policy="compact")), WITH_BLOCKED)
    assert "the topic letters is compacted" in line


def test_without_a_filter_the_output_may_be_compacted() -> None:
    """Nothing is folded, so nothing is missed that vanishes; the side topics must keep all the same."""
    compacted = topology(topic("unique", cleanup_policy="compact"))
    check(compacted, "events", ONLY_OUTPUT, remembers=False)
    with pytest.raises(ConfigError, match="the topic again is compacted"):
        check(topology(topic("again", cleanup_policy="compact")), "events", SINK, remembers=False)
