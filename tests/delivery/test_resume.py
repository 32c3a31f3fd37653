"""Claims about where a shard goes on: what a committed offset counts for, and which contradictions stop."""

from dataclasses import replace
from typing import Any

import pytest

from streamdedup.delivery.resume import (
    PartitionState,
    Resume,
    check_memory,
    growth,
    input_offset,
    is_complete,
    is_outlived,
)
from streamdedup.errors import DeliveryError
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.options import RepartitionOptions, SinkOptions, SourceOptions
from streamdedup.kafka.topics import Topic
from streamdedup.snapshot.header import Identity, Log

NOTE = Note(cluster_id="cluster", input_id="input-id", output_id="output-id", label=50)
FOUND = PartitionState(
    committed=Committed(30, NOTE),
    cluster_id="cluster",
    input_id="input-id",
    output_id="output-id",
    input_start=10,
    input_end=90,
    output_start=0,
    output_end=60,
    has_memory=True,
    partition=1,
    partitions=4,
    others={},
)
UNTOUCHED = replace(FOUND, committed=None, output_end=0, has_memory=False)

SOURCE = SourceOptions(topic="events")
LATEST = SourceOptions(topic="events", start="latest")
SKIP = SourceOptions(topic="events", on_gap="skip")
SINK = SinkOptions(topic="unique")
WIDER = SourceOptions(topic="events", start="latest", on_growth="accept")
ACCEPT = SinkOptions(topic="unique", on_gap="accept")


def at(offset: int, note: Note | None = NOTE, **changes: Any) -> PartitionState:
    """What is found with `offset` committed; the rest as in FOUND but for `changes`."""
    return replace(FOUND, committed=Committed(offset, note), **changes)


# --- without a committed offset ---


@pytest.mark.parametrize(("source", "offset"), [(SOURCE, 10), (LATEST, 90)])
def test_a_birth_begins_where_the_operator_says(source: SourceOptions, offset: int) -> None:
    """No offset, an empty output and no memory of it: `source.start` decides, and is to be committed."""
    assert input_offset(UNTOUCHED, source, SINK) == Resume(offset, True, f"born at {source.start}")


@pytest.mark.parametrize("source", [SOURCE, LATEST])
@pytest.mark.parametrize("trace", [{"output_end": 1}, {"has_memory": True}])
def test_a_lost_offset_is_no_birth(source: SourceOptions, trace: dict[str, Any]) -> None:
    """Where the output or our memory shows that we were here, reading starts at earliest, also with `latest`."""
    found = replace(UNTOUCHED, **trace)
    resume = input_offset(found, source, SINK)
    assert (resume.offset, resume.birth) == (10, False)


# --- with one ---


@pytest.mark.parametrize("offset", [0, 9, 91])
@pytest.mark.rule(5)
def test_an_offset_outside_of_the_input_stops_or_skips(offset: int) -> None:
    """Unread events are gone: it stops, naming offset, range and option, or starts at earliest where told so."""
    with pytest.raises(DeliveryError, match=rf"offset {offset} .* 10 to 90.*source\.on_gap: skip"):
        input_offset(at(offset), SOURCE, SINK)
    resume = input_offset(at(offset), SKIP, SINK)
    assert (resume.offset, resume.birth) == (10, False)
    assert str(offset) in resume.why


@pytest.mark.finding("middle-trimmed")
def test_an_offset_outside_of_the_middle_topic_stops() -> None:
    """Nothing is skipped there, whatever `source.on_gap` says: its events can be copied again."""
    of_middle = SourceOptions(
        topic="middle", on_gap="skip", repartition=RepartitionOptions(topic="middle", partitions=4)
    )
    with pytest.raises(DeliveryError, match=r"outside of the middle topic.* 10 to 90.* to 10, and"):
        input_offset(at(9), of_middle, SINK)


@pytest.mark.parametrize("offset", [30, 5000])
@pytest.mark.parametrize(("leaf", "word"), [("cluster_id", "cluster"), ("input_id", "made again")])
def test_an_offset_of_another_log_is_void(leaf: str, word: str, offset: int) -> None:
    """Committed for another cluster or another input of that name: read from earliest, wherever it points."""
    elsewhere: dict[str, Any] = {leaf: "other"}
    for source in (SOURCE, LATEST):
        resume = input_offset(at(offset, **elsewhere), source, SINK)
        assert (resume.offset, resume.birth) == (10, False)
        assert word in resume.why


def test_on_another_cluster_the_note_says_nothing_of_the_output() -> None:
    """After a move to another cluster neither topic ids nor the label mean anything."""
    moved = at(30, cluster_id="other", input_id="x", output_id="y", output_end=0)
    assert input_offset(moved, SOURCE, SINK).offset == 10


@pytest.mark.finding("output-made-again")
@pytest.mark.parametrize("input_id", ["input-id", "other"])
def test_an_output_that_was_made_again_stops(input_id: str) -> None:
    """Another output id: what was emitted is forgotten, so it stops, naming the topic and a remedy.

    Starting at earliest is safe only over a whole output: an input made again hides no loss of it.
    """
    with pytest.raises(DeliveryError, match=r"unique .*made again.*kafka\.group_id"):
        input_offset(at(30, output_id="other", input_id=input_id), SOURCE, SINK)


@pytest.mark.finding("output-lost-end")
@pytest.mark.parametrize("input_id", ["input-id", "other"])
def test_an_output_that_lost_its_end_stops(input_id: str) -> None:
    """An end below the note's label: committed events are gone, so it stops, naming both offsets."""
    with pytest.raises(DeliveryError, match=r"unique ends at offset 49, but events up to 50 .*"):
        input_offset(at(30, output_end=49, input_id=input_id), SOURCE, SINK)
    assert input_offset(at(30, output_end=50), SOURCE, SINK).offset == 30


def test_an_operators_offset_counts() -> None:
    """Without a note, as after a reset by a tool, the offset counts, whatever the ids; its bounds still hold."""
    strange: dict[str, Any] = {
        "cluster_id": "x",
        "input_id": "y",
        "output_id": "z",
        "output_end": 0,
    }
    assert input_offset(at(77, None, **strange), LATEST, SINK).offset == 77
    with pytest.raises(DeliveryError, match=r"source\.on_gap"):
        input_offset(at(9, None), SOURCE, SINK)


# --- the memory of the output ---


@pytest.mark.parametrize(("label", "start"), [(0, 1), (20, 21), (20, 60)])
def test_an_output_that_was_trimmed_beyond_the_label_stops(label: int, start: int) -> None:
    """Events that no snapshot holds are gone: it stops, naming where the log begins, the label and the option."""
    found = replace(FOUND, output_start=start)
    with pytest.raises(
        DeliveryError, match=rf"at offset {start}, .* from {label} .*sink\.on_gap: accept"
    ):
        check_memory(label, found, SINK)
    with pytest.raises(DeliveryError, match=r"in no snapshot \(WHAT WAS FOUND\)\. Put back one"):
        check_memory(label, found, SINK, search="WHAT WAS FOUND")
    warning = check_memory(label, found, ACCEPT) or ""
    assert f"begins at offset {start}" in warning
    assert "duplicates would pass" in warning


ATOMIC = replace(NOTE, label=20, atomic=True)


@pytest.mark.parametrize(("label", "start"), [(20, 21), (20, 60), (25, 60)])
def test_only_markers_and_aborted_events_can_be_missing_above_the_commits_label(
    label: int, start: int
) -> None:
    """All that was emitted ends where the commit says, and the filter holds it: no gap, whatever is deleted above."""
    found = at(30, ATOMIC, output_start=start)
    assert is_complete(label, found)
    assert check_memory(label, found, SINK) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"committed": None},
        {"committed": Committed(30, None)},
        {"committed": Committed(30, replace(ATOMIC, label=21))},
        {"committed": Committed(30, replace(ATOMIC, atomic=False))},
        {"committed": Committed(30, replace(ATOMIC, output_id=None))},
        {"output_id": None},
        {"cluster_id": "other"},
    ],
    ids=["none", "an operator's", "above", "after the output", "unnamed", "untold", "elsewhere"],
)
def test_without_such_a_commit_whatever_was_deleted_is_a_gap(changes: dict[str, Any]) -> None:
    """Nothing says that no event of ours stood there: no note, a higher label, no transaction, perhaps another log."""
    found = replace(at(30, ATOMIC, output_start=21), **changes)
    assert not is_complete(20, found)
    with pytest.raises(DeliveryError, match="begins at offset 21"):
        check_memory(20, found, SINK)


@pytest.mark.parametrize("sink", [SINK, ACCEPT])
def test_a_filter_ahead_of_its_output_stops(sink: SinkOptions) -> None:
    """A label beyond the output's end holds keys that are not in it: no option accepts that."""
    with pytest.raises(
        DeliveryError, match="ends at offset 60, but its filter has folded it up to 61"
    ):
        check_memory(61, FOUND, sink)


@pytest.mark.parametrize(
    ("settings", "watermark", "outlived"),
    [
        (
            {"retention.ms": "1000"},
            9_500,
            True,
        ),  # deleted is what is older than 9,000; remembered from 9,000 on
        ({"retention.ms": "1000"}, 9_499, False),
        ({"retention.ms": "1000"}, None, False),
        ({"retention.ms": "1000", "retention.bytes": "1"}, 9_500, False),
        ({"retention.ms": "-1"}, 9_500, False),  # nothing is deleted by time: somebody did
        ({}, 9_500, False),  # the broker does not tell
    ],
)
def test_what_retention_deletes_may_be_older_than_the_window(
    settings: dict[str, str], watermark: int | None, outlived: bool
) -> None:
    """Events that no window would know any more are no gap; whatever else may be missing is one."""
    output = Topic("out", None, 1, 1, settings=settings)
    assert is_outlived(output, 10_000, watermark, 500) == outlived


# --- growth of the input ---


def of(partitions: int, born: int | None = None, input_id: str = "input-id") -> Note:
    """The note of a commit at which the input had so many partitions."""
    return replace(NOTE, partitions=partitions, born=born or partitions, input_id=input_id)


@pytest.mark.finding("input-grown")
@pytest.mark.parametrize(
    "found",
    [
        at(30, of(3)),
        at(30, None, others={0: of(3)}),
        replace(UNTOUCHED, others={0: of(4), 2: of(3)}),
    ],
    ids=["own note", "moved by a tool", "new partition"],
)
def test_an_input_that_has_grown_is_refused(found: PartitionState) -> None:
    """Whoever tells of fewer partitions than there are: this partition's commit, or another's."""
    with pytest.raises(DeliveryError, match=r"from 3 to 4 partitions.*source\.on_growth: accept"):
        growth(found, SOURCE)
    warning = growth(found, WIDER)
    assert warning is not None
    assert "duplicates pass" in warning


def saved(
    partitions: int, partition: int = 1, input_id: str | None = "input-id", **other: str
) -> Log:
    """What the newest snapshot of a partition says, of an input that had so many partitions."""
    ids: Any = {"cluster_id": "cluster", "topic_id": "output-id", **other}
    identity = Identity(
        hash="siphash",
        hash_check="",
        key={},
        normalize="none",
        filter={},
        topic="unique",
        partition=partition,
        partitions=partitions,
        **ids,
    )
    return Log(identity, 50, 1, None, input_id)


EMITTED = replace(FOUND, committed=None)  # the offsets went with the input


@pytest.mark.finding("input-remade")
@pytest.mark.parametrize(
    ("found", "before"),
    [
        (at(30, of(6)), 6),
        (at(30, of(3, input_id="another")), 3),
        (replace(EMITTED, snapshots=[saved(6, input_id="another")]), 6),
        (replace(EMITTED, snapshots=[saved(3, input_id="another")]), 3),
        (replace(EMITTED, snapshots=[saved(6, input_id=None)]), 6),
        (replace(UNTOUCHED, snapshots=[saved(3, 0, "another"), saved(4, 2, "another")]), 3),
        (replace(EMITTED, others={0: of(6, input_id="another")}), 6),
        (replace(EMITTED, beyond=[4, 7]), 8),
    ],
    ids=[
        "fewer",
        "more, made again",
        "fewer, by the snapshot",
        "more, by the snapshot",
        "an older snapshot",
        "another's snapshot",
        "another's note",
        "the output alone",
    ],
)
def test_another_number_of_partitions_than_the_memory_has_is_refused(
    found: PartitionState, before: int
) -> None:
    """Fewer, or more where the input was made again: what shows it need not name this input."""
    text = (
        rf"events has 4 partitions, and what was emitted is of {before}: .* again with {before} p"
    )
    with pytest.raises(DeliveryError, match=text):
        growth(found, SOURCE)
    warning = growth(found, WIDER)
    assert warning is not None
    assert "duplicates pass" in warning


@pytest.mark.parametrize("partition", [2, 3])
@pytest.mark.rule(14)
def test_a_partition_that_is_younger_than_the_group_is_read_from_its_start(partition: int) -> None:
    """`start: latest` is about the group's birth: afterwards nothing is skipped, however late it is assigned."""
    others = {0: of(4, born=3)}
    found = replace(UNTOUCHED, partition=partition, others=others)
    resume = input_offset(found, WIDER, SINK)
    assert (resume.offset, resume.birth) == ((10, True) if partition == 3 else (90, True))
    assert found.born == 3
