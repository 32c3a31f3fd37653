"""What an audit cannot know about a partition, in words for people, and which findings that hides."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamdedup.commands.audit.extents import Extent
from streamdedup.commands.audit.match import Matches
from streamdedup.commands.audit.time_check import TimeCheck
from streamdedup.kafka.broker_clock import DIFFERENCE_S_MAX
from streamdedup.kafka.options import SinkOptions
from streamdedup.settings import Settings

FINDINGS = ("lost", "missing", "wrongly_dropped", "doubled", "foreign", "wrongly_rejected")
ABSENT = ("lost", "missing", "wrongly_dropped")


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit. `name` is stable. `hides` are the findings about which the audit then reports nothing."""

    name: str
    text: str
    hides: tuple[str, ...] = ()


def limits_of(
    settings: Settings, extent: Extent, starts: dict[str, int], matches: Matches, *, across: bool
) -> Iterator[Limit]:
    """Yield the limits of one partition. `starts` is the first offset of each side topic.

    `across` says that all keys are compared across partitions.
    """
    yield from _of_the_offset(settings, extent)
    yield from _of_the_logs(settings, extent, starts)
    yield from limits_of_rules(settings, matches)
    if extent.found.partitions > 1 and not across:
        yield Limit(
            "keys_across_partitions",
            "each partition is judged by itself, as the worker does: a key that came in two partitions is in the output"
            " of both, and is not counted here; only a sample of the keys is compared across partitions, all of them"
            " with --across (docs/partitioning.md)",
        )


def limits_of_rules(settings: Settings, matches: Matches) -> Iterator[Limit]:
    """Yield what is not known because duplicates, blocked events or what they refreshed are written nowhere."""
    sink = settings.sink
    if matches.unaccounted and (sink.duplicates_topic or sink.shadow):
        yield Limit(
            "duplicates_incomplete",
            f"{sink.duplicates_topic or sink.topic} does not hold all duplicates (perhaps it was configured later), so"
            " a missing key that is not in it may be lost or wrongly dropped",
        )
    absent = matches.missing if settings.filter.remembers else matches.lost
    if absent and settings.blocklist.file and not sink.blocked_topic:
        yield Limit(
            "blocked_unknown",
            "blocked events are written nowhere (sink.blocked_topic is not set), so it is not known whether an event"
            f" that is not in {sink.topic} was blocked",
            ("missing",) if settings.filter.remembers else ("lost",),
        )
    if settings.filter.refresh:
        yield Limit(
            "refresh",
            "with filter.refresh, duplicates move the window on, and they are not in the output: it is not known"
            " whether a key was emitted again too soon",
            ("doubled",),
        )


def limits_of_side_topics(sink: SinkOptions, starts: Mapping[str, int]) -> Iterator[Limit]:
    """Yield what is not known because side topics were trimmed. `starts` is the first offset of each."""
    if sink.dead_letter_topic and starts.get(sink.dead_letter_topic):
        yield Limit(
            "dead_letters_trimmed",
            f"the beginning of {sink.dead_letter_topic} was deleted: it is not known whether missing events were"
            " rejected",
            ABSENT,
        )
    if sink.blocked_topic and starts.get(sink.blocked_topic):
        yield Limit(
            "blocked_trimmed",
            f"the beginning of {sink.blocked_topic} was deleted: it is not known whether missing events were blocked",
            ABSENT,
        )
    if sink.duplicates_topic and starts.get(sink.duplicates_topic):
        yield Limit(
            "duplicates_trimmed",
            f"the beginning of {sink.duplicates_topic} was deleted, so a missing key that is not in it may be lost or"
            " wrongly dropped",
        )


def limits_of_times(settings: Settings, check: TimeCheck) -> Iterator[Limit]:
    """Yield what is not known about the events that were rejected for their time."""
    output, letters = settings.sink.topic, settings.sink.dead_letter_topic
    if check.unknown:
        yield Limit(
            "rejections_unchecked",
            f"events were rejected for their time, and it is not known what time it was on the broker: {letters} has"
            f" neither transactions nor LogAppendTime, or the limits of {output} are not known (DescribeConfigs)",
            () if check.wrong else ("wrongly_rejected",),
        )
    if abs(check.worker_ahead_s) > DIFFERENCE_S_MAX:
        side = "ahead of" if check.worker_ahead_s > 0 else "behind"
        yield Limit(
            "clock_differed",
            f"the worker's clock was {abs(check.worker_ahead_s):,.0f} s {side} the broker's when it rejected events for"
            " their time; set the wrong one right (NTP)",
        )


def began_at_latest(settings: Settings, extent: Extent) -> bool:
    """Return whether reading began at an offset that is no longer known."""
    found = extent.found
    before_the_group = found.partition < found.born
    return settings.source.start == "latest" and found.since is None and before_the_group


def _of_the_offset(settings: Settings, extent: Extent) -> Iterator[Limit]:
    found, output = extent.found, settings.sink.topic
    if found.committed is None:
        yield Limit("not_committed", "no offset is committed, so no event of the input is due yet")
        return
    if not extent.same_logs:
        yield Limit(
            "other_input",
            "the offset was committed for another input (recreated, or on another cluster): no event of this input is"
            " due, and the emitted events may come from the other",
            ("foreign",),
        )
        return
    note = found.committed.note
    if note is None:
        yield Limit(
            "moved_by_a_tool",
            "the offset was committed by another tool: events that it skipped look lost; and after an earlier reset"
            f" --forget, its floor is not known, so events that {output} held then look doubled",
        )
    elif None not in (note.output_id, found.output_id) and note.output_id != found.output_id:
        yield Limit(
            "other_output",
            f"the offset was committed with another {output}: the events emitted then are not in this one",
        )
    if found.committed.offset < found.input_start:
        yield Limit(
            "deleted_unread",
            "the input begins after the committed offset: the events between were deleted before they were read",
        )
    if began_at_latest(settings, extent):
        yield Limit(
            "began_at_latest",
            "source.start is latest, so it is not known where reading began: a key whose events all come before the"
            " first emitted event is not counted as missing",
        )


def _of_the_logs(settings: Settings, extent: Extent, starts: dict[str, int]) -> Iterator[Limit]:
    found, sink = extent.found, settings.sink
    if found.input_start > 0:
        yield Limit(
            "input_trimmed",
            "the beginning of the input was deleted: it is not known whether every emitted event was in it",
            ("foreign",),
        )
    if found.output_start > (found.floor or 0):
        windowed = ("doubled",) if settings.filter.kind == "window" else ()
        yield Limit(
            "output_trimmed",
            f"the beginning of {sink.topic} was deleted: it is not known whether a key that is not in it was emitted"
            + (", nor how far the window's time had come" if windowed else ""),
            (*ABSENT, *windowed),
        )
    yield from limits_of_side_topics(sink, starts)
