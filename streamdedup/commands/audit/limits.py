"""What an audit cannot know, in words for people, and which findings that hides."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from streamdedup.commands.audit.extents import Extent
from streamdedup.commands.audit.match import Matches
from streamdedup.commands.audit.time_check import TimeCheck
from streamdedup.delivery.resume import differs
from streamdedup.kafka.broker_clock import DIFFERENCE_S_MAX
from streamdedup.kafka.options import SinkOptions
from streamdedup.settings import Settings
from streamdedup.units import counted

FINDINGS = ("lost", "missing", "wrongly_dropped", "doubled", "foreign", "wrongly_rejected")
ABSENT = ("lost", "missing", "wrongly_dropped")
SHOWN_MAX = 8  # partitions or topics in one sentence
OF = "{of}"  # in a text: the place for the partitions that a limit holds for, if several are compared


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit. `name` is stable. `hides` are the findings about which the audit then reports nothing."""

    name: str
    text: str
    hides: tuple[str, ...] = ()


# Each limit, and whether it holds for a partition.
_Rows = Iterator[tuple[Callable[[Extent], bool], Limit]]


def limits_of(
    settings: Settings,
    inputs: Mapping[str, Extent],
    outputs: Mapping[str, Extent],
    starts: Mapping[str, int],
    matches: Matches,
    *,
    checks: Sequence[TimeCheck],
    keyless: int = 0,
    across: bool = False,
    unreadable: Sequence[str] = (),
    strangers: Sequence[str] = (),
) -> Iterator[Limit]:
    """Yield the limits of a comparison of `inputs` with `outputs`, which are partitions by their names.

    `starts` is the first offset of each side topic, and `keyless` how many events of the topic of duplicates have no
    key. `across` says that all keys are compared across partitions.
    With `source.repartition`, `unreadable` are inputs that the configuration names no more and that cannot be read, and
    `strangers` the first events of the middle topic that are no copies of ours.
    """
    is_staged = settings.source.repartition is not None
    yield from _met(_of_the_input(settings), inputs, are_named=is_staged)
    if unreadable:
        yield Limit(
            "inputs_left",
            "the first stage has offsets on topics that the configuration names no more, and that are deleted or may"
            f" not be read ({_few(unreadable)}): it is not known which events of the output come from there;"
            " grant Read on them if they exist",
            ("foreign",),
        )
    yield from _met(_of_the_output(settings), outputs, are_named=is_staged)
    yield from _of_side_topics(settings.sink, starts)
    yield from _of_rules(settings, matches, keyless)
    if strangers:
        yield Limit(
            "stranger",
            "the middle topic holds events that this deployment has not copied, at which its second stage stops; first:"
            f" {', '.join(strangers)}",
        )
    several = any(extent.found.partitions > 1 for extent in inputs.values())
    if several and not is_staged and not across:
        yield Limit(
            "keys_across_partitions",
            "each partition is judged by itself, as the worker does: a key that came in two partitions is in the output"
            " of both, and is not counted here; only a sample of the keys is compared across partitions, all of them"
            " with --across (docs/partitioning.md)",
        )
    for check in checks:
        yield from _of_times(settings, check)


def began_at_latest(settings: Settings, extent: Extent) -> bool:
    """Return whether reading began at an offset that is no longer known."""
    found = extent.found
    before_the_group = found.partition < found.born
    return settings.source.start == "latest" and found.since is None and before_the_group


def _met(rows: _Rows, extents: Mapping[str, Extent], *, are_named: bool) -> Iterator[Limit]:
    """Yield those that hold for any of `extents`."""
    for holds, limit in rows:
        if of := [name for name, extent in extents.items() if holds(extent)]:
            named = f" (partition {_few(of)})" if are_named else ""
            yield replace(limit, text=limit.text.replace(OF, named))


def _few(named: Sequence[str]) -> str:
    few = ", ".join(named[:SHOWN_MAX])
    return f"{few} and more" if len(named) > SHOWN_MAX else few


def _of_the_input(settings: Settings) -> _Rows:
    is_staged = settings.source.repartition is not None
    nothing = f" on the input{OF}: nothing is" if is_staged else ", so no event of the input is"
    due = "" if is_staged else " yet"
    yield (
        lambda extent: extent.found.committed is None,
        Limit("not_committed", f"no offset is committed{nothing} due{due}"),
    )
    which = "input or middle topic (made again" if is_staged else "input (recreated"
    yield (
        lambda extent: not extent.same_logs,
        Limit(
            "other_input",
            f"the offset was committed for another {which}, or on another cluster): no event of this input is due{OF},"
            " and the emitted events may come from the other",
            ("foreign",),
        ),
    )
    yield (
        _is_moved,
        _moved(" on the input" if is_staged else "", "" if is_staged else _floor(settings)),
    )
    if not is_staged:
        yield (
            lambda extent: extent.same_logs and _is_of_other_output(extent),
            _other_output(settings),
        )
    yield (
        lambda extent: _is_passed(extent) and (is_staged or extent.same_logs),
        Limit(
            "deleted_unread",
            f"the input begins after the committed offset{OF}: the events between were deleted before they were read",
        ),
    )
    latest = "source.start is latest, so it is not known where reading began"
    if not is_staged:
        yield (
            lambda extent: extent.committed is not None and began_at_latest(settings, extent),
            Limit(
                "began_at_latest",
                f"{latest}: a key whose events all come before the first emitted event is not counted as missing",
            ),
        )
    yield (
        lambda extent: extent.found.input_start > 0,
        Limit(
            "input_trimmed",
            f"the beginning of the input was deleted{OF}: it is not known whether every emitted event was in it",
            ("foreign",),
        ),
    )
    if is_staged:
        yield (
            lambda _: settings.source.start == "latest",
            Limit("began_at_latest", f"{latest}, and which keys are due", ABSENT),
        )


def _of_the_output(settings: Settings) -> _Rows:
    is_staged, output = settings.source.repartition is not None, settings.sink.topic
    if is_staged:
        yield (
            lambda extent: bool(extent.found.floor),
            Limit(
                "forgotten",
                f"after reset --forget the output counts from there on{OF}, and it is not noted from which event of the"
                " input on keys are due again",
                ABSENT,
            ),
        )
        yield _is_moved, _moved(" on the middle topic", _floor(settings))
        yield _is_of_other_output, _other_output(settings)
    windowed = settings.filter.kind == "window"
    yield (
        lambda extent: extent.found.output_start > (extent.found.floor or 0),
        Limit(
            "output_trimmed",
            f"the beginning of {output} was deleted{OF}: it is not known whether a key that is not in it was emitted"
            + (", nor how far the window's time had come" if windowed else ""),
            (*ABSENT, *(("doubled",) if windowed else ())),
        ),
    )


def _is_moved(extent: Extent) -> bool:
    committed = extent.found.committed
    return committed is not None and committed.note is None


def _moved(on: str, floor: str) -> Limit:
    return Limit(
        "moved_by_a_tool",
        f"the offset{on} was committed by another tool{OF}: events that it skipped look lost{floor}",
    )


def _floor(settings: Settings) -> str:
    return (
        "; and after an earlier reset --forget, its floor is not known, so events that"
        f" {settings.sink.topic} held then look doubled"
    )


def _is_passed(extent: Extent) -> bool:
    committed = extent.found.committed
    return committed is not None and committed.offset < extent.found.input_start


def _is_of_other_output(extent: Extent) -> bool:
    note = extent.found.note
    return note is not None and differs(note.output_id, extent.found.output_id)


def _other_output(settings: Settings) -> Limit:
    return Limit(
        "other_output",
        f"the offset was committed with another {settings.sink.topic}{OF}: the events emitted then are not in this one",
    )


def _of_side_topics(sink: SinkOptions, starts: Mapping[str, int]) -> Iterator[Limit]:
    """Yield what is not known because side topics were trimmed."""
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


def _of_rules(settings: Settings, matches: Matches, keyless: int) -> Iterator[Limit]:
    """Yield what is not known, since duplicates, blocked events or what they refreshed are written nowhere."""
    sink = settings.sink
    if (matches.unaccounted or keyless) and (sink.duplicates_topic or sink.shadow):
        cut = f"; {counted(keyless, 'event')} of it without a key, perhaps cut as too large"
        yield Limit(
            "duplicates_incomplete",
            f"{sink.duplicates_topic or sink.topic} does not hold all duplicates (perhaps it was configured later"
            f"{cut if keyless else ''}), so a missing key that is not in it may be lost or wrongly dropped",
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


def _of_times(settings: Settings, check: TimeCheck) -> Iterator[Limit]:
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
