"""A second writer is named by what a real broker has of it; tests/delivery/test_second_writer.py has more."""

import re
import time
from datetime import datetime

import pytest

from tests.broker.needs import TELLS_WRITERS
from tests.broker.topics import produce, unique_name
from tests.deployment import Deployment, keyed
from tests.local import Start

EMITTED = 10


async def stopped_by(deployment: Deployment, start: Start, events: int, writer: str | None) -> str:
    """Have somebody write to the output, in a transaction if it has an id; return what stops the shard."""
    worker = start(deployment)
    deployment.feed(keyed(range(EMITTED), 1))
    await worker.consumed(EMITTED)
    foreign = keyed(range(10**6, 10**6 + events), 1)
    produce(deployment.bootstrap, deployment.sink, foreign, writer)
    deployment.feed(keyed(range(EMITTED, 2 * EMITTED), 1))
    return await worker.stopped()


def is_now(text: str) -> bool:
    """Whether this time is of the last minutes."""
    return abs(datetime.fromisoformat(text).timestamp() - time.time()) < 300


@pytest.mark.rule(3)
@pytest.mark.needs_broker(TELLS_WRITERS)
async def test_a_transactional_writer_is_named_by_its_id(
    deployment: Deployment, start: Start
) -> None:
    """It is the one that wrote last, too: our own writes, which are later, do not count."""
    message = await stopped_by(deployment, start, 3, unique_name("foreign"))
    first = EMITTED + 1  # after our marker
    assert f"offset {first} is not ours; it wrote 3 events, at offsets from {first} to" in message
    found = re.search(r"the first of (\S+) by (producer id \d+, epoch 0); ", message)
    assert found is not None, message
    assert is_now(found[1])
    last = re.search(
        r"of all others with an id, (producer id \d+, epoch 0) wrote last, at (\S+);", message
    )
    assert last is not None, message
    assert last[1] == found[2]
    assert is_now(last[2])


@pytest.mark.rule(3)
async def test_a_plain_producer_is_said_to_have_no_id(deployment: Deployment, start: Start) -> None:
    """A plain producer leaves its time alone."""
    message = await stopped_by(deployment, start, 1, None)
    found = re.search(
        r"it wrote 1 event, at offset 11, the first of (\S+) by a producer without an id; ", message
    )
    assert found is not None, message
    assert is_now(found[1])
    assert (
        "knows of no other producer with an id" in message
        or "is not known (the broker is older" in message
    )
