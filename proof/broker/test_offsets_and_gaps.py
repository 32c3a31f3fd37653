"""More of rules 4 and 5 of delivery, by a real broker: offsets, their notes, and gaps."""

import struct

import pytest

from tests.broker.proxy import Action, Api, Frame, Proxy, Replace
from tests.deployment import Deployment, keyed
from tests.local import Start


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
