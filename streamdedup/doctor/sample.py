"""Checks of a sample of the newest events, as `streamdedup try` takes it: keys, partitions, the filter's capacity.

The caller takes the sample, and passes it: what judges events is on a higher floor.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from streamdedup.delivery.cross_partition import REMEDY, Evidence
from streamdedup.doctor.lines import Line, ok, unknown, warning
from streamdedup.events import Verdict
from streamdedup.metrics.findings import ACROSS_PARTITIONS, VERDICT_PREVAILS
from streamdedup.metrics.prevalence import EVENTS_MIN, LATE, REMEDIES, SHARE_MIN, WATCHED
from streamdedup.units import counted, lasting

REASONS_MAX = 3  # that are shown


class Fitted(Protocol):
    """How the keys of the sample fit the filter."""

    @property
    def capacity(self) -> int:
        """`filter.capacity`."""

    @property
    def window_ms(self) -> int | None:
        """How long keys are remembered; None if that is not bounded."""

    @property
    def busiest(self) -> int:
        """The most distinct keys that are remembered at once."""

    @property
    def keyed(self) -> int:
        """How many events have a key."""

    @property
    def frequent(self) -> int:
        """How many events have the most frequent key."""

    @property
    def frequent_at(self) -> tuple[str, int, int]:
        """Topic, partition and offset of the first of them."""

    @property
    def empty(self) -> int:
        """How many events have an empty key."""

    @property
    def span_ms(self) -> int:
        """From the first event time to the last."""

    @property
    def is_too_small(self) -> bool:
        """Whether the sample alone has more keys than the capacity."""

    @property
    def has_odd_keys(self) -> bool:
        """Whether so many events have one key that it is probably wrong."""


class Sampled(Protocol):
    """A sample of the newest events, judged. `commands.trial.Trial` is one."""

    topic: str
    events: int
    verdicts: Counter[Verdict]
    reasons: Counter[str]
    first: dict[str, tuple[str, int, int, str]]
    late: int
    distinct: int

    @property
    def fields(self) -> object | None:
        """The fields that many events have, as text; None unless an event is malformed by a field."""

    @property
    def evidence(self) -> Evidence | None:
        """What is known of keys in several partitions."""

    @property
    def suspicion(self) -> str | None:
        """Why partitions were perhaps not chosen by the key."""

    @property
    def fit(self) -> Fitted | None:
        """How the keys fit the filter."""


def keys(found: Sampled) -> Iterator[Line]:
    """Yield whether most events have a usable key."""
    if not found.events:
        yield unknown(
            "the input holds no event, so nothing is known of its keys",
            "run this again later",
            found.topic,
        )
        return
    share = min(found.events, max(EVENTS_MIN, SHARE_MIN * found.events))
    odd = {verdict: found.verdicts[verdict] for verdict in WATCHED}
    newest = f"the newest {counted(found.events, 'event')}"
    wrong = False
    for verdict, events in odd.items():
        if events >= share:
            wrong = True
            yield warning(
                f"{events:,} of {newest} are {verdict.name.lower()}: {_reasons(found)}",
                f"{_remedy(found, verdict)}; `streamdedup try` shows more",
                found.topic,
                VERDICT_PREVAILS,
            )
    if found.late >= share:
        wrong = True
        yield warning(
            f"{found.late:,} of {newest} are later than the window",
            REMEDIES[LATE],
            found.topic,
            VERDICT_PREVAILS,
        )
    if not wrong:
        few = "".join(f"; {n:,} {v.name.lower()}" for v, n in odd.items() if n)
        keys_ = counted(found.distinct, "distinct key")
        yield ok(f"{keys_} among {newest}{few}", found.topic)


def _remedy(found: Sampled, verdict: Verdict) -> str:
    if verdict is Verdict.REJECTED:
        return "raise the limit that the reason names, or have the producer correct the events"
    fields = f" (fields that a tenth of them have: {found.fields})" if found.fields else ""
    return f"correct key.field or key.format, or have the producer correct the events{fields}"


def _reasons(found: Sampled) -> str:
    shown = []
    for reason, events in found.reasons.most_common(REASONS_MAX):
        topic, partition, offset, _byte = found.first[reason]
        shown.append(f"{events:,} times {reason} (first at {topic}/{partition}, offset {offset})")
    return ", ".join(shown)


def partitions(found: Sampled) -> Iterator[Line]:
    """Yield whether events of one key are in one partition."""
    if evidence := found.evidence:
        yield warning(evidence.text, REMEDY, found.topic, ACROSS_PARTITIONS)
    elif suspected := found.suspicion:
        yield warning(
            suspected, f"if yours does not choose it by the key alone, {REMEDY}", found.topic
        )
    elif not found.events:
        yield unknown("the input holds no event", "run this again later", found.topic)
    else:
        yield ok("no key of the sample is in two partitions", found.topic)


def frequent(found: Sampled) -> Iterator[Line]:
    """Yield whether one key, or the empty one, has so many events that it is probably wrong."""
    fit = found.fit
    if fit is None or not fit.keyed:
        yield unknown(
            "no event of the sample is compared", "see the line of sample-keys", found.topic
        )
        return
    topic, partition, offset = fit.frequent_at
    said = (
        f"the most frequent key has {fit.frequent / fit.keyed:.1%} of the events with a key (first at"
        f" {topic}/{partition}, offset {offset}), {fit.empty / fit.keyed:.1%} have an empty one"
    )
    if fit.has_odd_keys:
        yield warning(said, "look whether `key` names the right field", found.topic)
    else:
        yield ok(said, found.topic)


def capacity(found: Sampled) -> Iterator[Line]:
    """Yield whether the filter is large enough for the keys of the sample, at their rate."""
    fit = found.fit
    if fit is None:
        yield unknown(
            "the keys of the sample are not compared with a capacity: there are none, no filter, or a window by count",
            "none if that is so on purpose",
            found.topic,
        )
        return
    window = "" if fit.window_ms is None else f" within any {lasting(fit.window_ms)}"
    held = f"{fit.busiest:,} distinct keys{window} in the sample, and filter.capacity is {fit.capacity:,}"
    if fit.is_too_small:
        yield warning(held, "raise it to as many keys as are remembered at once", found.topic)
    elif fit.window_ms is None and fit.span_ms and fit.busiest:
        left = lasting(fit.span_ms * fit.capacity / fit.busiest)
        yield ok(f"{held}: used up in about {left} if new keys come at this rate", found.topic)
    else:
        yield ok(held, found.topic)
