"""What `streamdedup reset` says beforehand: a table of the moves, and what they mean under these settings."""

from collections.abc import Iterator

from streamdedup.commands.reset import ResetPlan
from streamdedup.settings import Settings


def as_text(settings: Settings, planned: ResetPlan) -> str:
    """The plan for people: a table, and what it means."""
    return "\n".join((*_table(settings, planned), "", *_meaning(settings, planned))) + "\n"


def _table(settings: Settings, planned: ResetPlan) -> Iterator[str]:
    group, topic = settings.kafka.group_id, settings.source.topic
    yield f"group {group} on {topic}, to {planned.target}:"
    yield ""
    rows = [("partition", "from", "to", "read again", "skipped")]
    for step in planned.steps:
        at = "-" if step.at is None else str(step.at)
        row = (str(step.partition), at, str(step.to), f"{step.again:,}", f"{step.skipped:,}")
        rows.append(row)
    again, skipped = (
        sum(getattr(step, name) for step in planned.steps) for name in ("again", "skipped")
    )
    rows.append(("all", "", "", f"{again:,}", f"{skipped:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *cells in rows:
        middle = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *middle))


def _meaning(settings: Settings, planned: ResetPlan) -> Iterator[str]:
    output = settings.sink.topic
    yield from _where_to(settings, planned)
    if planned.forget:
        yield (
            f"--forget: what {output} holds now counts as emitted no more. The filters start empty: of what is read"
            " from then on, the first event of each key is emitted, also where it is in the output already. The output"
            " keeps what it holds; snapshots made before are refused."
        )
    elif any(step.again for step in planned.steps):
        yield f"{_judged_again(settings)} Events that pass unjudged, dead letters and duplicates are written again."
    if any(step.skipped for step in planned.steps):
        yield "What is skipped is never judged nor emitted."
    floors = {step.partition for step in planned.steps if step.found.floor}
    if floors and not planned.forget:
        yield (
            f"An earlier --forget holds: what {output} held then still does not count (partitions"
            f" {', '.join(map(str, sorted(floors)))})."
        )
    unknown = [
        s.partition for s in planned.steps if s.found.committed and not s.found.committed.note
    ]
    if unknown and not planned.forget:
        yield (
            "The offsets of these partitions were committed by another tool, and a floor that an earlier --forget had"
            f" set went with their notes: {', '.join(map(str, unknown))}. All that {output} holds counts as emitted."
        )
    yield "Offsets are counted: where the log has markers and gaps, events are fewer."


def _where_to(settings: Settings, planned: ResetPlan) -> Iterator[str]:
    steps, group, topic = planned.steps, settings.kafka.group_id, settings.source.topic
    if all(step.at is None for step in steps):
        yield (
            f"The group {group} has committed nothing on {topic}: if workers have run, look at kafka.group_id and"
            " source.topic. What is moved here is then where they begin."
        )
    elif planned.idle:
        yield "Nothing to move: the offsets are there already."
    at_end = [step.partition for step in steps if step.to == step.found.input_end]
    if planned.target.name == "time" and at_end:
        which = "partitions " + ", ".join(map(str, at_end))
        yield (
            f"No event is from that time or later ({'all partitions' if len(at_end) == len(steps) else which}): there"
            " it means the end, as latest does."
        )


def _judged_again(settings: Settings) -> str:
    output, options = settings.sink.topic, settings.filter
    if settings.sink.shadow:
        return (
            f"In shadow mode all that is read again is WRITTEN AGAIN to {output}; what passed before is marked as"
            " duplicate."
        )
    if not options.remembers:
        return (
            f"What is read again is judged by the lists alone, since there is no filter: what passes is EMITTED AGAIN,"
            f" though it is in {output}."
        )
    if options.kind != "window":
        return f"What is read again is judged by what {output} holds: no key that is in it is emitted again."
    judged = (
        f"What is read again is judged by what the window still holds of {output}: a key that it has forgotten is"
        f" EMITTED AGAIN, though it is in {output}."
    )
    if options.retention is None:
        return f"{judged} It holds at least the last filter.capacity keys."
    if options.late == "pass":
        return (
            f"{judged} That is every event older than filter.retention, each time it comes, since filter.late is pass:"
            " with late: drop such events are dropped, those that were never emitted, too."
        )
    return (
        f"{judged} Events older than filter.retention are dropped (filter.late: drop), those that were never emitted,"
        " too; what can come again are keys of younger events whose first is older."
    )
