"""A plan as a table for people, and as JSON for programs, with the same figures. docs/filters.md explains them."""

from collections.abc import Iterator
from typing import Any

from streamdedup.commands.plan.choice import Row
from streamdedup.commands.plan.compare import SNAPSHOTS_KEPT, Comparison, grouped
from streamdedup.commands.plan.sample import Sample
from streamdedup.commands.plan.speed import TABLE_BYTES_MAX
from streamdedup.filters.sizing import TABLE_HASHES_MAX, false_positive_table
from streamdedup.metrics.prevalence import EVENTS_MIN, SHARE_MIN
from streamdedup.threads import COPIES_MAX
from streamdedup.units import counted, sized

COLUMN_GAP = "  "


def as_json(plan: Comparison) -> dict[str, Any]:
    """Return the plan as plain JSON values; names and units are stable."""
    job, sample = plan.job, plan.sample
    return {
        "keys": job.keys,
        "keys_from": job.keys_from,
        "error_rate": job.error_rate,
        "removable": job.removable,
        "window_s": job.window_s,
        "events_per_s": job.rate,
        "events_per_s_from": job.rate_from or None,
        "partitions": job.partitions,
        "keys_per_filter": job.filter_keys,
        "lower_bound_bits_per_key": plan.bound_bits,
        "sample": _sample_json(sample) if sample else None,
        "kinds": [_row_json(plan, row) for row in plan.rows],
        "left_out": plan.left_out,
        "pick": plan.pick.kind,
        "because": list(plan.pick.because),
        "instead": plan.pick.instead,
    }


def _sample_json(sample: Sample) -> dict[str, Any]:
    return {
        "lines": sample.lines,
        "distinct": sample.distinct,
        "distinct_low": sample.distinct_low,
        "distinct_high": sample.distinct_high,
        "duplicates": sample.duplicates,
        "malformed": sample.malformed,
        "new_share": sample.new_share,
        "most_frequent": sample.most_frequent,
        "empty": sample.empty,
    }


def _row_json(plan: Comparison, row: Row) -> dict[str, Any]:
    bits = plan.bits_a_key(row)
    return {
        "kind": row.kind,
        "options": dict(row.size.options),
        "bits_per_key": bits,
        "filter_bytes": row.size.size_bytes,
        "memory_bytes": plan.memory_bytes(row),
        "snapshot_disk_bytes": plan.snapshot_disk_bytes(row),
        "times_lower_bound": bits / plan.bound_bits,
        "hashes": row.size.hashes,
        "error": row.size.error,
        "abilities": list(row.abilities),
        "add_ns": row.speed.add_ns,
        "contains_ns": row.speed.contains_ns,
        "snapshot_pause_s": row.pause_s,
        "false_drops_per_day": plan.false_drops_a_day(row),
    }


def as_text(plan: Comparison) -> str:
    """Return the plan for people: the job, a table, and which kind to pick."""
    return "\n\n".join("\n".join(part) for part in (_head(plan), _table(plan), _foot(plan)))


def _head(plan: Comparison) -> Iterator[str]:
    job = plan.job
    if plan.sample:
        yield _sample_text(plan.sample)
        yield from _warnings(plan.sample, job.keys)
    bound = plan.bound_bits
    yield (
        f"{counted(job.keys, 'key')} ({job.keys_from}) at an error rate of {job.error_rate:g}:"
        f" at least log2(1/{job.error_rate:g}) = {bound:.2f} bits a key, {sized(bound * job.keys / 8)}"
    )
    if job.partitions:
        yield (
            f"{counted(job.partitions, 'partition')}: a filter of {counted(job.filter_keys, 'key')} each,"
            " with headroom for skew; the memory is for all of them"
        )
    if job.rate is not None and job.new_keys_a_day is not None:
        rate = f"{job.rate:,.4g}" if job.rate >= 0.01 else "less than 0.01"
        yield (
            f"{rate} events a second ({job.rate_from}), {job.new_share:.1%} of them with a new key:"
            f" {counted(round(job.new_keys_a_day), 'new key')} a day"
        )


def _sample_text(sample: Sample) -> str:
    spread = f"{(sample.distinct_high - sample.distinct_low) / 2 / sample.distinct:.2%}"
    about = "" if spread == "0.00%" else f" (± {spread})"
    share = sample.duplicates / sample.lines
    return (
        f"sample of {counted(sample.lines, 'line')}: {counted(sample.distinct, 'distinct key')}{about},"
        f" {counted(sample.duplicates, 'duplicate')} ({share:.1%}), {sample.malformed:,} malformed"
    )


def _warnings(sample: Sample, keys: int) -> Iterator[str]:
    keyed = sample.lines - sample.malformed
    most, empty = sample.most_frequent / keyed, sample.empty / keyed
    if sample.distinct_low > keys:
        yield f"warning: the sample alone has more distinct keys than the {keys:,} that are planned for"
    warning = "warning: " if max(most, empty) >= SHARE_MIN and keyed >= EVENTS_MIN else ""
    doubt = ": is --key the right one?" if warning else ""
    yield f"{warning}{most:.1%} of the lines with a key have the most frequent one, {empty:.1%} an empty one{doubt}"


def _table(plan: Comparison) -> Iterator[str]:
    lines = [_titles(plan), *(_cells(plan, row) for row in plan.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for kind, *cells, abilities in lines:
        middle = (cell.rjust(width) for cell, width in zip(cells, widths[1:-1], strict=True))
        yield COLUMN_GAP.join([kind.ljust(widths[0]), *middle, abilities])


def _titles(plan: Comparison) -> list[str]:
    drops = [] if plan.job.rate is None else ["drops/day"]
    return [
        "kind", "bits/key", "memory", "x bound", "hashes", "error", "add ns", "contains ns", "pause", *drops, "can",
    ]  # fmt: skip


def _cells(plan: Comparison, row: Row) -> list[str]:
    bits, drops = plan.bits_a_key(row), plan.false_drops_a_day(row)
    return [
        row.kind,
        f"{bits:,.1f}",
        sized(plan.memory_bytes(row)),
        f"{bits / plan.bound_bits:,.2f}",
        str(row.size.hashes),
        f"{row.size.error:.3g}",
        f"{row.speed.add_ns:,.0f}",
        f"{row.speed.contains_ns:,.0f}",
        _pause(row.pause_s),
        *([] if drops is None else [_count(drops)]),
        ", ".join(row.abilities),
    ]


def _foot(plan: Comparison) -> Iterator[str]:
    yield f"pick {plan.pick.kind}: {'; '.join(plan.pick.because)}."
    if plan.job.partitions:
        picked = next(row for row in plan.rows if row.kind == plan.pick.kind)
        memory, disk = plan.memory_bytes(picked), plan.snapshot_disk_bytes(picked) or 0
        yield (
            f"  a worker with all partitions needs {sized(memory)} for its filters{_copies(plan, picked)}, and"
            f" {sized(disk)} of disk for their snapshots: {SNAPSHOTS_KEPT} of each (snapshot.keep), and the one that is"
            " being written"
        )
    for kind, when in plan.pick.instead.items():
        yield f"  or {kind} {when}"
    for reason, kinds in grouped(plan.left_out).items():
        yield f"left out: {', '.join(kinds)}: {reason}"
    yield (
        f"add, contains: ns a key on one core of this machine, in batches, tables up to {TABLE_BYTES_MAX >> 20} MiB;"
        " pause: how long a partition commits nothing during a snapshot, while its filter is copied"
    )


def _copies(plan: Comparison, picked: Row) -> str:
    """Return what snapshots take in addition, as text; empty if they need no copy."""
    if not picked.pause_s:
        return ""
    copies = min(COPIES_MAX, plan.job.partitions or 1)
    return f" and {sized(copies * picked.size.size_bytes)} for copies of {copies}, of which snapshots are written"


def _pause(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if not seconds:
        return "0"
    if seconds >= 0.01:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"
    return f"{seconds * 1e3:.2g} ms" if seconds >= 0.001 else "<1 ms"


def _count(number: float) -> str:
    if number >= 10:
        return f"{number:,.0f}"
    return f"{number:.2g}" if number >= 0.01 or not number else "<0.01"


def table_text() -> str:
    """Return the false-positive table of the literature, tab-separated: m/n, the best k, the errors for k = 1 to 8."""
    rows = [
        "\t".join([str(ratio), f"{best:.3g}", *(f"{error:.3g}" for error in errors)])
        for ratio, best, errors in false_positive_table()
    ]
    return "\n".join(
        ["\t".join(["m/n", "best_k", *(f"k={k}" for k in range(1, TABLE_HASHES_MAX + 1))]), *rows]
    )


def table_json() -> list[dict[str, Any]]:
    """Return the same table, one object for each row; `errors` are those for k = 1, 2, and so on."""
    return [
        {"bits_per_key": ratio, "best_hashes": best, "errors": errors}
        for ratio, best, errors in false_positive_table()
    ]
