"""`streamdedup status URL`: how a worker is, from its `/api/status`, for a terminal.

Nothing of a worker is imported here. What the worker answers is data: only what has the shape of its document is shown.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamdedup import shape
from streamdedup.commands.worker_server import WorkerServer, refusal_of
from streamdedup.errors import StreamdedupError
from streamdedup.units import counted, moment

PATH = "/api/status?local"
COLUMNS_MIN = 79  # the table needs them
FINDINGS_MAX = 10
NOT_PASSED_MAX = 10
OTHERS_MAX = 20
FAILED, WARNED = 2, 3  # as the exit statuses of `doctor`

Values = Mapping[str, Any]

# What an operator looks at first: partitions that stand still, then those that are not live yet.
_BY_TROUBLE = ("stopped", "full", "fencing", "folding", "assigned")


class Seen:
    """A worker as it answered. StreamdedupError if it did not."""

    def __init__(self, server: WorkerServer) -> None:
        answered = server.get(PATH)
        if answered.status != 200:
            raise refusal_of(answered, server)
        found = shape.read(answered.body)
        if found is None:
            raise StreamdedupError(
                f"{server.name}: what answers there is no worker of this version",
                remedy="give the URL of its server.host and server.port, and use the same version here",
            )
        self._document: Values = found

    @property
    def exit_status(self) -> int:
        """2 if a finding is a failure, 3 if one is a warning, else 0."""
        severities = {found["severity"] for found in self._document["findings"]}
        return FAILED if "failure" in severities else WARNED if "warning" in severities else 0

    def as_json(self) -> str:
        """Return the document."""
        return json.dumps(self._document)

    def as_text(self, columns: int) -> list[str]:
        """Return the lines for a person. Each is at most `columns` long, or `COLUMNS_MIN`."""
        made, at = self._document, self._document["at"]
        parts = (
            _head(made, at),
            _findings(made["findings"], at),
            _partitions(made["shards"], at),
            _stages(made["stages"]),
            map(_list, made["lists"]),
            _others(made["others"]),
            _not_passed(made["not_passed"]),
        )
        lines = list[str]()
        for part in parts:
            if found := list(part):
                lines += [*([""] if lines else []), *found]
        return [short for line in lines for short in _wrapped(line, max(columns, COLUMNS_MIN))]


def _wrapped(line: str, columns: int) -> list[str]:
    """Return a line in pieces; those after the first begin below its text."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(
        line, columns, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False
    ) or [""]


def _head(made: Values, at: float) -> Iterator[str]:
    worker, ready, totals = made["worker"], made["ready"], made["totals"]
    since = f"for {_ago(ready['since'], at)}"
    yield f"{'READY' if ready['is'] else 'NOT READY'} {since}: {ready['sentence']}"
    yield (
        f"{worker['name']}, {worker['version']}, {worker['phase']}, up {_ago(worker['up_since'], at)};"
        f" group {worker['group']}, {worker['delivery']}, {worker['filter']}"
    )
    if not worker["judges"]:
        return
    minute = totals["minute"]
    kinds = ", ".join(f"{count:,} {name}" for name, count in minute.items() if count)
    yield (
        f"{worker['topic']} to {worker['output']}: {totals['rate']:,.0f} events/s, lag {totals['lag']:,};"
        f" last minute: {kinds or 'no events'}"
    )


def _findings(findings: Sequence[Values], at: float) -> Iterator[str]:
    for found in findings[:FINDINGS_MAX]:
        yield from _finding(found, at)
    if (more := len(findings) - FINDINGS_MAX) > 0:
        yield f"{counted(more, 'more finding')}; --json has all"


def _finding(found: Values, at: float) -> Iterator[str]:
    place = f" {found['place']}" if found["place"] else ""
    age = f", {_ago(found['since'], at)}" if found["since"] is not None else ""
    yield f"{found['severity']} [{found['id']}]{place}{age}: {found['sentence']}"
    if found["remedy"]:
        yield f"  {found['remedy']}"


_HEADING = (
    f"{'part':>5} {'state':<8} {'for':>6} {'lag':>11} {'oldest':>6} {'per s':>8} {'keys':>6} {'of':>4} {'error':>7}"
    f" {'snapshot':>8}"
)


def _partitions(shards: Sequence[Values], at: float) -> Iterator[str]:
    if shards:
        yield _HEADING
    for shard in sorted(shards, key=_trouble):
        yield _partition(shard, at)


def _trouble(shard: Values) -> tuple[bool, int, int]:
    state = shard["state"]
    rank = _BY_TROUBLE.index(state) if state in _BY_TROUBLE else len(_BY_TROUBLE)
    return not shard["trouble"], rank, shard["partition"]


def _partition(shard: Values, at: float) -> str:
    keys, capacity, fold = shard["keys"], shard["capacity"], shard["fold"]
    snapshot, error = shard["snapshot"], shard["error_rate"]
    state = f"fold {fold['ratio']:.0%}" if fold else shard["state"]
    share = f"{keys / capacity:.0%}" if keys is not None and capacity else "-"
    return (
        f"{shard['partition']:>5} {state:<8} {_ago(shard['since'], at):>6} {_count(shard['lag']):>11}"
        f" {_span(shard['oldest_unread_s']):>6} {shard['rate']:>8,.0f} {_short(keys):>6} {share:>4}"
        f" {'-' if error is None else f'{error:.1e}':>7} {_span(snapshot and snapshot['age_s']):>8}"
    )


def _stages(stages: Values | None) -> Iterator[str]:
    copying, judging = (stages or {}).get("copying"), (stages or {}).get("judging")
    if copying:
        why = copying["paused"] or ("" if copying["ready"] else "not yet")
        yield (
            f"copying {copying['topic']} to {copying['middle']}: {copying['rate']:,.0f} events/s,"
            f" lag {copying['lag']:,}, {counted(copying['partitions'], 'partition')}{f'; {why}' if why else ''}"
        )
    if judging:
        uncopied = judging["uncopied"]
        more = "" if uncopied is None else f", {uncopied:,} of the input not copied"
        yield f"judging {judging['middle']}: lag {judging['lag']:,}{more}"


def _list(found: Values) -> str:
    changes = f", {counted(found['changes'], 'change')}" if found["changes"] else ""
    refused = f"; its file as it is now is refused: {found['refused']}" if found["refused"] else ""
    return f"{found['list']} {found['name']} {found['version']}: {_count(found['keys'])} keys{changes}{refused}"


def _others(others: Sequence[Values]) -> Iterator[str]:
    for other in others[:OTHERS_MAX]:
        owner = f"{other['owner']} at {other['host']}" if other["owner"] else "nobody, or unknown"
        yield f"{other['topic']}/{other['partition']}: {owner}, lag {_count(other['lag'])}"
    if (more := len(others) - OTHERS_MAX) > 0:
        yield f"{counted(more, 'partition')} more that other workers have"


def _not_passed(events: Sequence[Values]) -> Iterator[str]:
    if events:
        yield "did not pass lately:"
    for event in events[:NOT_PASSED_MAX]:
        time = event["event_time_ms"]
        when = "" if time is None else f", of {moment(time)}"
        place = f"{event['topic']}/{event['partition']}/{event['offset']}"
        yield f"  {event['verdict']:<9} {place}{when}: {event['reason']}"


def _ago(since: float | None, at: float) -> str:
    return "-" if since is None else _span(max(0.0, at - since))


def _span(seconds: float | None) -> str:
    """Return a span in at most 6 characters: `0.4s`, `12s`, `21min`, `3d`."""
    if seconds is None:
        return "-"
    for unit, worth in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * worth:
            return f"{seconds / worth:.0f}{unit}"
    return f"{seconds:.1f}s" if 0 < seconds < 10 else f"{seconds:.0f}s"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _short(keys: int | None) -> str:
    """Return a number of keys in at most 6 characters: `640`, `12k`, `4.66M`."""
    if keys is None:
        return "-"
    for unit, worth in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if keys >= worth:
            return f"{keys / worth:.3g}{unit}"
    return str(keys)
