"""Claims about a committed offset that counts no more: where reading begins instead is logged and committed at once.

On a broker in memory. No event comes, so nothing but the start can have been committed.
"""

import pytest

from tests.lists.files import list_file
from tests.local import LocalWorker
from tests.memory import Stage, measured, over

FED = 30

KINDS = pytest.mark.parametrize("kind", ["bloom", "none"])
GUARANTEES = pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])


async def emit(stage: Stage, kind: str, guarantee: str) -> None:
    """Let a worker of that kind and guarantee emit FED events, and end it."""
    config = stage.deployment.config
    config["delivery"]["guarantee"] = guarantee
    if kind == "none":
        screen = list_file(stage.deployment.directory / "block.list", [b"nobody"])
        config["blocklist"] = {"file": str(screen)}
        config["filter"] = {"kind": "none"}
        del config["snapshot"]
    stage.feed(range(FED))
    await stage.ended(FED)


async def says_once(stage: Stage, event: str, offset: int) -> LocalWorker:
    """Start a worker, which commits `offset` before it is live; only it, and not the next one, says `event`."""
    worker = await stage.started()
    assert stage.committed == offset
    assert len(worker.lines(event)) == 1
    await worker.stop()
    assert not (await stage.started()).lines(event)
    return worker


@KINDS
@GUARANTEES
@pytest.mark.rule(5)
@over(Stage)
async def test_what_was_deleted_unread_is_reported(stage: Stage, kind: str, guarantee: str) -> None:
    """With `source.on_gap: skip`: from which offset to which, how many, in the log and in the metric; once."""
    stage.deployment.config["source"]["on_gap"] = "skip"
    await emit(stage, kind, guarantee)
    stage.feed(range(FED, FED + 20))
    stage.broker.log(stage.source, 0).trim(FED + 20)
    worker = await says_once(stage, "input_gap_skipped", FED + 20)
    (line,) = worker.lines("input_gap_skipped")
    assert (line["log_level"], line["partition"]) == ("warning", 0)
    assert (line["from_offset"], line["to_offset"], line["offsets"]) == (FED, FED + 20, 20)
    assert measured(worker, "gap_offsets_total") == [20]


@KINDS
@GUARANTEES
@pytest.mark.parametrize("of", ["input", "cluster"])
@over(Stage)
async def test_an_offset_of_another_log_is_reported(
    stage: Stage, kind: str, guarantee: str, of: str
) -> None:
    """With the offset at which reading begins instead, which is committed at once."""
    await emit(stage, kind, guarantee)
    if of == "cluster":
        stage.broker.cluster_id = "another"
    else:
        stage.broker.delete_topic(stage.source, with_offsets=False)
        stage.broker.create_topic(stage.source, 1)
        stage.feed(range(FED))
    # Nothing is read before the start is committed.
    stage.broker.log(stage.source, 0).trim(FED)
    worker = await says_once(stage, "input_begun_anew", FED)
    (line,) = worker.lines("input_begun_anew")
    assert (line["log_level"], line["offset"]) == ("warning", FED)
    assert of in line["reason"]
