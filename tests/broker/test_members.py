"""What holds among the members of a group, and while topics and brokers change under them, on a real broker."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewPartitions

from streamdedup.kafka.sink import DoubtError, KafkaWriter
from streamdedup.kafka.source import KafkaMember
from tests.broker.base import DEADLINE_S, Broker, admin_client, wait_until
from tests.broker.needs import AHEAD
from tests.broker.topics import Event, committed, create_topic, read_all
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start, keys_of, output_keys


@pytest.mark.rule(10)
async def test_a_member_that_was_thrown_out_shuts_nobody_out(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fenced, it asks the group before it makes a new producer; whoever took its place never notices (rule 10)."""
    fences: list[object] = []
    asked: list[object] = []
    fence, confirms = KafkaWriter.fence, KafkaMember.confirms

    async def counted(self: KafkaWriter) -> None:
        fences.append(self)
        await fence(self)

    async def counted_too(self: KafkaMember, epoch: int) -> bool:
        asked.append(self)
        return await confirms(self, epoch)

    monkeypatch.setattr(KafkaWriter, "fence", counted)
    monkeypatch.setattr(KafkaMember, "confirms", counted_too)
    async with start(deployment) as sleeper:
        await sleeper.live(1)
        assert sleeper.worker._source is not None
        member: Any = sleeper.worker._source._member

        async def dreams() -> bool:  # it believes to be a member, as after a long pause
            return True

        monkeypatch.setattr(member._consumer._coordinator, "_do_heartbeat", dreams)
        async with start(deployment) as successor:
            await successor.live(1)
            deployment.feed(keyed(range(100), 1))
            await successor.consumed(100)
            await sleeper.live(0)
            await sleeper.until(lambda: len(fences) > 2 or asked.count(member) > 2, "question")
            assert len(fences) == 2, "the one that was thrown out fenced again"
            deployment.feed(keyed(range(50, 200), 1))
            await successor.consumed(250)
            assert len(fences) == 2, "the one that was thrown out fenced again"
            monkeypatch.undo()
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.rule(16)
def test_two_workers_of_one_name_are_told_so(broker: Broker, tmp_path: Path) -> None:
    """A `group_instance_id` twice: instead of throwing each other out for ever, one ends with status 1 (rule 16)."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    deployment.config["kafka"]["group_instance_id"] = "worker-0"
    group = deployment.config["kafka"]["group_id"]
    # So long it may take them to throw each other out four times.
    deployment.config["kafka"]["consumer"]["session_timeout_ms"] = 15_000
    deployment.feed(keyed(range(200), 2))
    for attempt in range(3):
        deployment.group = deployment.config["kafka"]["group_id"] = f"{group}-{attempt}"
        with deployment.running("one.log") as one, deployment.running("two.log") as two:
            both = one, two
            wait_until(
                lambda both=both: any(  # type: ignore[misc]
                    each.process.poll() == 1 or each.events("consumer_trouble") for each in both
                ),
                DEADLINE_S,
                lambda: "both go on",
            )
            ended = [each for each in both if each.process.poll() == 1]
            if ended:
                break
        # At times a broker answers one of them with its own UnknownError for ever. Then the other one works alone.
    (failed,) = ended[0].events("worker_failed")
    assert "kafka.group_instance_id, worker-0" in failed["error"]
    deployment.config["kafka"]["group_instance_id"] = "worker-1"
    deployment.feed(keyed(range(100, 300), 2))
    deployment.run_to_the_end("alone.log")
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.rule(14)
async def test_growth_of_the_input_is_refused_or_accepted(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """More partitions stop all shards by name; accepted, a new one is read from its start (rule 14)."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    deployment.config["source"]["start"] = "latest"
    async with start(deployment) as worker:
        await worker.live()
        deployment.feed(keyed(range(100), 2))
        await worker.caught_up()
    grow(broker, deployment, 3)
    deployment.feed((2, b"new%d" % number, b"", [], None) for number in range(50))
    async with start(deployment) as worker:
        stopped = await worker.logged("shard_stopped", 3)
        assert all("has grown from 2 to 3 partitions" in line["error"] for line in stopped)
        assert all("source.on_growth: accept" in line["error"] for line in stopped)
    assert len(read_all(broker.bootstrap_servers, deployment.sink)) == 100
    deployment.config["source"]["on_growth"] = "accept"
    third = await start(deployment).to_the_end()
    assert len(third.lines("input_grown")) == 3
    assert len(third.lines("snapshot_loaded")) == 2
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert len(read_all(broker.bootstrap_servers, deployment.sink)) == 150


def grow(broker: Broker, deployment: Deployment, partitions: int) -> None:
    """Give input and output so many partitions."""
    admin = admin_client(broker.bootstrap_servers)
    wanted = [NewPartitions(name, partitions) for name in (deployment.sink, deployment.source)]
    for done in admin.create_partitions(wanted).values():
        done.result(DEADLINE_S)
    deployment.partitions = partitions
    wait_until(
        lambda: all(
            len(admin.list_topics(timeout=10).topics[name].partitions) == partitions
            for name in (deployment.sink, deployment.source)
        ),
        DEADLINE_S,
        lambda: "no new partitions",
    )


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.rule(9)
async def test_the_next_is_decided_while_one_commits(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Up to `delivery.max_in_flight` transactions wait; an abort takes back all that came after (rule 9)."""
    deployment.config["delivery"] |= {"batch_events_max": 100, "max_in_flight": most}
    deployment.feed(keyed([*range(2000), *range(500)], 1))
    commit, pending, commits = KafkaWriter.commit, set[int](), 0

    def waiting() -> int:
        shard = worker.delivery.shard
        return shard.pending if shard else 0

    async def slow(self: KafkaWriter, *arguments: Any) -> None:
        nonlocal commits
        commits += 1
        if commits == 2:  # the first with events: that before it is the birth's
            await worker.until(lambda: waiting() == most * 100, "as many as may wait")
        await asyncio.sleep(0.05)
        pending.add(waiting())
        if commits in (4, 9):
            raise DoubtError("the answer was lost")
        await commit(self, *arguments)

    monkeypatch.setattr(KafkaWriter, "commit", slow)
    async with start(deployment) as worker:
        await worker.consumed(2500)
    assert max(pending) == most * 100
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert output_keys(deployment) == keys_of(range(2000))


@pytest.mark.needs_broker(AHEAD)
@pytest.mark.parametrize("wanted", ["dead_letter", "stop"])
@pytest.mark.rule(8)
async def test_what_the_broker_refuses_is_found_and_rejected(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    """If limits cannot be foreseen, the batch is halved down to the event; its twin passes (rule 8)."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1)
    create_topic(deployment.bootstrap, deployment.source, message_timestamp_after_max_ms=10**15)
    create_topic(deployment.bootstrap, deployment.sink, message_timestamp_after_max_ms=3_600_000)
    letters = deployment.create_side_topic("dead_letter_topic")
    deployment.config["sink"]["on_rejected"] = wanted
    monkeypatch.setattr("streamdedup.kafka.limits.Limits.rejected", lambda *_: {})
    ahead = 4_000_000_000_000
    stamped: list[Event] = [(0, b"twin", b"ahead", [], ahead), (0, b"twin", b"now", [], None)]
    deployment.feed([*keyed(range(300), 1), *stamped, *keyed(range(200, 500), 1)])
    worker = start(deployment)
    if wanted == "stop":
        await worker.stopped()
        assert committed(deployment.bootstrap, deployment.group, deployment.source) == {0: 300}
        assert b"twin" not in output_keys(deployment)
        return
    await worker.consumed(602)
    expected = [*keyed(range(300), 1), *stamped[1:], *keyed(range(300, 500), 1)]
    assert output_keys(deployment) == [key for _, key, *_ in expected]
    (letter,) = read_all(broker.bootstrap_servers, letters)
    headers = dict(letter.headers)
    assert (letter.key, letter.value) == (b"twin", b"ahead")
    assert headers["streamdedup.offset"] == b"300"
    assert b"InvalidTimestamp" in (headers["streamdedup.reason"] or b"")
