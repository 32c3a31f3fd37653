"""Every metric of a worker, once: name, kind, unit, meaning, labels. docs/metrics.md is made from it.

Names follow Prometheus: base units, and `_total` for values that only grow. `topic` and `partition` are those of the
input, so its partitions bound the number of series. No label and no value holds a key.
"""

# How to add a metric (paths are below `streamdedup/`, unless they begin with another folder)
#
# 1. Here: a `Metric` with name, kind, unit, meaning and labels. By its definition it is in the list of all metrics.
# 2. If it is counted when something happens: a field in `metrics/counts.py`, and the code that counts. A state, which
#    is read at the scrape, needs neither.
# 3. `server/exposition.py`: the entry in one of its tables, or a `yield` if it belongs to the whole worker.
# 4. docs/metrics.md: `make docs` writes the tables; an alert, if one is worth having.
# 5. Tests: those of the page, of the alerts and of /metrics cover it: each name once, each served, none served that is
#    not in the catalogue. Whether its value is right needs an assertion in `test_pages.py`, which runs a worker on a
#    broker. The goldens of the metrics, and of the metrics as they are served, change.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram", "info"]

SHARD = ("topic", "partition")

DOUBTS: Mapping[str, str] = {
    "fenced": "another producer took over the output partition, or the broker forgot ours",
    "foreign_write": "the output holds records of another writer just before our events",
    "connection": "a connection was cut, refused or replaced",
    "timeout": "an answer did not come in time",
    "refused": "the broker refused a record; the shard tries smaller batches to find it",
    "unreadable": "the records that were fetched could not be parsed",
    "broker": "the broker answered with another error",
    "mismatch": "an offset is not what it must be",
    "other": "any other cause; the line `doubt` of the log names it",
}
"""Why an outcome was unknown, so that the shard fenced and asked the broker."""

TAKEN_BACK: Mapping[str, str] = {
    **DOUBTS,
    "full": "the filter had no more room",
    "slow": "its keys took so long to read that the transaction before them committed first",
    "held": "the first stage of `source.repartition` waits for slower partitions",
    "stopped": "the shard stopped; `/readyz` and the log give the reason",
    "left": "the worker lost the partition, or ended, in the middle of a transaction",
}
"""Why events that had been read were dropped before their commit, to be read again."""

TASKS: Mapping[str, str] = {
    "snapshots": "saves snapshots in time",
    "ends": "looks up the end of the input for partitions that are not live",
    "topics": "watches whether topics were deleted",
    "output": "watches whether another deployment writes to the output",
    "retention": "watches whether the output keeps its events as long as its filter needs them",
    "input": "watches for transactions of others that stay open on the input",
    "clocks": "compares clocks with the brokers",
    "others": "asks for the lag of the group's other partitions, while somebody looks",
    "lists": "loads lists that were replaced",
    "changes": "follows `blocklist.control_topic`",
    "group": "watches whether the group refuses this worker",
    "unread": "watches how much of the middle topic waits for the second stage",
    "heads": "watches how far the partitions of the input stand in event time",
    "inputs": "looks for topics that `source.pattern` matches",
    "middle": "watches whether another group reads the middle topic",
    "copying": "watches, beside the second stage alone, whether the first stage copies",
    "purge": "deletes from the middle topic what was read",
    "shard": "a partition's own task, which handles errors of delivery by itself",
}
"""What runs beside the events; an error there is tried again."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `bounds` are the upper ends of a histogram's buckets, in its unit, ascending."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


# --- the worker ---

BUILD = Metric(
    "streamdedup_build_info",
    "info",
    "1",
    "Always 1; the version of streamdedup and of Python.",
    ("version", "python"),
)
READY = Metric(
    "streamdedup_ready",
    "gauge",
    "0 or 1",
    "Whether every partition assigned to this worker is live; `/readyz` gives the reasons if not.",
)
FINDING = Metric(
    "streamdedup_finding",
    "gauge",
    "findings",
    "How many findings of this id are active: of partitions, topics or lists, or of the worker. `/readyz` has their"
    " texts, and [operate](operate.md#findings) says what each means.",
    ("id", "severity"),
)
SHADOW = Metric(
    "streamdedup_shadow",
    "gauge",
    "0 or 1",
    "Whether `sink.shadow` is set: every event passes, whatever its verdict.",
)
BROKER_AWAY = Metric(
    "streamdedup_broker_away_seconds",
    "gauge",
    "seconds",
    "How long the worker has waited for a broker that is away; 0 if nothing waits.",
)
REGISTRY_AWAY = Metric(
    "streamdedup_registry_away_seconds",
    "gauge",
    "seconds",
    "How long the worker has waited for a schema registry that is away; 0 if nothing waits.",
)
GROUP_REFUSES = Metric(
    "streamdedup_group_of_another_configuration",
    "gauge",
    "0 or 1",
    "Whether the group refuses this worker, because its members take other keys, or are other programs; `/readyz` names"
    " what is in force.",
)
OUTPUT_SHARED = Metric(
    "streamdedup_output_shared_partitions",
    "gauge",
    "partitions",
    "How many partitions of this worker another deployment fences again and again, because it writes to the same"
    " output; `/readyz` and the line `output_shared` name it.",
)
CLOCK_AHEAD = Metric(
    "streamdedup_clock_ahead_seconds",
    "gauge",
    "seconds",
    "By how much this machine's clock is ahead of the broker's that leads a partition of the output, negative if it is"
    " behind. `broker` is its node id. Absent while the broker's clock is unverified.",
    ("broker",),
)
TASK_ERRORS = Metric(
    "streamdedup_task_errors_total",
    "counter",
    "errors",
    "Errors that ended what runs beside the events, which was then started again; the line `task_failed` or"
    " `shard_died` of the log names them.",
    ("task",),
)
LOOP_STALL = Metric(
    "streamdedup_loop_stall_seconds",
    "histogram",
    "seconds",
    "How late the event loop ran a timer, measured 50 times a second. Nothing else ran during that time either.",
    bounds=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0),
)
LOOP_STALL_MAX = Metric(
    "streamdedup_loop_stall_max_seconds",
    "gauge",
    "seconds",
    "The longest stall in the last 60 s, including one that still lasts. Reading it changes nothing.",
)
LOG_LINES_DROPPED = Metric(
    "streamdedup_log_lines_dropped_total",
    "counter",
    "lines",
    "Lines of the log that were dropped, because nobody read it for so long that its queue was full, or because they"
    " could not be written. The line `log_lines_dropped` reports them once the log flows again.",
)
TRANSACTION = Metric(
    "streamdedup_transaction_seconds",
    "histogram",
    "seconds",
    "Time from the begin to the commit of a transaction with events; without transactions, of the events committed"
    " together.",
    bounds=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)

LIST = Metric(
    "streamdedup_list_info",
    "info",
    "1",
    "Always 1; name and version of each list in force. `list` is `allowlist` or `blocklist`.",
    ("list", "name", "version"),
)
LIST_REFUSED = Metric(
    "streamdedup_list_refused",
    "gauge",
    "0 or 1",
    "Whether the file of a list as it is now is refused, because it is damaged or does not fit: the previous list stays"
    " in force, and the next start of a worker fails. `list` is `allowlist` or `blocklist`.",
    ("list",),
)
LIST_REFUSALS = Metric(
    "streamdedup_list_refusals_total",
    "counter",
    "times",
    "Times that the file of a list was replaced by one that is damaged or does not fit; the previous list stays in"
    " force.",
    ("list",),
)
CHANGES_MALFORMED = Metric(
    "streamdedup_list_changes_malformed_total",
    "counter",
    "messages",
    "Messages of `blocklist.control_topic` that are malformed, and so change nothing.",
)
CHANGES_BEHIND = Metric(
    "streamdedup_list_changes_behind_seconds",
    "gauge",
    "seconds",
    "Time since `blocklist.control_topic` was last read to its end: a second or two, or more if it cannot be read, or"
    " if an open transaction hides what stands after it. Absent without such a topic.",
)
UNSEEN = Metric(
    "streamdedup_cross_partition_events_total",
    "counter",
    "events",
    "Events that passed although another partition of this worker had their key before; only in a sample of keys: all"
    " of them at first, and a smaller share above 65,536 keys.",
)
UNSEEN_SHARE = Metric(
    "streamdedup_cross_partition_duplicates_ratio",
    "gauge",
    "ratio",
    "The share of all duplicates that are missed because they are in another partition, estimated from that sample.",
)
KEYS_IN_SEVERAL_SHARE = Metric(
    "streamdedup_cross_partition_keys_ratio",
    "gauge",
    "ratio",
    "The share of the keys of that sample that came in several partitions of this worker.",
)

# --- the first stage of source.repartition ---

COPIED = Metric(
    "streamdedup_repartition_events_total",
    "counter",
    "events",
    "Events that the first stage of `source.repartition` has copied to the middle topic; `topic` and `partition` are"
    " those of the input.",
    SHARD,
)
COPY_LAG = Metric(
    "streamdedup_repartition_lag_offsets",
    "gauge",
    "offsets",
    "Offsets of the input that the first stage has not copied yet, of the partitions that it is assigned.",
)
COPY_STOPPED = Metric(
    "streamdedup_repartition_stopped_partitions",
    "gauge",
    "partitions",
    "Partitions of the input that the first stage has stopped to read; `/readyz` and the log give the reasons.",
)
INPUTS_LEFT_OUT = Metric(
    "streamdedup_repartition_inputs_left_out",
    "gauge",
    "topics",
    "Topics that match `source.pattern` and are not read, because they do not suit; `/readyz` and the line"
    " `input_refused` of the log name them, with the reasons.",
)
COPY_PAUSED = Metric(
    "streamdedup_repartition_paused",
    "gauge",
    "0 or 1",
    "Whether the first stage copies nothing, because more than `source.repartition.unread_max` events of a partition"
    " of the middle topic wait for the second stage.",
)
COPY_MISSING = Metric(
    "streamdedup_repartition_missing",
    "gauge",
    "0 or 1",
    "Whether events of the input wait to be copied, and the group of the first stage has had no members for a minute."
    " Only in a process that runs the second stage alone.",
)
COPY_HELD = Metric(
    "streamdedup_repartition_held_partitions",
    "gauge",
    "partitions",
    "Partitions of the input that the first stage does not copy now, because they would be more than"
    " `source.repartition.max_skew` ahead of slower ones in event time.",
)
MIDDLE_UNREAD = Metric(
    "streamdedup_repartition_unread_offsets",
    "gauge",
    "offsets",
    "Offsets of the middle topic, in all of its partitions, that the second stage has not committed yet. Every process"
    " of the first stage reports the same.",
)
PURGE_FAILED = Metric(
    "streamdedup_repartition_purge_failed_partitions",
    "gauge",
    "partitions",
    "Partitions of the middle topic from which the last purge could not delete what was read: their disks fill up.",
)
LAG_OF_ALL = Metric(
    "streamdedup_pipeline_lag_offsets",
    "gauge",
    "offsets",
    "Offsets that this process has not committed yet, over both stages of `source.repartition`; without it, those of"
    " all shards. A process that runs the second stage alone counts all offsets of the input that the first stage has"
    " not committed, whichever process copies them; it looks every 30 s.",
)

# --- events ---

EVENTS = Metric(
    "streamdedup_events_total",
    "counter",
    "events",
    "Events of committed transactions, by verdict.",
    (*SHARD, "verdict"),
)
CONSUMED = Metric(
    "streamdedup_events_consumed_total",
    "counter",
    "events",
    "Events that were read and are below the committed offset, counted by their offsets, whatever their verdicts.",
    SHARD,
)
BATCHES_SKIPPED = Metric(
    "streamdedup_batches_skipped_total",
    "counter",
    "record batches",
    "Record batches of the input below the committed offset that could not be read, and were skipped"
    " (`source.on_damaged: skip`); the line `batch_skipped` of the log has the offsets and the reason of each.",
    SHARD,
)
OFFSETS_SKIPPED = Metric(
    "streamdedup_offsets_skipped_total",
    "counter",
    "offsets",
    "Offsets of those record batches, each of which may have held an event. They have no verdict.",
    SHARD,
)
GAP_OFFSETS = Metric(
    "streamdedup_gap_offsets_total",
    "counter",
    "offsets",
    "Offsets of the input that were deleted before they were read, and passed over (`source.on_gap: skip`); the line"
    " `input_gap_skipped` of the log has them. Each may have held an event.",
    SHARD,
)
LEDGER_DIFFERENCE = Metric(
    "streamdedup_ledger_difference_events",
    "gauge",
    "events",
    "Events consumed minus the sum of the verdicts: always 0. Above 0, events got no verdict; below 0, some got"
    " several.",
    SHARD,
)
IN_FLIGHT = Metric(
    "streamdedup_in_flight_events",
    "gauge",
    "events",
    "Events that were read and are neither consumed nor taken back; 0 if there is nothing to do.",
    SHARD,
)
TAKEN = Metric(
    "streamdedup_events_taken_back_total",
    "counter",
    "events",
    "Events that were read and then dropped before their commit, by cause. They are read again, unless their"
    " transaction turns out to be committed.",
    (*SHARD, "cause"),
)
LATE = Metric(
    "streamdedup_events_late_total",
    "counter",
    "events",
    "Events later than the window, whether they passed or not; only with `filter.kind: window`.",
    SHARD,
)
UNTIMED = Metric(
    "streamdedup_events_untimed_total",
    "counter",
    "events",
    "Events without a timestamp, which have the time of the events before them; only with `filter.retention`.",
    SHARD,
)
LISTED = Metric(
    "streamdedup_events_listed_total",
    "counter",
    "events",
    "Events that the blocklist blocked, by the part of their key that is on it: `address` is the whole key, `domain`"
    " the domain of the address or the host of the URL, or a domain above it.",
    (*SHARD, "rule"),
)
EXEMPT = Metric(
    "streamdedup_events_exempt_total",
    "counter",
    "events",
    "Events that the blocklist matched and the allowlist exempted, so that the next rules judged them as any other.",
    SHARD,
)
VERIFIED = Metric(
    "streamdedup_events_verified_total",
    "counter",
    "events",
    "With `blocklist.on_positive: verify`, events whose key was looked up in the blocklist, by outcome. `absent`: the"
    " list does not match the whole key. `confirmed`: it does, and the exact store holds the key. `false_positive`: it"
    " does, and the store does not hold the key.",
    (*SHARD, "outcome"),
)
EXPECTED_FALSE = Metric(
    "streamdedup_false_duplicates_expected_total",
    "counter",
    "events",
    "New events that the filter is expected to have dropped as duplicates, by its error rate at each moment.",
    SHARD,
)
DOUBT = Metric(
    "streamdedup_doubts_total",
    "counter",
    "doubts",
    "Times that an outcome was unknown, by cause, so that the shard fenced, and folded to learn it from the broker.",
    (*SHARD, "cause"),
)

# --- shards ---

STATE = Metric(
    "streamdedup_shard_state",
    "gauge",
    "0 or 1",
    "1 for the shard's present state: assigned, fencing, folding, live, full or stopped.",
    (*SHARD, "state"),
)
LAG = Metric(
    "streamdedup_lag_offsets",
    "gauge",
    "offsets",
    "Offsets from the next event to the end of the input, including transaction markers. While the shard is not live,"
    " the end is looked up every 10 s. Absent until the broker has reported it.",
    SHARD,
)
OLDEST_UNREAD = Metric(
    "streamdedup_oldest_unread_seconds",
    "gauge",
    "seconds",
    "How long the oldest unread event of the input has waited: since its timestamp, or that of the event before it, and"
    " at most since the last moment at which nothing was unread; 0 if nothing is. For a partition that was behind when"
    " the worker began and is not live yet, at least that long. Absent until the end of the input is known.",
    SHARD,
)
PENDING = Metric(
    "streamdedup_pending_keys",
    "gauge",
    "keys",
    "Keys of events that were emitted in transactions not yet committed.",
    SHARD,
)
FILTER_KEYS = Metric(
    "streamdedup_filter_keys",
    "gauge",
    "keys",
    "Keys in the filter; with a window, in its live generations.",
    SHARD,
)
FILTER_CAPACITY = Metric(
    "streamdedup_filter_capacity_keys",
    "gauge",
    "keys",
    "The greatest number of keys with which the filter keeps `filter.error_rate`; with `on_full: grow`, after all"
    " growth.",
    SHARD,
)
FILL = Metric(
    "streamdedup_filter_fill_ratio",
    "gauge",
    "ratio",
    "The share of the filter's table that is in use; with `on_full: grow`, of all the memory that it may come to take."
    " Its value at capacity depends on the kind.",
    SHARD,
)
ERROR = Metric(
    "streamdedup_filter_error_ratio",
    "gauge",
    "ratio",
    "The probability that a new event is taken for a duplicate, at the present fill.",
    SHARD,
)
ERROR_ALLOWED = Metric(
    "streamdedup_filter_error_allowed_ratio",
    "gauge",
    "ratio",
    "The probability that `filter.error_rate` allows for the filter of this partition.",
    SHARD,
)
FILTER_BYTES = Metric(
    "streamdedup_filter_size_bytes",
    "gauge",
    "bytes",
    "The memory of the filter's table.",
    SHARD,
)
FILTER_FULL_IN = Metric(
    "streamdedup_filter_full_in_seconds",
    "gauge",
    "seconds",
    "The time until the filter is full (`streamdedup_filter_capacity_keys`) if its keys go on growing as over the last"
    " hour, or since it is live; `+Inf` if they do not, or if a young window forgets its first keys before. Absent for"
    " the first ten minutes, and for a window by count, which is never full.",
    SHARD,
)

# --- folds ---

FOLD_START = Metric(
    "streamdedup_fold_start_offset",
    "gauge",
    "offset",
    "The output offset at which the last fold began: the label of a snapshot, or of the filter in memory.",
    SHARD,
)
FOLD_POSITION = Metric(
    "streamdedup_fold_position_offset",
    "gauge",
    "offset",
    "The output offset that the last fold has reached.",
    SHARD,
)
FOLD_END = Metric(
    "streamdedup_fold_end_offset",
    "gauge",
    "offset",
    "The output offset at which the last fold ends.",
    SHARD,
)
FOLD_PROGRESS = Metric(
    "streamdedup_fold_progress_ratio",
    "gauge",
    "ratio",
    "How much of the last fold is done; 1 when it is over.",
    SHARD,
)
FOLD_SECONDS = Metric(
    "streamdedup_fold_seconds",
    "gauge",
    "seconds",
    "How long the last fold took, or has taken so far.",
    SHARD,
)
FOLDED = Metric(
    "streamdedup_fold_events_total",
    "counter",
    "events",
    "Events of the output that were folded.",
    SHARD,
)

# --- snapshots ---

SNAPSHOT_AGE = Metric(
    "streamdedup_snapshot_age_seconds",
    "gauge",
    "seconds",
    "Time since the newest snapshot was written, by this worker or by another one whose snapshot was loaded.",
    SHARD,
)
SNAPSHOT_BEHIND = Metric(
    "streamdedup_snapshot_behind_offsets",
    "gauge",
    "offsets",
    "Output offsets that are not in the newest snapshot, so that a restart would fold them. At 0, no snapshot is due.",
    SHARD,
)
SNAPSHOT_BYTES = Metric(
    "streamdedup_snapshot_size_bytes",
    "gauge",
    "bytes",
    "The size of the newest snapshot.",
    SHARD,
)
SNAPSHOTS_SAVED = Metric(
    "streamdedup_snapshots_saved_total",
    "counter",
    "snapshots",
    "Snapshots that were written.",
    SHARD,
)
SNAPSHOTS_FAILED = Metric(
    "streamdedup_snapshots_failed_total",
    "counter",
    "snapshots",
    "Snapshots that could not be written. Delivery goes on, and the next snapshot is tried as usual.",
    SHARD,
)
SNAPSHOTS_REFUSED = Metric(
    "streamdedup_snapshots_refused_total",
    "counter",
    "snapshots",
    "Snapshots that were found and not used: damaged, made with other settings, or of another log.",
    SHARD,
)

# --- the process, as prometheus-client reads it from /proc; on Linux only ---

PROCESS = (
    Metric("process_virtual_memory_bytes", "gauge", "bytes", "Virtual memory size in bytes."),
    Metric("process_resident_memory_bytes", "gauge", "bytes", "Resident memory size in bytes."),
    Metric(
        "process_start_time_seconds",
        "gauge",
        "seconds since 1970",
        "Start time of the process since unix epoch in seconds.",
    ),
    Metric(
        "process_cpu_seconds_total",
        "counter",
        "seconds",
        "Total user and system CPU time spent in seconds.",
    ),
    Metric("process_open_fds", "gauge", "descriptors", "Number of open file descriptors."),
    Metric("process_max_fds", "gauge", "descriptors", "Maximum number of open file descriptors."),
)

METRICS: tuple[Metric, ...] = (
    *(metric for metric in tuple(globals().values()) if isinstance(metric, Metric)),
    *PROCESS,
)
"""All metrics, in the order of their definitions above."""


def reference_markdown() -> str:
    """Return the tables of docs/metrics.md: every metric, then the causes and tasks that are values of labels."""
    rows = [
        f"| `{m.name}` | {m.kind} | {m.unit} | {', '.join(f'`{label}`' for label in m.labels)} | {m.meaning} |"
        for m in METRICS
    ]
    causes = [f"| `{cause}` | {meaning} |" for cause, meaning in TAKEN_BACK.items()]
    tasks = [f"| `{task}` | {meaning} |" for task, meaning in TASKS.items()]
    head = ["| Name | Kind | Unit | Labels | Meaning |", "|---|---|---|---|---|"]
    return (
        "\n".join(
            [
                *head,
                *rows,
                *("", "| `cause` | Meaning |", "|---|---|", *causes),
                *("", "| `task` | What it does |", "|---|---|", *tasks),
            ]
        )
        + "\n"
    )
