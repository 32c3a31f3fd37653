"""Claims about the pause of the first stage: how it is reported."""

import asyncio
from unittest.mock import Mock

from structlog.testing import capture_logs

from streamdedup.logs import EVERY_S
from streamdedup.repartition.unread import Unread
from streamdedup.testing import VirtualLoop


def test_pauses_that_follow_one_another_are_one_line_and_one_that_lasts_has_its_own() -> None:
    """At most one line a minute; but a pause that goes on is never without one."""

    async def scene() -> None:
        unread = Unread(Mock(), "group", "middle", 1, most=10)

        def lines(events: int) -> list[str]:
            unread.by_partition = {}
            with capture_logs() as logs:
                unread.add({0: events})
            return [line["event"] for line in logs]

        assert lines(11) == ["repartition_paused"]
        assert lines(11) == []
        assert lines(1) == ["repartition_goes_on"]
        assert lines(11) == []
        assert lines(1) == []
        assert lines(11) == []
        await asyncio.sleep(EVERY_S)
        assert lines(11) == ["repartition_paused"]
        assert lines(1) == ["repartition_goes_on"]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scene())
