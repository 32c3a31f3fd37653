"""Claims about `source.repartition` on a real broker: each key once, wherever its events lie, whatever dies when."""

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from proof.broker.staged import Staged
from streamdedup.kafka.records.origin_header import ORIGIN
from tests.broker.base import DEADLINE_S, Broker, wait_until
from tests.broker.topics import read_all
from tests.local import Start
from tests.spread import spread


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
