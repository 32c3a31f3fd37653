"""Claims about an output that deletes events before its filter forgets their keys; over a broker in memory."""

from dataclasses import replace
from typing import Any

import pytest

from streamdedup.kafka.retention import PLACE_BYTES_MAX
from tests.local import LocalWorker
from tests.memory import Stage, over, page

WINDOW = {"kind": "window", "retention": "7d", "capacity": 1000}
DAY_MS = 86_400_000


def forgets(worker: LocalWorker) -> bool:
    """Whether `/readyz`, which is ready, warns of it."""
    ready = page(worker)
    assert ready.status == 200
    return "warning: unique deletes events (retention.ms=604800000)" in ready.text


@pytest.mark.finding("output-forgets-first")
@pytest.mark.parametrize("filter_", [{"capacity": 1000}, WINDOW], ids=["for ever", "a window"])
@over(Stage)
async def test_an_output_that_forgets_first_is_warned_of_while_it_does(
    stage: Stage, filter_: dict[str, Any]
) -> None:
    """At the start and at `/readyz`; once its retention is raised, no more."""
    stage.deployment.config |= {"filter": filter_, "sink": {"topic": "unique"}}
    stage.broker.create_topic("unique", retention_ms=7 * DAY_MS)
    worker = await stage.started()
    assert forgets(worker)
    [line] = worker.lines("output_forgets_first")
    assert line["remedy"].startswith("set retention.ms=")
    output = stage.broker.topics["unique"]
    kept = {**output.topic.settings, "retention.ms": "-1"}
    output.topic = replace(output.topic, settings=kept)
    await worker.until(lambda: not forgets(worker), "end of the warning")
    assert len(worker.lines("output_forgets_first")) == 1


@pytest.mark.parametrize(
    ("filter_", "kept"),
    [({"capacity": 1000}, "-1"), ({**WINDOW, "generations": 8}, str(8 * DAY_MS))],
)
@over(Stage)
async def test_an_output_that_is_made_forgets_nothing_that_is_remembered(
    stage: Stage, filter_: dict[str, Any], kept: str
) -> None:
    """Side topics keep their events as long as the input does."""
    sink = {"topic": "unique", "dead_letter_topic": "letters", "create_topics": True}
    stage.deployment.config |= {"filter": filter_, "sink": sink}
    topics = stage.broker.topics
    del topics[stage.source], topics[stage.sink]
    stage.broker.create_topic(stage.source, retention_ms=DAY_MS)
    worker = await stage.started()
    assert not worker.lines("output_forgets_first")
    made = {name: topic.topic.settings["retention.ms"] for name, topic in topics.items()}
    assert made == {stage.source: str(DAY_MS), "unique": kept, "letters": str(DAY_MS)}


@pytest.mark.parametrize("are_letters", [False, True])
@over(Stage)
async def test_a_topic_for_duplicates_that_is_made_takes_what_the_output_takes(
    stage: Stage, are_letters: bool
) -> None:
    """Else it would be made, and then refused, because it takes less than the output that is there.

    With headers for each, it takes the largest event of the output and these.
    """
    stage.config["sink"]["duplicates_headers"] = are_letters
    stage.broker.delete_topic(stage.sink)
    stage.broker.create_topic(stage.sink, max_message_bytes=5_000_000)
    stage.config["sink"] |= {"create_topics": True, "duplicates_topic": "duplicates"}
    worker = await stage.started()
    assert [line["topic"] for line in worker.lines("topic_created")] == ["duplicates"]
    made = stage.broker.topics["duplicates"].topic.bytes_max
    assert made == 5_000_000 + are_letters * PLACE_BYTES_MAX
