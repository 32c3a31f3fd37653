"""Claims about how long an output keeps its events, compared with how long its filter remembers their keys."""

from streamdedup.kafka.retention import output_settings, settings_like, shortfall
from streamdedup.kafka.topics import Topic
from tests.rows import table

DAY_MS = 86_400_000


def topic(**settings: str) -> Topic:
    """A topic with these settings, in which `_` stands for `.`."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Topic("out", None, 1, 1, settings=given)


@table(
    [
        (None, topic(retention_ms="86400000"), "-1"),
        (None, topic(), "-1"),
        (8 * DAY_MS, topic(retention_ms="86400000"), str(8 * DAY_MS)),
        (8 * DAY_MS, topic(retention_ms=str(30 * DAY_MS)), str(30 * DAY_MS)),
        (8 * DAY_MS, topic(retention_ms="-1"), "-1"),
        (8 * DAY_MS, topic(), str(8 * DAY_MS)),
    ]
)
def test_a_new_output_keeps_what_its_filter_remembers(
    remembered_ms: int | None, source: Topic, kept: str
) -> None:
    """At least as long as the input, and whatever its size; side topics are like the input."""
    settings = output_settings(source, remembered_ms)
    assert (settings["retention.ms"], settings["retention.bytes"]) == (kept, "-1")
    assert shortfall(Topic("out", None, 1, 1, settings=settings), remembered_ms) is None
    assert settings_like(source).get("retention.ms") == source.settings.get("retention.ms")


def test_without_a_filter_a_new_output_is_like_the_input() -> None:
    """Nothing is folded from it."""
    source = topic(retention_ms="1000")
    assert output_settings(source, 0) == settings_like(source)
    assert shortfall(topic(retention_ms="1000"), 0) is None


@table(
    [
        (None, {"retention_ms": "604800000"}, "set retention.ms=-1 on out"),
        (None, {"retention_ms": "-1", "retention_bytes": "9"}, "set retention.bytes=-1 on out"),
        (8 * DAY_MS, {"retention_ms": "604800000"}, "set retention.ms=691200000 or more on out"),
        (DAY_MS, {"retention_bytes": "9"}, "set retention.bytes=-1 on out"),
        (None, {"retention_ms": "-1", "retention_bytes": "-1"}, None),
        (None, {}, None),  # not known
        (7 * DAY_MS, {"retention_ms": "604800000"}, None),
    ]
)
def test_what_falls_short_is_named_with_its_remedy(
    remembered_ms: int | None, settings: dict[str, str], remedy: str | None
) -> None:
    """By the topic, its setting, and the value that it needs. What suffices, or is not reported, is not said."""
    short = shortfall(topic(**settings), remembered_ms)
    if remedy is None:
        assert short is None
    else:
        assert short is not None
        assert short.reason.startswith("out deletes events (retention.")
        assert short.remedy.startswith(remedy)
