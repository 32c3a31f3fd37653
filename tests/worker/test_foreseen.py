"""Claims about a full filter that a worker foresees; over a broker in memory."""

import asyncio

from tests.memory import Stage, measured, over

NAME = "filter_full_in_seconds"


@over(Stage)
async def test_a_full_filter_is_foreseen(stage: Stage) -> None:
    """From the rate of the last hour, and not from the fold that filled it."""
    stage.config["filter"] = {"capacity": 1000, "on_full": "stop"}
    stage.broker.produce(stage.sink, [(0, b"old%d" % n, b"") for n in range(500)])
    worker = await stage.started()
    assert measured(worker, NAME) == []
    await asyncio.sleep(1800)
    assert measured(worker, NAME) == [float("inf")]
    stage.feed(range(100))
    await worker.consumed(100)
    await asyncio.sleep(1770)
    [left] = measured(worker, NAME)
    assert abs(left - 4 * 3600) < 0.05 * 4 * 3600  # 400 places, at 100 an hour
