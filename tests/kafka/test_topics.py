"""Claims about topics that do not fit: all of it is said at once, each with its remedy, before the group is joined."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from streamdedup.errors import ConfigError
from streamdedup.kafka.options import SinkOptions
from streamdedup.kafka.topics import (
    DEFAULT_MESSAGE_BYTES_MAX,
    RIGHTS_UNKNOWN,
    Topic,
    Topology,
    changed,
    check,
    sink_topics,
)
from tests.rows import table

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


def problems(topics: Topology, sink: SinkOptions = SINK, *, remembers: bool = True) -> list[str]:
    """The lines of the refusal; none where there is no refusal."""
    try:
        check(topics, "events", sink, remembers=remembers)
    except ConfigError as error:
        return str(error).splitlines()
    return []


OUTPUTS = sink_topics(SINK)
MISSING = "does not exist or may not be seen; create it"
STAMPS = ["message_timestamp_after_max_ms", "message_timestamp_before_max_ms"]
POLICIES = ["compact", "compact,delete", "delete,compact"]
COMPACTED = "the topic {} is compacted (cleanup.policy={})"
RIGHTS = [
    ("events", READ),
    ("unique", READ),
    ("unique", WRITE),
    ("again", WRITE),
    ("letters", WRITE),
]
WORDS = {READ: "Read", WRITE: "Write"}


def refused(wrong: Topic) -> list[str]:
    """What is said of the topic that differs from one that fits: one line each with the side topics that use it."""
    return refused_of(wrong.name, topology(wrong))


def refused_of(name: str, topics: Topology) -> list[str]:
    """One line each with the side topics that use the topic `name`; the others are not refused."""
    lines = []
    for sink in (SINK, WITH_BLOCKED, ONLY_OUTPUT):
        found = problems(topics, sink)
        assert len(found) == (name in ["events", *sink_topics(sink)])
        lines += found
    return lines


@table(
    [
        ("events", MISSING),  # it is never made by us
        *((name, f"{MISSING}, or set sink.create_topics: true") for name in OUTPUTS),
    ]
)
def test_what_is_missing_is_one_line(name: str, why: str) -> None:
    """It names the topic, and how it comes to be."""
    assert set(refused_of(name, topology(without=(name,)))) == {f"the topic {name} {why}"}


@table(RIGHTS)
def test_a_right_that_is_missing_is_one_line(name: str, right: int) -> None:
    """The input is read, the output read and written, the side topics written."""
    lines = refused(topic(name, rights=EVERYTHING & ~(1 << right)))
    why = "is missing; grant it (docs/security.md)"
    assert set(lines) == {f"the right {WORDS[right]} on topic {name} {why}"}


@pytest.mark.rule(13)
@table(
    [  # the topic that differs from one that fits, and a part of what is said
        *((topic(name, 3), f"the topic {name} has 3 partitions, events has 4") for name in OUTPUTS),
        *((topic(name, 3), f"add partitions to {name}") for name in OUTPUTS),
        (topic("unique", 3), "If nothing was emitted yet, add partitions to unique"),
        (topic("unique", 3), "set source.on_growth: accept and add partitions to unique"),
        (topic("unique", 3), "make events again with 3"),
        *(
            (topic(name, cleanup_policy=each), COMPACTED.format(name, each))
            for name in OUTPUTS
            for each in POLICIES
        ),
        (topic("unique", cleanup_policy="compact"), "set cleanup.policy=delete"),
        (
            topic("again", max_message_bytes=1000),
            "the topic again has max.message.bytes=1000, less",
        ),
        (topic("again", max_message_bytes=1000), f"than unique ({DEFAULT_MESSAGE_BYTES_MAX})"),
        *(
            (
                topic("again", **{each: 1000}),
                f"the topic again has {each.replace('_', '.')}=1000, less than unique",
            )
            for each in STAMPS
        ),
    ]
)
def test_what_does_not_fit_is_one_line(wrong: Topic, part: str) -> None:
    """It names the topic, what is wrong with it, and the remedy; of whatever side topics are in use."""
    for line in refused(wrong):
        assert part in line
        assert ("make events again" in line) == line.startswith("the topic unique has 3")


@table([["events", *OUTPUTS], ["unique"]])
def test_no_topic_is_asked_for_that_we_would_make(missing: list[str]) -> None:
    """With `create_topics` the others are made as soon as the input is there: what is missing then was not seen."""
    made = SINK.model_copy(update={"create_topics": True})
    assert problems(topology(without=tuple(missing)), made) == [f"the topic {missing[0]} {MISSING}"]


@table(
    [
        [],
        [topic("unique", 5), topic("again", 40)],
        [topic("events", cleanup_policy="compact")],  # only the output is our memory
        [topic("again", max_message_bytes=1000), topic("unique", max_message_bytes=1000)],
        [topic("again", max_message_bytes=1 << 30)],
        *([topic("again", **{each: 1000}), topic("unique")] for each in STAMPS),
        *([topic("again", message_timestamp_type="LogAppendTime", **{each: 1})] for each in STAMPS),
        # The least rights by which we work are enough.
        [topic("events", rights=1 << READ | 1 << DESCRIBE)],
        [topic("unique", rights=1 << READ | 1 << WRITE | 1 << DESCRIBE)],
        [topic(name, rights=1 << WRITE | 1 << DESCRIBE) for name in ("again", "letters")],
    ]
)
def test_what_fits_is_not_refused(changed: list[Topic]) -> None:
    """Nothing to say; what is not known is not held against anybody."""
    assert problems(topology(*changed)) == problems(topology(*changed), WITH_BLOCKED) == []


def test_only_topics_in_use_are_written() -> None:
    """The output, and the side topics that are configured."""
    used = [sink_topics(sink) for sink in (ONLY_OUTPUT, SINK, WITH_BLOCKED)]
    assert used == [["unique"], ["unique", "again", "letters"], ["unique", "letters"]]


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


@table([*((each, False) for each in STAMPS), ("max_message_bytes", True)])
def test_letters_of_duplicates_are_as_large_as_events_and_never_old(
    limit: str, refused: bool
) -> None:
    """They have the broker's time, so limits of time may be narrower than the output's."""
    letters = SINK.model_copy(update={"duplicates_headers": True})
    narrow = topology(topic("again", **{limit: 1000}))
    assert len(problems(narrow)) == 1
    assert len(problems(narrow, letters)) == refused


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


def test_without_a_filter_the_output_may_be_compacted() -> None:
    """Nothing is folded, so nothing is missed that vanishes; the side topics must keep all the same."""
    compacted = topology(topic("unique", cleanup_policy="compact"))
    assert problems(compacted, ONLY_OUTPUT, remembers=False) == []
    (line,) = problems(topology(topic("again", cleanup_policy="compact")), remembers=False)
    assert "the topic again is compacted" in line


class Answering:
    """A client to which a broker lists topics: name -> error code and number of the id; one that leads always."""

    def __init__(self, topics: Mapping[str, tuple[int, int]]) -> None:
        self._rows: list[tuple[Any, ...]] = [
            (error, name, UUID(int=number), False, [(0, 0, 0, 0, [0], [0])], RIGHTS_UNKNOWN, {})
            for name, (error, number) in topics.items()
        ]

    def get_random_node(self) -> int:
        """Any."""
        return 0

    async def send(self, _node: int, _request: object) -> Any:
        """Answer the request for metadata."""
        return SimpleNamespace(API_VERSION=10, topics=self._rows, cluster_id="cluster")


@pytest.mark.parametrize("error", [5, 29])  # LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED
async def test_a_topic_that_tells_nothing_leaves_the_others_under_watch(error: int) -> None:
    """Without a leader, or without the right to see it: it is not deleted, and what became of the others is seen."""
    known = Topology(
        "cluster",
        {name: Topic(name, str(UUID(int=1)), 1, 1) for name in ("mute", "remade", "gone", "same")},
    )
    client = Answering({"mute": (error, 0), "remade": (0, 2), "gone": (3, 0), "same": (0, 1)})
    found = await changed(client, known)
    assert (list(found.missing), list(found.remade)) == (["gone"], ["remade"])
