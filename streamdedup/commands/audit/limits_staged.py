"""What an audit cannot know with `source.repartition`. If `limits` has the same limit, the names are equal."""

from collections.abc import Iterator, Mapping, Sequence

from streamdedup.commands.audit.extents import Extent
from streamdedup.commands.audit.limits import (
    ABSENT,
    Limit,
    limits_of_rules,
    limits_of_side_topics,
)
from streamdedup.commands.audit.match import Matches
from streamdedup.delivery.resume import Found, differs
from streamdedup.settings import Settings

SHOWN_MAX = 8  # partitions or topics in one sentence


def is_of_these_logs(found: Found) -> bool:
    """Return whether an offset of the first stage was committed for this input and this middle topic."""
    note = found.committed.note if found.committed else None
    return note is None or not (
        differs(note.cluster_id, found.cluster_id)
        or differs(note.input_id, found.input_id)
        or differs(note.output_id, found.output_id)
    )


def limits_of_input(settings: Settings, inputs: Mapping[str, Found]) -> Iterator[Limit]:
    """Yield the limits by what was found of each partition of the inputs, by its name."""
    if of := [name for name, f in inputs.items() if f.committed is None]:
        yield Limit(
            "not_committed", f"no offset is committed on the input ({_named(of)}): nothing is due"
        )
    if of := [name for name, f in inputs.items() if not is_of_these_logs(f)]:
        yield Limit(
            "other_input",
            "the offset was committed for another input or middle topic (made again, or on another cluster): no event"
            f" of this input is due ({_named(of)}), and the emitted events may come from the other",
            ("foreign",),
        )
    if of := [name for name, f in inputs.items() if f.committed and f.committed.note is None]:
        yield Limit(
            "moved_by_a_tool",
            f"the offset on the input was committed by another tool ({_named(of)}): events that it skipped look lost",
        )
    if of := [
        name for name, f in inputs.items() if f.committed and f.committed.offset < f.input_start
    ]:
        yield Limit(
            "deleted_unread",
            f"the input begins after the committed offset ({_named(of)}): the events between were deleted before they"
            " were read",
        )
    if of := [name for name, f in inputs.items() if f.input_start > 0]:
        yield Limit(
            "input_trimmed",
            f"the beginning of the input was deleted ({_named(of)}): it is not known whether every emitted event was"
            " in it",
            ("foreign",),
        )
    if settings.source.start == "latest":
        yield Limit(
            "began_at_latest",
            "source.start is latest, so it is not known where reading began, and which keys are due",
            ABSENT,
        )


def limits_of_inputs_left(unreadable: Sequence[str]) -> Iterator[Limit]:
    """Yield the limit by the inputs that the configuration names no more, and that cannot be read."""
    if unreadable:
        yield Limit(
            "inputs_left",
            "the first stage has offsets on topics that the configuration names no more, and that are deleted or may"
            f" not be read ({_few(unreadable)}): it is not known which events of the output come from there;"
            " grant Read on them if they exist",
            ("foreign",),
        )


def limits_of_output(
    settings: Settings,
    outputs: Sequence[Extent],
    starts: Mapping[str, int],
    matches: Matches,
    unexplained: Sequence[str],
) -> Iterator[Limit]:
    """Yield the limits by each partition of the output.

    `starts` is the greatest first offset of each side topic. `unexplained` names the first events of the middle topic
    that are no copies of ours.
    """
    sink, window = settings.sink, settings.filter.kind == "window"
    found = [extent.found for extent in outputs]
    if of := [f.partition for f in found if f.floor]:
        yield Limit(
            "forgotten",
            f"after reset --forget the output counts from there on ({_named(of)}), and it is not noted from which event"
            " of the input on keys are due again",
            ABSENT,
        )
    if of := [f.partition for f in found if f.committed and f.committed.note is None]:
        yield Limit(
            "moved_by_a_tool",
            f"the offset on the middle topic was committed by another tool ({_named(of)}): events that it skipped look"
            f" lost; and after an earlier reset --forget, its floor is not known, so events that {sink.topic} held"
            " then look doubled",
        )
    if of := [f.partition for f in found if f.note and differs(f.note.output_id, f.output_id)]:
        yield Limit(
            "other_output",
            f"the offset was committed with another {sink.topic} ({_named(of)}): the events emitted then are not in"
            " this one",
        )
    if of := [f.partition for f in found if f.output_start > (f.floor or 0)]:
        yield Limit(
            "output_trimmed",
            f"the beginning of {sink.topic} was deleted ({_named(of)}): it is not known whether a key that is not in it"
            " was emitted" + (", nor how far the window's time had come" if window else ""),
            (*ABSENT, *(("doubled",) if window else ())),
        )
    yield from limits_of_side_topics(sink, starts)
    yield from limits_of_rules(settings, matches)
    if unexplained:
        yield Limit(
            "stranger",
            "the middle topic holds events that this deployment has not copied, at which its second stage stops; first:"
            f" {', '.join(unexplained)}",
        )


def _named(partitions: Sequence[object]) -> str:
    return f"partition {_few(partitions)}"


def _few(named: Sequence[object]) -> str:
    few = ", ".join(map(str, named[:SHOWN_MAX]))
    return f"{few} and more" if len(named) > SHOWN_MAX else few
