"""Claims about the committed offset and its note: what is read back, and what an answer of the broker means."""

import asyncio
import json
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    NotCoordinatorForGroupError,
)
from aiokafka.protocol.commit import OffsetFetchRequest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.kafka import offsets
from streamdedup.kafka.client.protocol import StableOffsetFetch
from streamdedup.kafka.offsets import (
    Committed,
    Note,
    UndecidedError,
    committed_all,
    supports_stable_offsets,
)
from tests.rows import table

NOTE = Note(cluster_id="cluster", input_id="input-id", output_id="output-id", label=50)
LOADING, NOT_COORDINATOR, NOT_AUTHORIZED, UNSTABLE = 14, 16, 30, 88

ids = st.none() | st.text()
offset_numbers = st.integers(0, 2**63 - 1)
numbers = st.none() | offset_numbers
notes = st.builds(
    Note,
    **dict.fromkeys(("cluster_id", "input_id", "output_id"), ids),
    label=offset_numbers,
    **dict.fromkeys(("watermark", "partitions", "born", "floor", "since"), numbers),
    atomic=st.booleans(),
)


# --- the note ---


@given(notes)
def test_a_note_comes_back_as_it_was_committed(note: Note) -> None:
    """Encoding and decoding give the same note, with unknown ids kept unknown."""
    assert Note.decode(note.encode()) == note


def test_the_text_of_a_note_stays_readable() -> None:
    """Commits outlive versions: the text is JSON with these names, and says which format it is."""
    assert json.loads(NOTE.encode()) == {
        "streamdedup": 1,
        "cluster_id": "cluster",
        "input_id": "input-id",
        "output_id": "output-id",
        "label": 50,
    }


@pytest.mark.parametrize(
    ("told", "atomic"), [(True, True), (False, False), (1, False), (..., False)]
)
def test_only_a_note_that_says_so_is_atomic(told: object, atomic: bool) -> None:
    """One of before there was the word, or with another value, was perhaps committed after the output."""
    leaves = json.loads(NOTE.encode()) | ({} if told is ... else {"atomic": told})
    assert Note.decode(json.dumps(leaves)) == replace(NOTE, atomic=atomic)


@pytest.mark.parametrize("text", [None, "", "x", "{", "null", "7", '"label"', "[]", "[1, 2]", "{}"])
def test_foreign_metadata_is_no_note(text: str | None) -> None:
    """What other tools commit, nothing most of all, reads as no note."""
    assert Note.decode(text) is None


LEAVES = ("streamdedup", "cluster_id", "input_id", "output_id", "label")


@table(product(LEAVES, (0, 2, 5.5, "50", [], {}, ...)))
def test_a_note_with_a_wrong_or_missing_leaf_is_no_note(leaf: str, wrong: object) -> None:
    """A leaf that is gone, of another type, or of a format we do not know, voids the note; no leaf is guessed."""
    leaves = json.loads(NOTE.encode()) | {leaf: wrong}
    if wrong is ...:
        del leaves[leaf]
    fits = leaf == "label" and type(wrong) is int
    fits |= leaf.endswith("_id") and type(wrong) is str
    assert (Note.decode(json.dumps(leaves)) is not None) == fits


@given(st.text() | st.recursive(st.none() | st.text() | st.floats(), st.lists).map(json.dumps))
def test_no_metadata_crashes_the_decoder(text: str) -> None:
    """Any text at all is a note or none."""
    assert Note.decode(text) is None


@pytest.mark.parametrize("label", [True, -1, 2**63, 2**64 - 1])
def test_a_label_that_is_no_offset_makes_no_note(label: int) -> None:
    """Whoever may commit offsets of the group writes any text, and an offset of Kafka is an int64 from 0 on."""
    assert Note.decode(json.dumps({"streamdedup": 1, **asdict(NOTE), "label": label})) is None


@pytest.mark.parametrize("name", ["watermark", "partitions", "born", "floor", "since"])
@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_a_number_beyond_an_int64_is_left_out(name: str, number: int) -> None:
    """No array of times and no request to a broker holds it."""
    text = json.dumps({"streamdedup": 1, **asdict(NOTE), name: number})
    assert Note.decode(text) == NOTE


# --- the answer ---


class Coordinator:
    """A client whose coordinator gives scripted answers; an exception is raised by the lookup."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.refreshed = 0

    async def coordinator_lookup(self, _kind: int, _group: str) -> int:
        """Node 1, or the scripted exception."""
        if isinstance(self.answers[0], Exception):
            raise self.answers.pop(0)
        return 1

    async def send(self, _node: int, request: Any, **_group: object) -> Any:
        """The next answer."""
        self.requests.append(request)
        return self.answers.pop(0)

    async def force_metadata_update(self) -> None:
        """Count the refreshes."""
        self.refreshed += 1


def v3(offset: int, metadata: str | None, code: int = 0, group_code: int = 0) -> Any:
    """An OffsetFetch v3 answer, after a way through aiokafka's encoding."""
    shape = OffsetFetchRequest("group", []).prepare({9: (3, 3)}).RESPONSE_TYPE
    answer = shape(0, [("topic", [(0, offset, metadata, code)])], group_code)
    return shape.decode(answer.encode())


def v7(offset: int, metadata: str | None, code: int = 0, group_code: int = 0) -> Any:
    """A stable OffsetFetch answer, after a way through our schema."""
    shape = StableOffsetFetch("group", "topic", [0]).prepare({9: (7, 7)}).RESPONSE_TYPE
    row: tuple[Any, ...] = (0, offset, -1, metadata, code, {})
    return shape.decode(shape(0, [("topic", [row], {})], group_code, {}).encode())


shapes = pytest.mark.parametrize(("shape", "stable"), [(v3, False), (v7, True)])


def ask(client: Coordinator, stable: bool) -> Committed | None:
    """What `committed_all` makes of the scripted answers."""
    asked = committed_all(client, "group", "topic", [0], stable=stable)
    return asyncio.run(asked).get(0)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "RETRY_S", 0)


@shapes
def test_offset_and_note_are_read(shape: Any, stable: bool) -> None:
    """Both wire formats give the offset, with the note where it has one; metadata may be null."""
    client = Coordinator(shape(7, NOTE.encode()), shape(0, "by hand"), shape(1, ""))
    assert ask(client, stable) == Committed(7, NOTE)
    assert ask(client, stable) == Committed(0, None)
    assert ask(client, stable) == Committed(1, None)
    assert ask(Coordinator(shape(3, None)), stable) == Committed(3, None)
    assert ask(Coordinator(shape(-1, "")), stable) is None  # nothing is committed
    assert {isinstance(r, StableOffsetFetch) for r in client.requests} == {stable}


@shapes
@pytest.mark.parametrize("code", [LOADING, NOT_COORDINATOR])
def test_a_coordinator_that_cannot_answer_is_asked_again(
    shape: Any, stable: bool, code: int
) -> None:
    """A coordinator that loads or moved is no "nothing committed"."""
    client = Coordinator(shape(-1, "", code), shape(-1, "", 0, code), shape(7, NOTE.encode()))
    assert ask(client, stable) == Committed(7, NOTE)
    assert len(client.requests) == 3


@shapes
@pytest.mark.parametrize(
    ("code", "error"),
    [(UNSTABLE, UndecidedError), (NOT_AUTHORIZED, GroupAuthorizationFailedError)],
    ids=["open transaction", "refusal"],
)
def test_an_answer_that_is_none_is_an_error(
    shape: Any, stable: bool, code: int, error: type[Exception]
) -> None:
    """Be it told of the partition or of the group: neither nothing committed nor the offset before."""
    for answer in (shape(-1, "", code), shape(-1, "", 0, code)):
        with pytest.raises(error):
            ask(Coordinator(answer), stable)


@pytest.mark.parametrize(
    "error", [GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError], ids=str
)
def test_a_coordinator_that_is_away_is_looked_for_again(error: type[Exception]) -> None:
    """The lookup's passing errors refresh the metadata and are tried again; others are raised."""
    client = Coordinator(error(), v7(7, ""))
    assert ask(client, stable=True) == Committed(7, None)
    assert client.refreshed == 1
    with pytest.raises(GroupAuthorizationFailedError):
        ask(Coordinator(GroupAuthorizationFailedError()), stable=True)


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        (NotImplementedError(), False),
        (GroupCoordinatorNotAvailableError(), True),
        (v7(7, NOTE.encode()), True),
        (v7(-1, "", UNSTABLE), True),
    ],
    ids=["not known", "away", "committed", "undecided"],
)
def test_an_old_broker_is_told_from_one_that_is_not_ready(answer: Any, known: bool) -> None:
    """Only a broker that lacks the request has no stable offsets; what passes by itself says nothing."""
    assert asyncio.run(supports_stable_offsets(Coordinator(answer), "group", "topic")) == known


def test_a_refusal_is_raised_when_asked_for_the_ability() -> None:
    """Missing rights are no missing ability."""
    with pytest.raises(GroupAuthorizationFailedError):
        client = Coordinator(GroupAuthorizationFailedError())
        asyncio.run(supports_stable_offsets(client, "group", "topic"))
