"""What `streamdedup reset` prints before it asks: a table of the moves, and what they mean under these settings."""

from collections.abc import Iterator

from streamdedup.commands.reset_plan import ResetPlan
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying_group
from streamdedup.units import escaped


def as_text(settings: Settings, planned: ResetPlan) -> str:
    """Return the plan for people: a table, and what it means."""
    lines = (*_table(settings, planned), "", *_meaning(settings, planned))
    return "\n".join(map(escaped, lines)) + "\n"


def _table(settings: Settings, planned: ResetPlan) -> Iterator[str]:
    yield f"group {_moved(settings)} on {settings.source.shown}, to {planned.target}:"
    yield ""
    rows = [("partition", "from", "to", "read again", "skipped")]
    for step in planned.steps:
        at = "-" if step.at is None else str(step.at)
        row = (planned.name_of(step), at, str(step.to), f"{step.again:,}", f"{step.skipped:,}")
        rows.append(row)
    again, skipped = (
        sum(getattr(step, name) for step in planned.steps) for name in ("again", "skipped")
    )
    rows.append(("all", "", "", f"{again:,}", f"{skipped:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *cells in rows:
        middle = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *middle))
    if settings.source.repartition:
        yield ""
        stays = "stays where it is" + (", with empty filters" if planned.forget else "")
        yield f"group {settings.kafka.group_id} on {settings.source.repartition.topic}: {stays}"


def _moved(settings: Settings) -> str:
    """Return the group that is moved: that of the first stage, if there are two."""
    return copying_group(settings) if settings.source.repartition else settings.kafka.group_id


def _meaning(settings: Settings, planned: ResetPlan) -> Iterator[str]:
    output = settings.sink.topic
    yield from _where_to(settings, planned)
    if planned.forget:
        yield (
            f"--forget: the events that {output} holds now no longer count as emitted. The filters start empty: of the"
            " events that are read from then on, the first of each key is emitted, even if the output holds it already."
            " The output keeps its events; snapshots made before are refused."
        )
        yield from _unread(settings, planned)
    elif any(step.again for step in planned.steps):
        yield f"{_judged_again(settings)} Events that pass unjudged, dead letters and duplicates are written again."
    if any(step.skipped for step in planned.steps):
        yield "Skipped events are never judged nor emitted."
    floors = {step.partition for step in planned.steps if step.found.floor} | {*planned.forgotten}
    if floors and not planned.forget:
        yield (
            f"An earlier --forget stays in force: the events that {output} held then still do not count (partitions"
            f" {', '.join(map(str, sorted(floors)))})."
        )
    unknown = [
        s.partition
        for s in planned.steps
        if s.found.committed and not s.found.committed.note and not settings.source.repartition
    ]
    if unknown and not planned.forget:
        yield (
            "Another tool committed the offsets of these partitions, and so removed a floor that an earlier --forget"
            f" may have set: {', '.join(map(str, unknown))}. All events that {output} holds count as emitted."
        )
    yield "The table counts offsets. If the log has markers and gaps, there are fewer events."


def _where_to(settings: Settings, planned: ResetPlan) -> Iterator[str]:
    steps, group, topic = planned.steps, _moved(settings), settings.source.shown
    if all(step.at is None for step in steps):
        yield (
            f"The group {group} has committed nothing on {topic}: if workers have run before, check kafka.group_id and"
            f" {settings.source.option}. Workers will begin at the offsets set here."
        )
    elif planned.idle:
        yield "Nothing to move: the offsets are there already."
    at_end = [planned.name_of(step) for step in steps if step.to == step.found.input_end]
    if planned.target.name == "time" and at_end:
        which = "partitions " + ", ".join(at_end)
        yield (
            f"No event is from that time or later ({'all partitions' if len(at_end) == len(steps) else which}): there"
            " reading goes on at the end, as with latest."
        )


def _unread(settings: Settings, planned: ResetPlan) -> Iterator[str]:
    """Yield what becomes of the events that wait in the middle topic."""
    options = settings.source.repartition
    waiting = sum(max(0, step.found.input_end - step.to) for step in planned.floors)
    if options is None or not waiting:
        return
    yield (
        f"{waiting:,} offsets of {options.topic} are not read yet. The events there are judged by the empty filters,"
        f" too: the first of each key is emitted, even if {settings.sink.topic} holds it already, or if it is skipped"
        f" in {settings.source.shown}."
    )


def _judged_again(settings: Settings) -> str:
    output, options = settings.sink.topic, settings.filter
    if settings.sink.shadow:
        return (
            f"In shadow mode, all events that are read again are WRITTEN AGAIN to {output}; those that passed before"
            " are marked as duplicates."
        )
    if not options.remembers:
        return (
            f"Events that are read again are judged by the lists alone, because there is no filter: those that pass are"
            f" EMITTED AGAIN, although {output} holds them."
        )
    if options.kind != "window":
        return f"Events that are read again are judged by the keys in {output}: none of these is emitted again."
    judged = (
        f"Events that are read again are judged by the keys of {output} that the window still holds: a key that it has"
        f" forgotten is EMITTED AGAIN, although it is in {output}."
    )
    if options.retention is None:
        return f"{judged} It holds at least the last filter.capacity keys."
    span = "filter.retention"
    if settings.source.repartition:
        span += " and source.repartition.max_skew together"
    if options.late == "pass":
        return (
            f"{judged} That is every event older than {span}, each time it comes, because filter.late is"
            " pass. With late: drop, such events are dropped, even those that were never emitted."
        )
    return (
        f"{judged} Events older than {span} are dropped (filter.late: drop), even those that were never"
        " emitted. A key can be emitted again by a younger event if its first event is older."
    )
