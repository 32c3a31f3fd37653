"""From the findings of a comparison to the counts of a report. A finding that a limit hides is None."""

from streamdedup.commands.audit.extents import Extent
from streamdedup.commands.audit.limits import FINDINGS, Limit
from streamdedup.commands.audit.match import Matches
from streamdedup.commands.audit.read import Sorts
from streamdedup.commands.audit.report import PartitionCounts
from streamdedup.settings import Settings


def counts_of(
    settings: Settings,
    extent: Extent,
    sorts: Sorts,
    matches: Matches,
    limits: tuple[Limit, ...],
    *,
    unread: int,
    waits_s: tuple[float | None, float | None],
) -> PartitionCounts:
    """Return the counts of a partition. Findings that its limits hide are None.

    `unread` events wait, and `waits_s` are for how many seconds the oldest and the newest event have waited.
    """
    sink, found = settings.sink, extent.found
    duplicates_visible = sink.duplicates_topic or sink.shadow
    distinguishable = duplicates_visible and not {limit.name for limit in limits} & {
        "duplicates_incomplete",
        "duplicates_trimmed",
        "blocked_unknown",
    }
    findings: dict[str, int | None] = {name: getattr(matches, name) for name in FINDINGS}
    offsets = dict(matches.examples)
    if distinguishable:
        findings["lost"] = matches.lost + matches.missing - matches.wrongly_dropped
        if matches.missing > matches.wrongly_dropped:
            both = {*offsets["missing"]} - {*offsets.get("wrongly_dropped", ())}
            offsets["lost"] = sorted({*offsets.get("lost", ()), *both})
    elif not duplicates_visible:
        findings["wrongly_dropped"] = None
    findings |= dict.fromkeys(name for limit in limits for name in limit.hides)
    knows_time = settings.filter.kind == "window" and findings["doubled"] is not None
    return PartitionCounts(
        partition=extent.partition,
        input_start=found.input_start,
        committed=extent.committed,
        output_start=found.output_start,
        output_end=found.output_end,
        floor=found.floor,
        read=sorts.read,
        judged=sorts.judged,
        unread=unread,
        oldest_unread_s=waits_s[0],
        newest_unread_s=waits_s[1],
        emitted=sorts.emitted,
        duplicates=sorts.duplicates if duplicates_visible else None,
        malformed=sorts.malformed,
        rejected=sorts.rejected,
        blocked=sorts.blocked if sink.blocked_topic or sink.shadow else None,
        dropped=sorts.dropped,
        unjudged=sorts.unjudged,
        keys=matches.keys,
        **findings,
        untimed=sorts.untimed if settings.filter.by_event_time else None,
        due_again=matches.due_again if knows_time else None,
        late_again=matches.late_again if knows_time else None,
        explained_max=None,
        offsets={name: offsets[name] for name in FINDINGS if offsets.get(name) and findings[name]},
        limits=limits,
    )
