"""Write streamdedup.json, the dashboard for Grafana: `python deploy/grafana/make.py`. A test keeps both together.

Its order is that of the worker's own page: is it well, what is wrong, what waits, what was decided, what is full. A gap
in a line means that nothing was scraped; it is never drawn as 0.
"""

from collections.abc import Sequence
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.common import (
    StackingConfig,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

PATH = Path(__file__).with_name("streamdedup.json")
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
RUNBOOK = "http://${__data.fields.instance}/runbook/${__data.fields.id}"
WIDTH = 24

WORKERS = 'job=~"$job"'
SHARDS = 'job=~"$job", topic=~"$topic"'
BY_PARTITION = "{{topic}}/{{partition}}"

Panel = stat.Panel | timeseries.Panel | table.Panel
Query = tuple[str, str]
"""An expression, and the legend of its lines."""

DESCRIPTION = (
    "Workers of streamdedup. Findings lead to the runbook that the worker itself serves. A gap means that nothing was"
    " scraped."
)


def _query(expression: str, legend: str = "", ref: str = "A") -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(ref)


def _now(title: str, meaning: str, expression: str, unit: str = "short") -> stat.Panel:
    """Return one number: what holds now."""
    panel = stat.Panel().title(title).description(meaning).unit(unit).height(4).span(4)
    return panel.datasource(SOURCE).with_target(_query(expression).instant())


def _lines(title: str, meaning: str, unit: str, *queries: Query, stacked: bool = False) -> Panel:
    """Return lines over time. A missing value is a gap."""
    panel = timeseries.Panel().title(title).description(meaning).unit(unit).height(8)
    panel.datasource(SOURCE).span_nulls(False).min(0).line_width(1)
    panel.fill_opacity(30 if stacked else 0)
    panel.stacking(StackingConfig().mode(StackingMode.NORMAL if stacked else StackingMode.NONE))
    legend = VizLegendOptions().display_mode(LegendDisplayMode.LIST).show_legend(True)
    panel.legend(legend.placement(LegendPlacement.BOTTOM))
    tooltip = VizTooltipOptions().mode(TooltipDisplayMode.MULTI)
    panel.tooltip(tooltip.sort(SortOrder.DESCENDING))
    for ref, (expression, legend_format) in zip("ABCDEF", queries, strict=False):
        panel.with_target(_query(expression, legend_format, ref).range())
    return panel


def _table(title: str, meaning: str, expression: str) -> table.Panel:
    """Return a row for each series that there is now, with its labels."""
    panel = table.Panel().title(title).description(meaning).height(6).span(12)
    hidden = dict.fromkeys(("Time", "Value", "__name__", "job"), True)
    shown = DataTransformerConfig(id_val="organize", options={"excludeByName": hidden})
    query = _query(expression).instant().format(PromQueryFormat.TABLE)
    return panel.datasource(SOURCE).with_target(query).transformations([shown])


def _well() -> Sequence[Panel]:
    findings = _table(
        "Findings",
        "What is not as it should be, by worker and id; a click leads to what to do.",
        f'streamdedup_finding{{{WORKERS}, severity=~"failure|warning"}} > 0',
    )
    findings.data_links([dashboard.DashboardLink("runbook").url(RUNBOOK).target_blank(True)])
    return [
        _now(
            "Workers ready",
            "Workers of which every assigned partition is live.",
            f"sum(streamdedup_ready{{{WORKERS}}})",
        ),
        _now(
            "Workers not ready",
            "Workers of which some events wait.",
            f"sum(1 - streamdedup_ready{{{WORKERS}}})",
        ),
        _now(
            "Failures",
            "Findings because of which events wait.",
            f'sum(streamdedup_finding{{{WORKERS}, severity="failure"}})',
        ),
        _now(
            "Warnings",
            "Findings because of which events are not decided as wanted, or soon not any more.",
            f'sum(streamdedup_finding{{{WORKERS}, severity="warning"}})',
        ),
        _now(
            "Partitions live",
            "Partitions whose events are decided.",
            f'sum(streamdedup_shard_state{{{SHARDS}, state="live"}})',
        ),
        _now(
            "Oldest unread event",
            "How long the oldest unread event of all partitions has waited.",
            f"max(streamdedup_oldest_unread_seconds{{{SHARDS}}})",
            "s",
        ),
        findings,
        _table(
            "Lists in force",
            "Name and version of each list, by worker.",
            f"streamdedup_list_info{{{WORKERS}}}",
        ),
    ]


def _waiting() -> Sequence[Panel]:
    return [
        _lines(
            "Age of the oldest unread event",
            "Since its timestamp, and at most since the last moment at which nothing was unread.",
            "s",
            (
                f"max by (topic, partition) (streamdedup_oldest_unread_seconds{{{SHARDS}}})",
                BY_PARTITION,
            ),
        ),
        _lines(
            "Lag",
            "Offsets from the next event to the end of the input.",
            "short",
            (
                f"sum by (topic, partition) (streamdedup_lag_offsets{{{SHARDS}}})",
                BY_PARTITION,
            ),
        ),
        _lines(
            "Partitions by state",
            "Events of a partition are decided while it is live.",
            "short",
            (f"sum by (state) (streamdedup_shard_state{{{SHARDS}}})", "{{state}}"),
            stacked=True,
        ),
    ]


def _decided() -> Sequence[Panel]:
    events = f"rate(streamdedup_events_total{{{SHARDS}}}[$__rate_interval])"
    duplicates = (
        f'rate(streamdedup_events_total{{{SHARDS}, verdict="duplicate"}}[$__rate_interval])'
    )
    return [
        _lines(
            "Verdicts",
            "Events of committed transactions a second.",
            "cps",
            (f"sum by (verdict) ({events})", "{{verdict}}"),
            stacked=True,
        ),
        _lines(
            "Share of duplicates",
            "Of all events; no line while there are no events.",
            "percentunit",
            (f"sum by (topic) ({duplicates}) / (sum by (topic) ({events}) > 0)", "{{topic}}"),
        ),
        _lines(
            "Commits",
            "Time from the begin to the commit of a transaction.",
            "s",
            *(
                (
                    f"histogram_quantile({share}, sum by (le) "
                    f"(rate(streamdedup_transaction_seconds_bucket{{{WORKERS}}}[$__rate_interval])))",
                    legend,
                )
                for share, legend in ((0.5, "median"), (0.99, "99 %"))
            ),
        ),
    ]


def _filters() -> Sequence[Panel]:
    of_capacity = (
        f"streamdedup_filter_keys{{{SHARDS}}} / streamdedup_filter_capacity_keys{{{SHARDS}}}"
    )
    return [
        _lines(
            "Keys of capacity",
            "At 100 % a filter has all keys with which it keeps its error rate.",
            "percentunit",
            (f"max by (topic, partition) ({of_capacity})", BY_PARTITION),
        ),
        _lines(
            "Error rate of what is allowed",
            "The probability that a new event is taken for a duplicate; above 100 % it is more than filter.error_rate.",
            "percentunit",
            (
                f"max by (topic, partition) (streamdedup_filter_error_ratio{{{SHARDS}}}"
                f" / streamdedup_filter_error_allowed_ratio{{{SHARDS}}})",
                BY_PARTITION,
            ),
        ),
        _lines(
            "Full in",
            "If keys go on growing as over the last hour. No line: not within sight.",
            "s",
            (
                f"min by (topic, partition) (streamdedup_filter_full_in_seconds{{{SHARDS}}} < Inf)",
                BY_PARTITION,
            ),
        ),
    ]


def _restarts() -> Sequence[Panel]:
    return [
        _lines(
            "Folds",
            "How much of the output is read again after a start or a doubt.",
            "percentunit",
            (
                f"min by (topic, partition) (streamdedup_fold_progress_ratio{{{SHARDS}}})",
                BY_PARTITION,
            ),
        ),
        _lines(
            "Age of the newest snapshot",
            "Old ones are no fault if nothing was emitted since: compare with what a restart would fold.",
            "s",
            (
                f"max by (topic, partition) (streamdedup_snapshot_age_seconds{{{SHARDS}}})",
                BY_PARTITION,
            ),
        ),
        _lines(
            "A restart would fold",
            "Output offsets that are not in the newest snapshot.",
            "short",
            (
                f"max by (topic, partition) (streamdedup_snapshot_behind_offsets{{{SHARDS}}})",
                BY_PARTITION,
            ),
        ),
    ]


def _process() -> Sequence[Panel]:
    ours = f"on (job, instance) group_left () streamdedup_ready{{{WORKERS}}} * 0"
    return [
        _lines(
            "Doubts",
            "Times a minute that the outcome of a transaction was unknown. Nothing is lost by one.",
            "short",
            (
                f"sum by (cause) (rate(streamdedup_doubts_total{{{SHARDS}}}[$__rate_interval])) * 60",
                "{{cause}}",
            ),
        ),
        _lines(
            "Longest stall of the event loop",
            "Within the last minute.",
            "s",
            (
                f"max by (instance) (streamdedup_loop_stall_max_seconds{{{WORKERS}}})",
                "{{instance}}",
            ),
        ),
        _lines(
            "Memory",
            "Resident memory of the process.",
            "bytes",
            (f"process_resident_memory_bytes + {ours}", "{{instance}}"),
        ),
        _lines(
            "Processor",
            "Processors that the process uses.",
            "short",
            (f"rate(process_cpu_seconds_total[$__rate_interval]) + {ours}", "{{instance}}"),
        ),
    ]


def _stages() -> Sequence[Panel]:
    copied = f"rate(streamdedup_repartition_events_total{{{WORKERS}}}[$__rate_interval])"
    return [
        _lines(
            "Copied to the middle topic",
            "Events a second, by topic of the input.",
            "cps",
            (f"sum by (topic) ({copied})", "{{topic}}"),
            stacked=True,
        ),
        _lines(
            "Not copied yet, not read yet",
            "Offsets that wait for the first stage, and those of the middle topic that wait for the second.",
            "short",
            (f"sum(streamdedup_repartition_lag_offsets{{{WORKERS}}})", "for the first stage"),
            (f"max(streamdedup_repartition_unread_offsets{{{WORKERS}}})", "for the second"),
        ),
        _lines(
            "Partitions that wait",
            "Stopped ones need you; held ones wait for slower ones.",
            "short",
            (f"sum(streamdedup_repartition_stopped_partitions{{{WORKERS}}})", "stopped"),
            (f"sum(streamdedup_repartition_held_partitions{{{WORKERS}}})", "held"),
        ),
    ]


def made() -> str:
    """Return the dashboard as Grafana imports it."""
    job = dashboard.QueryVariable("job").label("Job").query("label_values(streamdedup_ready, job)")
    topic = dashboard.QueryVariable("topic").label("Topic")
    topic.query('label_values(streamdedup_shard_state{job=~"$job"}, topic)')
    board = (
        dashboard.Dashboard("streamdedup")
        .description(DESCRIPTION)
        .tags(["streamdedup", "kafka"])
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Source").type("prometheus")
        )
    )
    for variable in (job, topic):
        variable.datasource(SOURCE).multi(True).include_all(True).all_value(".*")
        variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        board.with_variable(variable.sort(VariableSort.ALPHABETICAL_ASC))
    rows = {
        "": _well(),
        "What waits": _waiting(),
        "What is decided": _decided(),
        "Filters": _filters(),
        "What a restart takes": _restarts(),
        "The process": _process(),
        "source.repartition": _stages(),
    }
    for name, panels in rows.items():
        if name:
            board.with_row(dashboard.Row(name))
        for panel in panels:
            board.with_panel(panel.span(WIDTH // len(panels)) if name else panel)
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


if __name__ == "__main__":
    PATH.write_text(made(), "utf-8")
