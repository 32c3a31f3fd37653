"""What becomes of a transaction while Python code reads the keys of the next events for very long."""

import asyncio
from pathlib import Path

from streamdedup.testing import VirtualLoop
from tests.local import workers
from tests.memory import Stage

PLAIN, DEAR = 300, 1_000


def test_a_transaction_waits_for_no_keys_that_take_long(tmp_path: Path) -> None:
    """It commits before its deadline, without those; they begin the next one, which no deadline ends before them."""
    call_s = [0.0]

    async def scene() -> None:
        async with workers() as start:
            stage = Stage(tmp_path, start)
            stage.config["key"] = {"from": "key", "normalize": "email"}
            stage.config["delivery"] = {"commit_interval_ms": 5000}
            stage.broker.fetch_events_max = 10_000
            worker = await stage.started()
            keys = [b"plain%d@example.com" % number for number in range(PLAIN)]
            stage.broker.produce(stage.source, [(0, key, b"{}") for key in keys])
            await asyncio.sleep(2)
            # They are in a transaction that is open.
            assert stage.committed == 0
            # For each call in a thread, so 64 s for these addresses.
            call_s[0] = 2.0
            dear = [f"dear{number}@bücher.example.org".encode() for number in range(DEAR)]
            stage.broker.produce(stage.source, [(0, key, b"{}") for key in dear])
            await worker.until(lambda: stage.committed == PLAIN + DEAR, "all")
            assert not worker.lines("doubt")
            assert worker.worker.status.meters.of(0).taken_back["slow"] == DEAR
            assert len(stage.output) == PLAIN + DEAR

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(lambda: call_s[0])) as runner:
        runner.run(scene())
