"""What an audit cannot know of a partition, and which findings that hides; in words for people."""

from collections.abc import Iterator
from dataclasses import dataclass

from streamdedup.commands.audit.extents import Extent
from streamdedup.commands.audit.match import Matches
from streamdedup.settings import Settings

FINDINGS = ("lost", "missing", "wrongly_dropped", "doubled", "foreign")
_EMITTED_BEFORE = ("lost", "missing", "wrongly_dropped")


@dataclass(frozen=True, slots=True)
class Limit:
    """`name` is stable; `hides` are the findings of which the audit says nothing then."""

    name: str
    text: str
    hides: tuple[str, ...] = ()


def limits_of(
    settings: Settings, extent: Extent, starts: dict[str, int], matches: Matches
) -> Iterator[Limit]:
    """Those of one partition; `starts` is where each side topic begins."""
    yield from _of_the_offset(settings, extent)
    yield from _of_the_logs(settings, extent, starts)
    sink = settings.sink
    if matches.unaccounted and (sink.duplicates_topic or sink.shadow):
        yield Limit(
            "duplicates_incomplete",
            f"{sink.duplicates_topic or sink.topic} does not hold all duplicates (it may have been set later), so a"
            " missing key that is not in it may be lost or wrongly dropped",
        )
    absent = matches.missing if settings.filter.remembers else matches.lost
    if absent and settings.blocklist.file and not sink.blocked_topic:
        yield Limit(
            "blocked_unknown",
            "what the block list blocks goes nowhere (sink.blocked_topic is not set): whether what is not in"
            f" {sink.topic} was blocked, is not known",
            ("missing",) if settings.filter.remembers else ("lost",),
        )
    if settings.filter.refresh:
        yield Limit(
            "refresh",
            "with filter.refresh the time of a window goes on with duplicates, which are not in the output: whether a"
            " key came too soon again is not known",
            ("doubled",),
        )
    if extent.found.partitions > 1:
        yield Limit(
            "keys_across_partitions",
            "each partition is judged by itself, as the worker does: a key that came in two of them stands in both, and"
            " is not counted here (docs/partitioning.md)",
        )


def began_at_latest(settings: Settings, extent: Extent) -> bool:
    """Whether reading began at an offset that nobody knows any more."""
    found = extent.found
    before_the_group = found.partition < found.born
    return settings.source.start == "latest" and found.since is None and before_the_group


def _of_the_offset(settings: Settings, extent: Extent) -> Iterator[Limit]:
    found, output = extent.found, settings.sink.topic
    if found.committed is None:
        yield Limit(
            "not_committed", "no offset is committed, so nothing of the input is due to be emitted"
        )
        return
    if not extent.same_logs:
        yield Limit(
            "other_input",
            "the offset was committed for another input (made again, or on another cluster): nothing of this one is"
            " due, and what was emitted may come from the other",
            ("foreign",),
        )
        return
    note = found.committed.note
    if note is None:
        yield Limit(
            "moved_by_a_tool",
            "the offset was committed by another tool: what it skipped looks lost, and if a reset --forget went before,"
            f" its floor is not known and what {output} held then looks doubled",
        )
    elif None not in (note.output_id, found.output_id) and note.output_id != found.output_id:
        yield Limit(
            "other_output",
            f"the offset was committed with another {output}: what was emitted is not in it",
        )
    if found.committed.offset < found.input_start:
        yield Limit(
            "deleted_unread",
            "the input begins behind the committed offset: events between were deleted before they were read",
        )
    if began_at_latest(settings, extent):
        yield Limit(
            "began_at_latest",
            "source.start is latest, so where reading began is not known: keys of which all events stand before the"
            " first that was emitted are not missed",
        )


def _of_the_logs(settings: Settings, extent: Extent, starts: dict[str, int]) -> Iterator[Limit]:
    found, sink = extent.found, settings.sink
    if found.input_start > 0:
        yield Limit(
            "input_trimmed",
            "the beginning of the input was deleted: whether all that was emitted was in it is not known",
            ("foreign",),
        )
    if found.output_start > (found.floor or 0):
        windowed = ("doubled",) if settings.filter.kind == "window" else ()
        yield Limit(
            "output_trimmed",
            f"the beginning of {sink.topic} was deleted: whether a key that is not in it was emitted is not known"
            + (", nor how far the window's time had come" if windowed else ""),
            (*_EMITTED_BEFORE, *windowed),
        )
    if sink.dead_letter_topic and starts.get(sink.dead_letter_topic):
        yield Limit(
            "dead_letters_trimmed",
            f"the beginning of {sink.dead_letter_topic} was deleted: whether what is missing was rejected is not known",
            _EMITTED_BEFORE,
        )
    if sink.blocked_topic and starts.get(sink.blocked_topic):
        yield Limit(
            "blocked_trimmed",
            f"the beginning of {sink.blocked_topic} was deleted: whether what is missing was blocked is not known",
            _EMITTED_BEFORE,
        )
    if sink.duplicates_topic and starts.get(sink.duplicates_topic):
        yield Limit(
            "duplicates_trimmed",
            f"the beginning of {sink.duplicates_topic} was deleted, so a missing key that is not in it may be lost or"
            " wrongly dropped",
        )
