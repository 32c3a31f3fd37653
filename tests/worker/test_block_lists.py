"""Claims about events that a list blocks, over a broker in memory: what is counted, reported and refused."""

import json
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError

from streamdedup.events import Column, Verdict
from streamdedup.keys.hashing import Digests
from streamdedup.lists import KeyList
from streamdedup.lists.overlay import REASON_BYTES_MAX
from streamdedup.rules.lists import Matches
from streamdedup.testing.cluster import MemoryCluster
from tests.broker.topics import Event, Record
from tests.lists.numbered import addressed, build_lists
from tests.local import LocalWorker, Start, on_virtual_clock
from tests.memory import measured, page
from tests.memory_deployment import MemoryDeployment

BEHIND = "list_changes_behind_seconds"
CHANGES_LATE_S = 3.0  # the topic is looked at twice a second
NUMBERS = [1, 5, 3, 6, 15, 5, 1, 15]


@pytest.fixture
def deployment(tmp_path: Path) -> MemoryDeployment:
    """Two partitions, both lists, and a topic for what is blocked."""
    made = MemoryDeployment(tmp_path, partitions=2).create()
    made.config["key"] = {"from": "key", "normalize": "email"}
    made.config |= build_lists(tmp_path)
    made.create_side_topic("blocked_topic")
    return made


def without_filter(deployment: MemoryDeployment) -> MemoryDeployment:
    """The same, but it only screens: nothing is said of snapshots."""
    deployment.config["filter"] = {"kind": "none"}
    del deployment.config["snapshot"]
    return deployment


def numbers_of(records: Iterable[Record], partition: int) -> list[int]:
    """What stands in the values, in their order."""
    return [int(r.value or b"") for r in records if r.partition == partition]


def test_what_is_blocked_is_counted_by_rule(deployment: MemoryDeployment) -> None:
    """The sum of the verdicts is what was consumed; the page has rules, exemptions and the versions in force."""
    deployment.feed(addressed(NUMBERS, 2))
    worker = deployment.work()
    tally = worker.tally
    assert tally.consumed == len(NUMBERS)
    verdicts = {verdict: tally[verdict] for verdict in Verdict if tally[verdict]}
    assert verdicts == {Verdict.PASS: 2, Verdict.DUPLICATE: 2, Verdict.BLOCKED: 4}
    assert (tally.by_match.tolist(), tally.exempt) == ([0, 2, 2], 2)
    lines = page(worker, "/metrics").text.splitlines()
    for rule in ("address", "domain"):
        counts = [
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("streamdedup_events_listed_total{") and f'rule="{rule}"' in line
        ]
        assert sum(counts) == 2
    infos = [line for line in lines if line.startswith("streamdedup_list_info{")]
    assert sorted(line.partition('list="')[2].partition('"')[0] for line in infos) == [
        "allowlist",
        "blocklist",
    ]
    (stopped,) = worker.lines("stopped")
    assert stopped["blocked"] == 4


@pytest.mark.parametrize("shadow", [False, True])
def test_a_blocked_event_names_the_file_or_the_change_and_its_reason(
    deployment: MemoryDeployment, shadow: bool
) -> None:
    """In its letter, or, in shadow mode, in the output; a change wins over the file, and may be of a domain."""
    config = deployment.config
    config["sink"]["shadow"] = shadow
    deployment.broker.create_topic("control", 1, cleanup_policy="compact")
    config["blocklist"]["control_topic"] = "control"
    reason = "Chargeback 17, größer als erlaubt"
    changes = [
        (b"user5@example.com", {"op": "add", "reason": "x" * 1000}),
        (b"user1@example.com", {"op": "add"}),
        (b"@example.com", {"op": "add", "reason": "first"}),
        (b"@example.com", {"op": "add", "reason": reason, "actor": "anna"}),
        (b"user3@junk.org", {"op": "remove", "reason": "not this"}),
    ]
    deployment.produce(
        "control", [(0, entry, json.dumps(value).encode(), [], None) for entry, value in changes]
    )
    deployment.feed(addressed([5, 10, 1, 2, 3, 6], 2))
    deployment.work()
    topic = deployment.sink if shadow else config["sink"]["blocked_topic"]
    found = {
        int(record.value or b""): (
            headers["rule"],
            headers["list-source"],
            headers.get("list-reason"),
        )
        for record in deployment.read_all(topic)
        for headers in [{n.removeprefix("streamdedup."): v for n, v in record.headers}]
        if "rule" in headers
    }
    assert found == {
        5: (b"address", b"change", b"x" * REASON_BYTES_MAX),
        10: (b"address", b"file", None),
        1: (b"address", b"change", None),
        2: (b"domain", b"change", reason.encode()),
        6: (b"domain", b"file", None),
    }


def test_without_its_topic_what_is_blocked_is_only_counted(deployment: MemoryDeployment) -> None:
    """It goes nowhere, and the output is the same."""
    del deployment.config["sink"]["blocked_topic"]
    deployment.feed(addressed(NUMBERS, 2))
    assert deployment.work().tally[Verdict.BLOCKED] == 4
    assert sorted(int(r.value or b"") for r in deployment.read_all(deployment.sink)) == [1, 15]


def test_a_worker_that_only_screens_asks_nothing_of_its_output(
    deployment: MemoryDeployment,
) -> None:
    """Trimmed, compacted, and written to by others between two of its runs: it goes on where it was."""
    without_filter(deployment).feed(addressed([1, 2, 3], 2))
    deployment.work()
    for partition in range(2):
        deployment.broker.log(deployment.sink, partition).trim(1)
    deployment.alter(deployment.sink, cleanup_policy="compact")
    deployment.produce(deployment.sink, [(p, b"k", b"-1", [], None) for p in range(2)])
    deployment.feed(addressed([1, 5, 7], 2))
    worker = deployment.work()
    assert worker.tally.consumed == 3
    assert not worker.lines("doubt")
    output = deployment.read_all(deployment.sink)
    assert [n for n in numbers_of(output, 1) if n >= 0][-2:] == [1, 7]


def test_others_may_write_while_it_only_screens(deployment: MemoryDeployment) -> None:
    """No filter is the fold of the output, so nobody else's event harms: there is no doubt and no stop."""
    without_filter(deployment)

    async def scene(start: Start) -> None:
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.live()
            for count, number in enumerate((1, 2, 4), 1):
                event: Event = (0, b"user%d@example.com" % number, b"%d" % number, [], None)
                deployment.feed([event])
                await worker.consumed(count)
                deployment.produce(deployment.sink, [(0, b"foreign", b"-1", [], None)])
        assert not worker.lines("doubt")
        assert not worker.lines("shard_stopped")

    on_virtual_clock(scene)
    output = deployment.read_all(deployment.sink)
    assert numbers_of(output, 0) == [1, -1, 2, -1, 4, -1]


async def test_lists_are_asked_beside_the_loop(
    deployment: MemoryDeployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If keys are taken in a thread, a large list holds up nobody either."""
    asking, match = set(), KeyList.match

    def watched(listed: KeyList, keys: Column, digests: Digests) -> Matches:
        asking.add(threading.current_thread())
        return match(listed, keys, digests)

    monkeypatch.setattr(KeyList, "match", watched)
    deployment.feed(addressed([1, 3, 5, 15], 2))
    worker = await deployment.work_with(start)
    assert worker.tally[Verdict.BLOCKED] == 2
    assert asking
    assert threading.current_thread() not in asking


async def test_a_control_topic_in_trouble_shows(
    deployment: MemoryDeployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lost its end, or gives no answer: the log says so, the metric for how long; events flow on."""
    control, end = "control", 77
    deployment.broker.create_topic(control, 1, cleanup_policy="compact")
    deployment.produce(control, [(0, b"user1@example.com", b'{"op": "add"}', [], None)] * end)
    deployment.config["blocklist"]["control_topic"] = control
    ask = MemoryCluster.stable_offset

    async def without_an_end(cluster: MemoryCluster, topic: str, partition: int) -> int:
        return 0 if topic == control else await ask(cluster, topic, partition)

    async def without_an_answer(cluster: MemoryCluster, topic: str, partition: int) -> int:
        if topic == control:
            raise KafkaConnectionError
        return await ask(cluster, topic, partition)

    def is_followed(worker: LocalWorker) -> bool:
        (behind_s,) = measured(worker, BEHIND)
        return behind_s < CHANGES_LATE_S

    async with start(deployment, connect=deployment.connect) as worker:
        await worker.live()
        await worker.until(lambda: is_followed(worker), "topic that is read")
        monkeypatch.setattr(MemoryCluster, "stable_offset", without_an_end)
        (line,) = await worker.logged("changes_behind")
        assert f"{control}/0 ends at offset 0, and was read up to {end}" in line["error"]
        await worker.until(lambda: not is_followed(worker), "metric that tells of it")
        monkeypatch.setattr(MemoryCluster, "stable_offset", without_an_answer)
        deployment.feed(addressed([1, 2, 3], 2))
        await worker.consumed(3)
        assert not is_followed(worker)
        monkeypatch.setattr(MemoryCluster, "stable_offset", ask)
        await worker.until(lambda: is_followed(worker), "topic that is read again")
    assert worker.tally[Verdict.BLOCKED] == 2


def test_without_a_control_topic_nothing_can_be_behind(deployment: MemoryDeployment) -> None:
    """The metric is not there, so no alert on it is silent for want of a topic that is read."""
    assert measured(deployment.work(), BEHIND) == []
