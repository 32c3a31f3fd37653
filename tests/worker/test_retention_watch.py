"""Claims about an output that deletes events before its filter forgets their keys; over a broker in memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.testing import MemoryBroker, connected_to
from tests.deployment import Deployment
from tests.local import LocalWorker, Start, on_virtual_clock

WINDOW = {"kind": "window", "retention": "7d", "capacity": 1000}
DAY_MS = 86_400_000


def forgets(worker: LocalWorker) -> bool:
    """Whether `/readyz` warns of it."""
    page = pages(worker.worker.status, Pulse())["/readyz"]()
    assert page.status == 200
    return "warning: unique deletes events (retention.ms=604800000)" in page.text


@pytest.mark.parametrize("filter_", [{"capacity": 1000}, WINDOW], ids=["for ever", "a window"])
def test_an_output_that_forgets_first_is_warned_of_while_it_does(
    tmp_path: Path, filter_: dict[str, Any]
) -> None:
    """At the start and at `/readyz`, which is ready; once its retention is raised, no more."""

    async def scene(start: Start) -> None:
        broker, deployment = MemoryBroker(), Deployment("memory:1", tmp_path, partitions=1)
        deployment.sink = "unique"
        deployment.config |= {"filter": filter_, "sink": {"topic": "unique"}}
        broker.create_topic(deployment.source)
        broker.create_topic("unique", retention_ms=7 * DAY_MS)
        worker = start(deployment, connect=connected_to(broker))
        await worker.live(1)
        assert forgets(worker)
        [line] = worker.lines("output_forgets_first")
        assert line["remedy"].startswith("set retention.ms=")
        output = broker.topics["unique"]
        kept = {**output.topic.settings, "retention.ms": "-1"}
        output.topic = replace(output.topic, settings=kept)
        await worker.until(lambda: not forgets(worker), "end of the warning")
        assert len(worker.lines("output_forgets_first")) == 1

    on_virtual_clock(scene)


@pytest.mark.parametrize(
    ("filter_", "kept"), [({"capacity": 1000}, "-1"), (WINDOW, str(8 * DAY_MS))]
)
def test_an_output_that_is_made_forgets_nothing_that_is_remembered(
    tmp_path: Path, filter_: dict[str, Any], kept: str
) -> None:
    """Side topics keep their events as long as the input does."""

    async def scene(start: Start) -> None:
        broker, deployment = MemoryBroker(), Deployment("memory:1", tmp_path, partitions=1)
        sink = {"topic": "unique", "dead_letter_topic": "letters", "create_topics": True}
        deployment.config |= {
            "filter": {**filter_, **({"generations": 8} if "retention" in filter_ else {})},
            "sink": sink,
        }
        broker.create_topic(deployment.source, retention_ms=DAY_MS)
        worker = start(deployment, connect=connected_to(broker))
        await worker.live(1)
        assert not worker.lines("output_forgets_first")
        made = {name: broker.topics[name].topic.settings["retention.ms"] for name in broker.topics}
        assert made == {deployment.source: str(DAY_MS), "unique": kept, "letters": str(DAY_MS)}

    on_virtual_clock(scene)
