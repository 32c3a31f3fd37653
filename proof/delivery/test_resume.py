"""Full tables of where a shard goes on, if nothing contradicts."""

from dataclasses import replace
from typing import Any

import pytest

from streamdedup.delivery.resume import (
    PartitionState,
    Resume,
    Unfit,
    check_memory,
    growth,
    input_offset,
)
from streamdedup.errors import DeliveryError
from streamdedup.kafka.options import SourceOptions
from tests.delivery.test_resume import (
    EMITTED,
    FOUND,
    LATEST,
    NOTE,
    SINK,
    SOURCE,
    UNTOUCHED,
    at,
    of,
    saved,
)


@pytest.mark.parametrize(("source", "offset"), [(SOURCE, 10), (LATEST, 90)])
def test_without_a_filter_a_lost_offset_is_a_birth(source: SourceOptions, offset: int) -> None:
    """What the output holds is not folded, so it tells nothing: `source.start` decides."""
    found = replace(UNTOUCHED, output_end=60)
    assert input_offset(found, source, SINK, remembers=False) == Resume(
        offset, True, f"born at {source.start}"
    )


@pytest.mark.parametrize("leaf", ["cluster_id", "input_id", "output_id"])
@pytest.mark.parametrize("side", ["the note", "the broker"])
def test_an_unknown_id_contradicts_nothing(leaf: str, side: str) -> None:
    """Ids that the note or the broker does not tell are not compared, so the offset counts."""
    unknown: dict[str, Any] = {leaf: None}
    found = at(30, replace(NOTE, **unknown)) if side == "the note" else at(30, **unknown)
    assert input_offset(found, SOURCE, SINK) == Resume(30, False, "the committed offset")


@pytest.mark.parametrize(
    "found",
    [
        at(30),
        at(30, of(4)),
        UNTOUCHED,
        at(30, of(4), snapshots=[saved(6)], beyond=[5]),
        replace(EMITTED, snapshots=[saved(4)], others={0: of(6)}, beyond=[5]),
        replace(EMITTED, snapshots=[saved(6, topic_id="another")]),
        replace(EMITTED, snapshots=[saved(6, cluster_id="another")]),
        replace(EMITTED, others={0: replace(of(6), output_id="another")}),
    ],
    ids=[
        "older note",
        "as many",
        "birth",
        "accepted, and committed",
        "accepted, and saved",
        "another output",
        "another cluster",
        "another's note of another output",
    ],
)
def test_nothing_else_is_another_number(found: PartitionState) -> None:
    """What this partition has committed last decides, then what it saved; nothing of another output counts."""
    assert growth(found, SOURCE) is None


@pytest.mark.parametrize(
    ("label", "start", "held", "named"),
    [
        (0, 30, 30, True),
        (0, 30, 40, True),
        (0, 30, 29, False),
        (35, 40, 34, False),
        (0, 30, 61, False),
    ],
)
def test_an_unfit_snapshot_is_named_only_if_it_holds_what_is_gone(
    label: int, start: int, held: int, named: bool
) -> None:
    """From the label up to where the output begins, and nothing beyond the output's end."""
    found = replace(FOUND, output_start=start)
    unfit = Unfit("7.snapshot", held, "put filter.kind back", 3)
    with pytest.raises(DeliveryError, match=r"sink\.on_gap: accept") as stopped:
        check_memory(label, found, SINK, unfit=unfit)
    assert ("put filter.kind back, and nothing is lost" in str(stopped.value)) == named
    assert ("are in no snapshot" in str(stopped.value)) != named


@pytest.mark.parametrize(
    ("input_id", "why"),
    [
        ("another", "the input topic was made again"),
        ("input-id", "no offset is committed, but the output is not empty"),
        (None, "no offset is committed, but the output is not empty"),
    ],
)
def test_a_snapshot_shows_that_the_input_was_made_again(input_id: str | None, why: str) -> None:
    """Its offsets went with it, so no note can; an older snapshot does not know the input."""
    found = replace(EMITTED, snapshots=[saved(4, input_id=input_id)])
    anew = input_id == "another"
    assert input_offset(found, SOURCE, SINK) == Resume(10, False, why, anew=anew)
