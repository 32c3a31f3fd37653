"""Claims about `source.repartition` on a real broker: each key once, wherever its events lie, whatever dies when."""

import asyncio
import json
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from streamdedup.kafka.records.origin_header import ORIGIN
from tests.broker.base import DEADLINE_S, Broker, wait_until
from tests.broker.topics import Event, end_offsets, is_purged, read_all
from tests.local import Start
from tests.spread import spread
from tests.staged import PLACES, Staged

pytestmark = pytest.mark.broker


@pytest.mark.rule(28)
async def test_each_key_passes_once_wherever_its_events_lie(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """60,000 events of 18,956 keys without record keys, in 6 partitions: 18,956 pass, and nobody is warned."""
    stream = spread()
    staged = Staged(broker.bootstrap_servers, tmp_path)
    await asyncio.to_thread(staged.feed, stream.events)
    async with start(staged) as worker:
        await worker.consumed(len(stream.events))
        assert worker.tally.consumed == len(stream.events)
        assert not worker.lines("partitioning_unknown")
        assert not worker.lines("duplicates_across_partitions")
    ids = await asyncio.to_thread(staged.ids)
    assert (ids.total(), len(ids)) == (stream.distinct, stream.distinct)
    copies = await asyncio.to_thread(read_all, staged.bootstrap, staged.middle)
    origins = Counter(dict(record.headers)[ORIGIN] for record in copies)
    assert (origins.total(), len(origins)) == (60_000, 60_000)


@pytest.mark.rule(24)
async def test_events_are_copied_byte_for_byte(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """Keys, values, headers and timestamps of the output are those of the input; no header of ours is left."""
    staged = Staged(broker.bootstrap_servers, tmp_path, 1)
    headers = [("a", b"1"), (ORIGIN, b"of another pipeline"), ("empty", None), ("", b"")]
    events: list[Event] = [
        (
            0,
            b"record-%d" % n,
            json.dumps({"id": f"k{n}", "x": "y" * n}).encode(),
            headers[: n % 5],
            1_700_000_000_000 + n,
        )
        for n in range(200)
    ]
    await asyncio.to_thread(staged.feed, events)
    async with start(staged) as worker:
        await worker.consumed(len(events))
    output = await asyncio.to_thread(read_all, staged.bootstrap, staged.sink)
    found = sorted((r.timestamp_ms or 0, r.key, r.value, list(r.headers)) for r in output)
    assert found == [(time, key, value, list(its)) for _, key, value, its, time in events]


async def test_the_stages_run_apart(broker: Broker, tmp_path: Path) -> None:
    """Each in a process of its own, killed now and then: each key passes once, and none is missing."""
    chance = random.Random(7)
    staged = Staged(broker.bootstrap_servers, tmp_path)
    staged.expect_kills()
    config = staged.write_config()
    stream = spread(20_000, 6_000)
    half = len(stream.events) // 2
    await asyncio.to_thread(staged.feed, stream.events[:half])
    running = {
        (stage, number): staged.stage(stage, config, number)
        for stage in ("repartition", "deduplicate")
        for number in range(2)
    }
    for turn in range(5):
        await asyncio.sleep(chance.uniform(0.5, 2.0))
        which = chance.choice(sorted(running))
        await asyncio.to_thread(running[which].kill)
        running[which] = staged.stage(which[0], config, which[1])
        if turn == 2:
            await asyncio.to_thread(staged.feed, stream.events[half:])
    await asyncio.to_thread(
        wait_until,
        lambda: len(staged.ids()) == stream.distinct,
        DEADLINE_S,
        lambda: f"{len(staged.ids())} of {stream.distinct} keys passed",
    )
    for process in running.values():
        assert await asyncio.to_thread(process.interrupt, signal.SIGTERM) == 0
    assert staged.ids().total() == stream.distinct


@pytest.mark.rule(26)
async def test_what_was_read_is_purged(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The middle topic begins where the second stage has committed."""
    monkeypatch.setattr("streamdedup.repartition.purge.EVERY_S", 0.5)
    stream = spread(3_000, 1_000)
    staged = Staged(broker.bootstrap_servers, tmp_path)
    await asyncio.to_thread(staged.feed, stream.events)
    async with start(staged) as worker:
        await worker.consumed(len(stream.events))

        def purged() -> bool:
            return is_purged(staged.bootstrap, staged.middle)

        await asyncio.to_thread(wait_until, purged, DEADLINE_S, lambda: "the middle is not purged")
        assert not worker.lines("middle_not_purged")
    assert (await asyncio.to_thread(staged.ids)).total() == stream.distinct
    async with start(staged) as again:
        await again.live(PLACES)
        assert again.tally.consumed == 0


@pytest.mark.rule(25)
async def test_the_first_stage_pauses_for_what_is_unread(broker: Broker, tmp_path: Path) -> None:
    """Without a second stage, not much more than `unread_max` is copied; with it, everything."""
    staged = Staged(broker.bootstrap_servers, tmp_path)
    staged.config["source"]["repartition"]["unread_max"] = 500
    staged.config["delivery"] |= {"batch_events_max": 500}
    stream = spread(20_000, 6_000)
    await asyncio.to_thread(staged.feed, stream.events)
    config = staged.write_config()
    first = staged.stage("repartition", config)
    await asyncio.to_thread(first.wait_for, "repartition_paused")
    ends = await asyncio.to_thread(end_offsets, staged.bootstrap, staged.middle)
    assert sum(ends.values()) < 15_000
    second = staged.stage("deduplicate", config)
    await asyncio.to_thread(
        wait_until,
        lambda: len(staged.ids()) == stream.distinct,
        DEADLINE_S,
        lambda: f"{len(staged.ids())} of {stream.distinct} keys passed",
    )
    for process in (first, second):
        assert await asyncio.to_thread(process.interrupt, signal.SIGTERM) == 0
    assert staged.ids().total() == stream.distinct
