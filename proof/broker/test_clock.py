"""Claims about a worker whose own clock is wrong: that of the broker counts, and ours diverts nothing."""

import time
from pathlib import Path

import pytest

from streamdedup.commands.audit import audit
from streamdedup.delivery.leader_clocks import LeaderClocks
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.kafka.broker_clock import Span
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.broker.needs import AHEAD
from tests.broker.topics import Event, alter_topic, delete_records, read_all
from tests.deployment import Deployment
from tests.local import Start
from tests.memory import page

pytestmark = pytest.mark.needs_broker(AHEAD)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Shifted:
    """A wall clock that is wrong by `by_ms`."""

    def __init__(self, by_ms: int) -> None:
        self.by_ms = by_ms

    def __call__(self) -> int:
        """The time, ms since 1970."""
        return wall_clock_ms() + self.by_ms


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition; topics that keep events for 7 days, and take none from more than an hour ahead."""
    made = Deployment(broker.bootstrap_servers, tmp_path, partitions=1)
    made.config["key"] = {"from": "json", "field": "id"}
    return made.create(retention_ms=7 * DAY_MS, message_timestamp_after_max_ms=HOUR_MS)


def good(numbers: range) -> list[Event]:
    """Events of now."""
    return [(0, None, b'{"id": %d}' % n, [], None) for n in numbers]


async def test_an_input_that_the_broker_stamps_shows_the_time_at_least_once(
    deployment: Deployment, start: Start
) -> None:
    """There are no markers, but an event that was not there at the commit before shows the time."""
    deployment.config["delivery"]["guarantee"] = "at_least_once"
    letters = deployment.create_side_topic("dead_letter_topic")
    alter_topic(deployment.bootstrap, deployment.source, message_timestamp_type="LogAppendTime")
    worker = start(deployment, now_ms=Shifted(-10 * DAY_MS))
    await worker.live()
    for number in range(3):
        deployment.feed(good(range(number, number + 1)))
        await worker.consumed(number + 1)
    await worker.verified()
    await worker.until(lambda: "warning: this machine's clock is 86" in page(worker).text, "it")
    alter_topic(deployment.bootstrap, deployment.source, message_timestamp_type="CreateTime")
    old_ms = int(time.time() * 1000) - 8 * DAY_MS
    deployment.feed([(0, None, b'{"id": "old"}', [], old_ms)])
    await worker.consumed(4)
    (letter,) = read_all(deployment.bootstrap, letters)
    assert (dict(letter.headers)["streamdedup.reason"] or b"").startswith(b"older than")
    assert abs((letter.timestamp_ms or 0) - time.time() * 1000) < HOUR_MS


async def test_an_audit_of_letters_without_transactions_does_not_know(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least once there is no marker: it says so, unless the broker stamps the letters itself."""
    deployment.config["delivery"]["guarantee"] = "at_least_once"
    letters = deployment.create_side_topic("dead_letter_topic")
    clock = Shifted(-2 * HOUR_MS)
    monkeypatch.setattr(LeaderClocks, "present", lambda *_: Span.at(clock()))
    for stamped, wrong in (("CreateTime", None), ("LogAppendTime", 10)):
        alter_topic(deployment.bootstrap, letters, message_timestamp_type=stamped)
        delete_records(deployment.bootstrap, letters, {0: wrong or 0})
        worker = start(deployment, now_ms=clock)
        await worker.live()
        deployment.feed(good(range(10)))
        await worker.consumed(10)
        await worker.stop()
        report = await audit(load(deployment.write_config()))
        limits = {limit.name for limit in report.partitions[0].limits}
        assert report.total.wrongly_rejected == wrong
        assert ("rejections_unchecked" in limits) == (wrong is None)
