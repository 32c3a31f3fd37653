"""The two stages of `source.repartition`, each as the settings that it runs with.

The first stage copies each event of the input to the partition of the middle topic that its key decides, and judges
nothing. The second is a worker whose input is the middle. A stage's settings break a rule of the tree, because its
input or output is the middle topic itself; they are derived from checked settings, and never checked again.
"""

from streamdedup.filters.options import UNUSED_CAPACITY, WITHOUT_FILTER, FilterOptions
from streamdedup.kafka.options import RepartitionOptions
from streamdedup.settings.sections import AllowlistOptions, BlocklistOptions
from streamdedup.settings.tree import REPARTITION_SUFFIX, Settings

SKEW_SHARE = 8  # of filter.retention, the default of max_skew


def copying(settings: Settings) -> Settings:
    """Return what the first stage runs with. Raises ValueError if `settings` have no `source.repartition`.

    It has a group of its own, writes to the middle topic exactly once, and has neither a filter nor lists. An event
    that the middle refuses becomes a dead letter, as in `settings`.
    """
    middle = _repartition(settings).topic
    hash_options = {name: getattr(settings.filter, name) for name in WITHOUT_FILTER}
    nothing = {"kind": "none", "capacity": UNUSED_CAPACITY, "on_full": "stop"}
    nowhere = {"duplicates_topic": None, "duplicates_headers": False, "blocked_topic": None}
    sink = {"topic": middle, **nowhere, "shadow": False}
    return settings.model_copy(
        update={
            "kafka": settings.kafka.model_copy(update={"group_id": copying_group(settings)}),
            "allowlist": AllowlistOptions(),
            "blocklist": BlocklistOptions(),
            "filter": FilterOptions.model_construct(**{**hash_options, **nothing}),
            "sink": settings.sink.model_copy(update=sink),
            "delivery": settings.delivery.model_copy(update={"guarantee": "exactly_once"}),
        }
    )


def deduplicating(settings: Settings) -> Settings:
    """Return what the second stage runs with. Raises ValueError if `settings` have no `source.repartition`.

    `source.start`, `on_gap` and `on_growth` are about the input, and do not hold for the middle topic: it is read from
    its first event on, without a gap, and never grows. A window covers `max_skew_ms` more, by which partitions of the
    input may be apart in the middle.
    """
    update = {
        **_one(_repartition(settings).topic),
        "start": "earliest",
        "on_gap": "stop",
        "on_growth": "refuse",
    }
    source = settings.source.model_copy(update=update)
    skew_ms = max_skew_ms(settings)
    if skew_ms is None:
        return settings.model_copy(update={"source": source})
    longer = {"retention": (settings.filter.retention or 0) + skew_ms}
    filter_ = settings.filter.model_copy(update=longer)
    return settings.model_copy(update={"source": source, "filter": filter_})


def of_input(settings: Settings, topic: str) -> Settings:
    """Return `settings` with `topic`, one of their inputs, as the topic that is read."""
    return settings.model_copy(update={"source": settings.source.model_copy(update=_one(topic))})


def _one(topic: str) -> dict[str, str | None]:
    return {"topic_": topic, "topics": None, "pattern": None}


def max_skew_ms(settings: Settings) -> int | None:
    """Return how far partitions of the input may be apart in event time, in ms, given the settings as written.

    None if that does not matter: the filter does not forget by time.
    """
    if not settings.filter.by_event_time:
        return None
    retention = settings.filter.retention or 0
    return _repartition(settings).max_skew or max(1, retention // SKEW_SHARE)


def reads_middle(settings: Settings) -> bool:
    """Whether these settings are those of the second stage."""
    repartition = settings.source.repartition
    return repartition is not None and settings.source.topic_ == repartition.topic


def copying_group(settings: Settings) -> str:
    """Return the group of the first stage, given the settings as they were written."""
    return f"{settings.kafka.group_id}{REPARTITION_SUFFIX}"


def _repartition(settings: Settings) -> RepartitionOptions:
    if settings.source.repartition is None:
        raise ValueError("source.repartition is not set, so there is one stage")
    return settings.source.repartition
