"""What the worker refuses, by name and with the remedy, instead of guessing, on a real broker."""

from pathlib import Path

import pytest

from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.cluster import KafkaCluster
from tests.broker.base import DEADLINE_S, Broker, OwnedBroker
from tests.broker.topics import (
    create_topic,
    delete_topic,
    move_offsets,
    produce,
    read_all,
    unique_name,
)
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start, output_keys, run_to_the_end


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Topics are not made yet."""
    return Deployment(broker.bootstrap_servers, tmp_path)


async def refused(deployment: Deployment, start: Start) -> str:
    """What the refused worker says."""
    with pytest.raises(ConfigError) as refusal:
        await start(deployment).task
    return str(refusal.value)


@pytest.mark.broker
@pytest.mark.rule(12)
async def test_missing_topics_are_refused(deployment: Deployment, start: Start) -> None:
    """Both missing topics are named, with the remedy, and none is created by asking."""
    done = await refused(deployment, start)
    assert f"the topic {deployment.source} does not exist" in done
    assert f"the topic {deployment.sink} does not exist" in done
    assert "sink.create_topics" in done
    create_topic(deployment.bootstrap, deployment.source, 1)  # fails if asking had created it
    create_topic(deployment.bootstrap, deployment.sink, 1)


@pytest.mark.broker
def test_a_directory_that_cannot_be_written_is_refused(
    deployment: Deployment, tmp_path: Path
) -> None:
    """It is said at the start, not at the first snapshot, with the option, as one line of the log."""
    (tmp_path / "file").write_text("in the way")
    deployment.config["snapshot"]["directory"] = str(tmp_path / "file" / "snapshots")
    worker = deployment.start()
    assert worker.process.wait(DEADLINE_S) == 2
    last = worker.events()[-1]
    assert (last["event"], last["status"]) == ("worker_failed", 2)
    assert "snapshot.directory = " in last["error"]
    assert "nothing can be written there" in last["error"]


@pytest.mark.broker
@pytest.mark.rule(13)
async def test_a_narrow_or_compacted_output_is_refused(
    deployment: Deployment, start: Start
) -> None:
    """Too few partitions and compaction are both named at once."""
    create_topic(deployment.bootstrap, deployment.source, 4)
    create_topic(deployment.bootstrap, deployment.sink, 2, cleanup_policy="compact")
    text = await refused(deployment, start)
    assert "has 2 partitions" in text
    assert "add partitions" in text
    assert "cleanup.policy=delete" in text


@pytest.mark.broker
async def test_a_topic_that_the_broker_refuses_leaves_no_other_behind(
    deployment: Deployment, start: Start
) -> None:
    """Its name collides with that of another one: neither it nor the output, which could be made, is made."""
    create_topic(deployment.bootstrap, deployment.source, 1)
    other = unique_name("letters.of")
    create_topic(deployment.bootstrap, other, 1)
    refused_name = other.replace(".", "_")
    deployment.config["sink"] |= {"create_topics": True, "dead_letter_topic": refused_name}
    text = await refused(deployment, start)
    assert f"the topic {refused_name} could not be created: " in text
    create_topic(deployment.bootstrap, deployment.sink, 1)  # fails if the start had made it


@pytest.mark.broker
async def test_a_duplicates_topic_is_made_as_wide_as_the_output(
    deployment: Deployment, start: Start
) -> None:
    """Else it would be made, and then refused, because it takes less than the output that is there."""
    create_topic(deployment.bootstrap, deployment.source, 1)
    limits: dict[str, str | int] = {"max.message.bytes": 5_000_000}
    create_topic(deployment.bootstrap, deployment.sink, 1, **limits)
    deployment.partitions = 1
    duplicates = unique_name("duplicates")
    deployment.config["sink"] |= {"create_topics": True, "duplicates_topic": duplicates}
    deployment.feed(keyed([1, 2, 1], 1))
    worker = await start(deployment).to_the_end()
    assert [line["topic"] for line in worker.lines("topic_created")] == [duplicates]
    assert len(read_all(deployment.bootstrap, duplicates)) == 1


@pytest.mark.broker
def test_missing_output_topics_are_created_where_asked_for(deployment: Deployment) -> None:
    """`sink.create_topics` makes them with the input's partition count."""
    create_topic(deployment.bootstrap, deployment.source, 3, retention_ms=86_400_000)
    deployment.partitions = 3
    deployment.config["sink"] |= {
        "create_topics": True,
        "dead_letter_topic": unique_name("letters"),
        "duplicates_topic": unique_name("duplicates"),
    }
    deployment.feed(keyed([*range(300), *range(300)], 3))
    worker = run_to_the_end(deployment)
    assert len(worker.lines("topic_created")) == 3
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert len(read_all(deployment.bootstrap, deployment.config["sink"]["duplicates_topic"])) == 300


@pytest.mark.broker
@pytest.mark.rule(1)
def test_a_second_group_on_the_same_output_is_fenced(broker: Broker, tmp_path: Path) -> None:
    """Two groups, one output: the fence bears the output's name, so neither doubles what the other emitted."""
    one = Deployment(broker.bootstrap_servers, tmp_path).create()
    one.feed(keyed(range(4000)))
    with one.running("one.log") as first:
        first.wait_for("shard_live", one.partitions)
        one.config["kafka"]["group_id"] = one.group = unique_name("other")
        with one.running("two.log") as second:
            one.catch_up(second)
            one.feed(keyed(range(2000, 6000)))
            one.catch_up(second)
    assert lost_and_doubled(one) == (0, 0, 0)


@pytest.mark.broker
async def test_a_foreign_record_in_the_output_stops_the_shard(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """Somebody else's event in our output, while we run: the shard stops and says second writer."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.feed(keyed(range(100), 1))
    async with start(deployment) as worker:
        await worker.caught_up()
        produce(broker.bootstrap_servers, deployment.sink, keyed([10**6], 1))
        deployment.feed(keyed(range(100, 200), 1))
        assert "second writer" in await worker.stopped()
    assert len(output_keys(deployment)) == 101


@pytest.mark.broker
@pytest.mark.rule(5)
async def test_a_trimmed_input_stops_or_skips(broker: Broker, tmp_path: Path, start: Start) -> None:
    """A committed offset outside of the input is named; `source.on_gap: skip` goes on without the events."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.feed(keyed(range(100), 1))
    await start(deployment).to_the_end()
    move_offsets(broker.bootstrap_servers, deployment.group, {0: 5000}, deployment.source)
    async with start(deployment) as worker:
        trouble = await worker.stopped()
        assert "5000" in trouble
        assert "source.on_gap" in trouble
    deployment.config["source"]["on_gap"] = "skip"
    deployment.feed(keyed(range(50, 150), 1))
    await start(deployment).to_the_end()
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.private_broker
@pytest.mark.rule(4)
def test_a_recreated_input_is_read_from_its_start(
    private_broker: OwnedBroker, tmp_path: Path
) -> None:
    """The offset of a topic that was deleted and made again is void: nothing below it is missed."""
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.feed(keyed(range(100), 1))
    run_to_the_end(deployment)
    delete_topic(deployment.bootstrap, deployment.source)
    create_topic(deployment.bootstrap, deployment.source, 1)
    deployment.feed(keyed(range(80, 300), 1))
    run_to_the_end(deployment)
    keys = output_keys(deployment)
    assert len(keys) == len(set(keys)) == 300


@pytest.mark.private_broker
@pytest.mark.needs_broker("topic ids")
@pytest.mark.rule(4)
async def test_a_recreated_output_stops_the_shard(
    private_broker: OwnedBroker, tmp_path: Path, start: Start
) -> None:
    """The output is the memory: if it was deleted and made again, the shard stops and says so."""
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.feed(keyed(range(100), 1))
    await start(deployment).to_the_end()
    delete_topic(deployment.bootstrap, deployment.sink)
    create_topic(deployment.bootstrap, deployment.sink, 1)
    async with start(deployment) as worker:
        assert "deleted and made again" in await worker.stopped()


TRIES = 5


@pytest.mark.private_broker
def test_a_broker_restart_loses_and_doubles_nothing(
    private_broker: OwnedBroker, tmp_path: Path
) -> None:
    """The broker is killed under load and comes back: the worker waits, fences, folds and goes on.

    Kafka from 4.1 on often loses the markers of transactions then, which `delivery.lost_markers` mends.
    """
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path).create()
    deployment.config["delivery"] |= {"batch_events_max": 200, "commit_interval_ms": 20}
    deployment.config["kafka"]["consumer"]["max_partition_fetch_bytes"] = 32_768
    deployment.feed(keyed([*range(30_000), *range(10_000)]))
    with deployment.running() as worker:
        worker.wait_for("shard_live", deployment.partitions)
        private_broker.kill()
        private_broker.start()
        deployment.catch_up(worker)
        assert worker.interrupt() == 0
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.private_broker
@pytest.mark.rule(17)
def test_a_drain_ends_while_the_broker_is_away(private_broker: OwnedBroker, tmp_path: Path) -> None:
    """With the broker gone, SIGTERM still ends the worker with 0, within the drain time, snapshots taken."""
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path).create()
    deployment.config["delivery"]["drain_s"] = 8
    deployment.feed(keyed(range(2000)))
    with deployment.running() as worker:
        deployment.catch_up(worker)
        private_broker.kill()
        assert worker.interrupt() == 0
    private_broker.start()
    assert len(worker.events("snapshot_saved")) == deployment.partitions


TOO_LONG_MS = 1_000_000  # the brokers' default limit is 900,000


@pytest.mark.broker
async def test_a_transaction_time_out_above_the_brokers_is_refused(
    deployment: Deployment, start: Start
) -> None:
    """Before the group is joined, with both numbers."""
    deployment.create()
    deployment.config["kafka"]["producer"] = {"transaction_timeout_ms": TOO_LONG_MS}
    text = await refused(deployment, start)
    assert "transaction.max.timeout.ms is 900000" in text
    assert f"kafka.producer.transaction_timeout_ms is {TOO_LONG_MS}" in text


@pytest.mark.broker
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
async def test_a_transaction_time_out_that_cannot_be_compared_stops_by_name(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    """Without the right to read the brokers' settings, their refusal (error 50) is no doubt: it never passes."""

    async def nobody_reports(_cluster: KafkaCluster) -> None:
        return None

    monkeypatch.setattr(KafkaCluster, "transaction_ms_max", nobody_reports)
    deployment.partitions = 1
    deployment.create()
    deployment.config["delivery"]["guarantee"] = guarantee
    deployment.config["kafka"]["producer"] = {"transaction_timeout_ms": TOO_LONG_MS}
    async with start(deployment) as worker:
        text = await worker.stopped()
    assert "kafka.producer.transaction_timeout_ms" in text
    assert "transaction.max.timeout.ms" in text
    assert worker.lines("doubt") == []


@pytest.mark.broker
async def test_a_session_that_the_brokers_do_not_allow_ends_the_worker(
    deployment: Deployment, start: Start
) -> None:
    """By both names: the group would refuse it for ever."""
    deployment.create()
    deployment.config["kafka"]["consumer"] = {
        "session_timeout_ms": 100,
        "heartbeat_interval_ms": 30,
    }
    with pytest.raises(DeliveryError, match=r"session_timeout_ms .* group\.min\.session\.timeout"):
        await start(deployment).task
