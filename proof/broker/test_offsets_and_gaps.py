"""More of rules 4 and 5 of delivery, by a real broker: offsets, their notes, and gaps."""

import struct
from typing import Any

import pytest

from streamdedup.kafka.offsets import Note
from tests.broker.proxy import Action, Api, Frame, Proxy, Replace
from tests.broker.test_offsets_and_gaps import OTHER_ID, commit_note, committed_note, needs_ids
from tests.broker.topics import (
    delete_records,
    produce,
)
from tests.deployment import Deployment, keyed
from tests.local import Start, keys_of, output_keys


@pytest.mark.parametrize(
    ("leaf", "value", "why"),
    [
        pytest.param("input_id", OTHER_ID, "the input topic was made again", marks=needs_ids),
        ("cluster_id", "another", "the offset was committed on another cluster"),
        pytest.param(
            "output_id",
            OTHER_ID,
            "is not the topic that offsets were committed with",
            marks=needs_ids,
        ),
        ("label", 10**6, "but events up to 1000000 were committed to it"),
    ],
    ids=["input", "cluster", "output", "label"],
)
@pytest.mark.rule(4)
async def test_a_note_of_other_logs(
    deployment: Deployment, start: Start, leaf: str, value: Any, why: str
) -> None:
    """Of another input or cluster the offset is void, and earliest safe; another or a shorter output stops us."""
    deployment.feed(keyed(range(100), 1))
    first = start(deployment)
    await first.consumed(100)
    await first.stop()
    note = await committed_note(deployment)
    assert note is not None
    leaves = {name: getattr(note, name) for name in Note.__dataclass_fields__}
    forged = Note(**{**leaves, leaf: value}).encode()
    await commit_note(deployment, 60, forged)
    second = start(deployment)
    if leaf in ("input_id", "cluster_id"):
        (live,) = await second.logged("shard_live")
        assert (live["offset"], live["why"]) == (0, why)
        await second.consumed(100)
    else:
        assert why in await second.stopped()
    await second.stop()
    assert output_keys(deployment) == keys_of(range(100))


@pytest.mark.parametrize("trace", ["none", "output", "snapshot"])
@pytest.mark.rule(4)
async def test_a_birth_leaves_no_trace_behind(
    deployment: Deployment, start: Start, trace: str
) -> None:
    """`start: latest` skips events only if neither the output nor a snapshot shows that we were here."""
    deployment.config["source"]["start"] = "latest"
    deployment.feed(keyed(range(100), 1))
    if trace == "output":
        produce(deployment.bootstrap, deployment.sink, keyed([10**6], 1))
    if trace == "snapshot":
        directory = deployment.snapshots / "0"
        directory.mkdir(parents=True)
        (directory / "0000000000000001.snapshot").write_bytes(b"damaged, but there")
    worker = start(deployment)
    (live,) = await worker.logged("shard_live")
    assert live["offset"] == (100 if trace == "none" else 0)
    await worker.stop()


@pytest.mark.rule(4)
async def test_a_coordinator_that_loads_has_not_lost_the_offset(
    deployment: Deployment, start: Start
) -> None:
    """After its restart a broker answers with an error and no offsets for a while: that is no "nothing committed"."""
    first = start(deployment)
    deployment.feed(keyed(range(10), 1))
    await first.consumed(10)
    await first.stop()
    codes = [14, 15, 16, 14, 16]  # loading, not available, moved

    def load(frame: Frame) -> Action | None:
        if (frame.api, frame.is_answer, frame.version) != (Api.OFFSET_FETCH, True, 7) or not codes:
            return None
        no_topics = struct.pack(">xibhb", 0, 1, codes.pop(), 0)  # tags, throttle, none, code, tags
        return Replace(frame.correlation_id + no_topics)

    with Proxy(deployment.bootstrap, load) as proxy:
        second = start(deployment, proxy)
        (live,) = await second.logged("shard_live")
        assert (live["offset"], live["why"]) == (10, "the committed offset")
        await second.stop()
    assert codes == []


@pytest.mark.parametrize("on_gap", ["stop", "accept"])
@pytest.mark.parametrize(
    "memory", [pytest.param("an old snapshot", marks=needs_ids), "no snapshot"]
)
@pytest.mark.rule(5)
async def test_an_output_trimmed_beyond_our_memory(
    deployment: Deployment, start: Start, memory: str, on_gap: str
) -> None:
    """Events that no snapshot holds were deleted: it stops, naming the option, or goes on without their keys."""
    deployment.config["sink"]["on_gap"] = on_gap
    deployment.feed(keyed(range(50), 1))
    label = 0
    if memory == "an old snapshot":
        first = start(deployment)
        await first.consumed(50)
        await first.stop()
        label = first.label
    seen_here = deployment.config["snapshot"]["directory"]
    deployment.config["snapshot"]["directory"] = str(deployment.directory / "elsewhere")
    second = start(deployment)
    deployment.feed(keyed(range(50, 100), 1))
    await second.consumed(50 if label else 100)
    await second.stop()
    deployment.config["snapshot"]["directory"] = seen_here
    delete_records(deployment.bootstrap, deployment.sink, {0: second.label})
    deployment.feed(keyed([10, 75, 100], 1))
    third = start(deployment)
    if on_gap == "stop":
        trouble = await third.stopped()
        assert "set sink.on_gap: accept" in trouble
        assert f"the events from {label} up to there" in trouble
        assert output_keys(deployment) == []
        return
    await third.consumed(3)
    assert len(third.lines("output_gap_accepted")) == 1
    forgotten = [75, 100] if label else [10, 75, 100]
    assert output_keys(deployment) == keys_of(forgotten)
