"""The topics of events that a list blocks, on a real broker, with a filter and without one, despite kills."""

import asyncio
import random
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamdedup.cli import main
from streamdedup.errors import ConfigError
from streamdedup.events import Column, Verdict
from streamdedup.keys.hashing import Digests
from streamdedup.lists import KeyList
from streamdedup.rules.lists import Matches
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from tests.broker.base import Broker
from tests.broker.proxy import Api, Cut, Frame, Proxy, Replace, let_pass
from tests.broker.topics import (
    Event,
    Record,
    alter_topic,
    create_topic,
    delete_records,
    produce,
    read_all,
    unique_name,
)
from tests.deployment import Deployment
from tests.local import LocalWorker, Start, run_to_the_end, single

pytestmark = pytest.mark.broker

EVENTS, KEYS = 40_000, 9_000
KILLS = 3
CHANGES_LATE_S = 3.0  # the topic is looked at twice a second


def addresses(numbers: Iterable[int]) -> Iterator[Event]:
    """Events by their record keys, a third of them of one domain; equal keys share a partition."""
    for number in numbers:
        domain = b"junk.org" if number % 3 == 0 else b"example.com"
        yield number % 2, b"User%d@%s" % (number, domain), b"%d" % number, [], None


def is_blocked(number: int) -> str | None:
    """By which rule; what is in both lists is not."""
    if number % 15 == 0:
        return None
    if number % 5 == 0:
        return "address"
    return "domain" if number % 3 == 0 else None


def build_lists(directory: Path) -> dict[str, dict[str, str]]:
    """The two sections, their lists built by the command, in this process: another takes ten times as long."""
    numbers = range(0, KEYS, 5)
    texts = {
        "allow": [f"user{n}@junk.org" for n in range(0, KEYS, 15)],
        "block": ["@junk.org", *(f"user{n}@example.com" for n in numbers if n % 3)],
    }
    for name, entries in texts.items():
        (directory / f"{name}.txt").write_text("\n".join(entries))
        options = ["--normalize", "email", "--name", f"{name}ed"]
        source, output = f"{directory}/{name}.txt", f"{directory}/{name}.list"
        assert main(["lists", "build", source, "-o", output, *options]) == 0
    return {f"{name}list": {"file": f"{directory}/{name}.list"} for name in texts}


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions, both lists, and a topic for what is blocked; transactions are small."""
    made = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    made.config["key"] = {"from": "key", "normalize": "email"}
    made.config |= build_lists(tmp_path)
    made.config["snapshot"]["interval_s"] = 0.3
    made.config["delivery"] |= {"batch_events_max": 500, "commit_interval_ms": 20}
    made.config["kafka"]["consumer"]["max_partition_fetch_bytes"] = 32_768
    made.create_side_topic("blocked_topic")
    return made


def without_filter(deployment: Deployment) -> Deployment:
    """The same, but it only screens: nothing is said of snapshots."""
    deployment.config["filter"] = {"kind": "none"}
    del deployment.config["snapshot"]
    return deployment


def numbers_of(records: Iterable[Record], partition: int) -> list[int]:
    """What stands in the values, in their order."""
    return [int(r.value or b"") for r in records if r.partition == partition]


def check_blocked(deployment: Deployment, numbers: list[int]) -> None:
    """Each blocked event is there once, whole, and says where it stood and by what it was blocked."""
    stood = {(r.partition, r.offset): r for r in read_all(deployment.bootstrap, deployment.source)}
    letters = read_all(deployment.bootstrap, deployment.config["sink"]["blocked_topic"])
    assert len(letters) == sum(is_blocked(n) is not None for n in numbers)
    found, versions = set(), set()
    for letter in letters:
        headers = {name: value or b"" for name, value in letter.headers}
        event = stood[letter.partition, int(headers["streamdedup.offset"])]
        found.add((event.partition, event.offset))
        assert (letter.key, letter.value) == (event.key, event.value)
        assert int(headers["streamdedup.timestamp"]) == event.timestamp_ms
        assert headers["streamdedup.list"] == b"blocked"
        assert headers["streamdedup.rule"].decode() == is_blocked(int(event.value or b""))
        versions.add(headers["streamdedup.list-version"])
    assert len(found) == len(letters)
    assert len(versions) == 1


def kill_at_work(deployment: Deployment, chance: random.Random) -> None:
    """Start a worker and kill it, several times, at least once in the middle of the work."""
    deployment.expect_kills()
    at_work = 0
    for attempt in range(KILLS):
        with deployment.running(f"{attempt}.log") as worker:
            worker.wait_for("shard_live", 1)
            deployment.kill_in_turn(worker, attempt, chance, EVENTS)
        at_work += 0 < deployment.committed_so_far() < EVENTS
    assert at_work, "the kills came too late to prove anything"


def test_kills_lose_and_double_nothing_of_what_is_blocked(deployment: Deployment) -> None:
    """Output and topic of the blocked hold each event once; what is on both lists passes once, as other keys do."""
    chance = random.Random(1)
    numbers = [chance.randrange(KEYS) for _ in range(EVENTS)]
    deployment.feed(addresses(numbers))
    kill_at_work(deployment, chance)
    run_to_the_end(deployment)
    output = read_all(deployment.bootstrap, deployment.sink)
    passing = list(dict.fromkeys(n for n in numbers if is_blocked(n) is None))
    for partition in range(2):
        expected = [n for n in passing if n % 2 == partition]
        assert numbers_of(output, partition) == expected
    check_blocked(deployment, numbers)


def test_without_a_filter_kills_lose_and_double_nothing_either(deployment: Deployment) -> None:
    """Each event that is not blocked passes, as often as it came and in its place; nothing is folded or saved."""
    chance = random.Random(2)
    numbers = [chance.randrange(KEYS) for _ in range(EVENTS)]
    without_filter(deployment).feed(addresses(numbers))
    kill_at_work(deployment, chance)
    last = run_to_the_end(deployment)
    output = read_all(deployment.bootstrap, deployment.sink)
    for partition in range(2):
        expected = [n for n in numbers if n % 2 == partition and is_blocked(n) is None]
        assert numbers_of(output, partition) == expected
    check_blocked(deployment, numbers)
    assert not last.lines("output_folded")
    assert not last.lines("snapshot_saved")
    assert not list(deployment.directory.rglob("*.snapshot"))


async def test_what_is_blocked_is_counted_by_rule(deployment: Deployment, start: Start) -> None:
    """The sum of the verdicts is what was consumed; the page has rules, exemptions and the versions in force."""
    numbers = [1, 5, 3, 6, 15, 5, 1, 15]
    deployment.feed(addresses(numbers))
    worker = await start(deployment).through(len(numbers))
    tally = worker.tally
    assert tally.consumed == len(numbers)
    verdicts = {verdict: tally[verdict] for verdict in Verdict if tally[verdict]}
    assert verdicts == {Verdict.PASS: 2, Verdict.DUPLICATE: 2, Verdict.BLOCKED: 4}
    assert (tally.by_match.tolist(), tally.exempt) == ([0, 2, 2], 2)
    page = pages(worker.worker.status, Pulse())["/metrics"]().text
    for rule in ("address", "domain"):
        counts = [
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith("streamdedup_events_listed_total{") and f'rule="{rule}"' in line
        ]
        assert sum(counts) == 2
    infos = [line for line in page.splitlines() if line.startswith("streamdedup_list_info{")]
    assert sorted(line.partition('list="')[2].partition('"')[0] for line in infos) == [
        "allowlist",
        "blocklist",
    ]
    (stopped,) = worker.lines("stopped")
    assert stopped["blocked"] == 4


def test_without_its_topic_what_is_blocked_is_only_counted(deployment: Deployment) -> None:
    """It goes nowhere, and the output is the same."""
    del deployment.config["sink"]["blocked_topic"]
    numbers = [1, 5, 3, 6, 15, 5, 1, 15]
    deployment.feed(addresses(numbers))
    worker = run_to_the_end(deployment)
    assert worker.tally[Verdict.BLOCKED] == 4
    output = read_all(deployment.bootstrap, deployment.sink)
    assert sorted(int(r.value or b"") for r in output) == [1, 15]


def test_a_worker_that_only_screens_asks_nothing_of_its_output(deployment: Deployment) -> None:
    """Trimmed, compacted, and written to by others between two of its runs: it goes on where it was."""
    without_filter(deployment).feed(addresses([1, 2, 3]))
    run_to_the_end(deployment)
    delete_records(deployment.bootstrap, deployment.sink, {0: 1, 1: 1})
    alter_topic(deployment.bootstrap, deployment.sink, cleanup_policy="compact")
    produce(deployment.bootstrap, deployment.sink, [(p, b"k", b"-1", [], None) for p in range(2)])
    deployment.feed(addresses([1, 5, 7]))
    worker = run_to_the_end(deployment)
    assert worker.tally.consumed == 3
    assert not worker.lines("doubt")
    output = read_all(deployment.bootstrap, deployment.sink)
    assert [n for n in numbers_of(output, 1) if n >= 0][-2:] == [1, 7]


async def test_others_may_write_while_it_only_screens(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """No filter is the fold of the output, so nobody else's event harms: there is no doubt and no stop."""
    there = single(broker, tmp_path).create()
    there.config["key"] = {"from": "key", "normalize": "email"}
    there.config |= build_lists(tmp_path)
    without_filter(there)
    async with start(there) as worker:
        await worker.live()
        for number in (1, 2, 4):
            event: Event = (0, b"user%d@example.com" % number, b"%d" % number, [], None)
            await asyncio.to_thread(there.feed, [event])
            await worker.consumed((1, 2, 4).index(number) + 1)
            foreign: list[Any] = [(0, b"foreign", b"-1", [], None)]
            await asyncio.to_thread(produce, there.bootstrap, there.sink, foreign)
    assert not worker.lines("doubt")
    assert not worker.lines("shard_stopped")
    output = await asyncio.to_thread(read_all, there.bootstrap, there.sink)
    assert numbers_of(output, 0) == [1, -1, 2, -1, 4, -1]


async def test_lists_are_asked_beside_the_loop(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If keys are taken in a thread, a large list holds up nobody either."""
    asking, match = set(), KeyList.match

    def watched(listed: KeyList, keys: Column, digests: Digests) -> Matches:
        asking.add(threading.current_thread())
        return match(listed, keys, digests)

    monkeypatch.setattr(KeyList, "match", watched)
    deployment.feed(addresses([1, 3, 5, 15]))
    worker = await start(deployment).through(4)
    assert worker.tally[Verdict.BLOCKED] == 2
    assert asking
    assert threading.current_thread() not in asking


def changes_behind_s(worker: LocalWorker) -> float | None:
    """Return the value of the metric; None if it is not there."""
    page = pages(worker.worker.status, Pulse())["/metrics"]().text
    name = "streamdedup_list_changes_behind_seconds "
    return next(
        (float(line.split()[1]) for line in page.splitlines() if line.startswith(name)), None
    )


def is_followed(worker: LocalWorker) -> bool:
    """Whether the metric says that the control topic was read a moment ago."""
    behind_s = changes_behind_s(worker)
    assert behind_s is not None
    return behind_s < CHANGES_LATE_S


async def test_a_control_topic_in_trouble_shows(deployment: Deployment, start: Start) -> None:
    """One that lost its end, or gives no answer: the log says so, the metric for how long; events flow on."""
    control, end = unique_name("control"), 77
    added: list[Event] = [(0, b"user1@example.com", b'{"op": "add"}', [], None)] * end
    create_topic(deployment.bootstrap, control, 1, cleanup_policy="compact")
    produce(deployment.bootstrap, control, added)
    deployment.config["blocklist"]["control_topic"] = control

    def without_an_end(frame: Frame) -> Replace | None:
        if not is_of(frame, control) or not frame.is_answer:
            return None
        return Replace(frame.message.replace(end.to_bytes(8), bytes(8)))

    with Proxy(deployment.bootstrap) as proxy:
        async with start(deployment, proxy) as worker:
            await worker.live()
            await worker.until(lambda: is_followed(worker), "topic that is read")
            proxy.rule = without_an_end
            (line,) = await worker.logged("changes_behind")
            assert f"{control}/0 ends at offset 0, and was read up to {end}" in line["error"]
            await worker.until(lambda: not is_followed(worker), "metric that tells of it")
            proxy.rule = lambda frame: Cut() if is_of(frame, control) else None
            await asyncio.to_thread(deployment.feed, addresses([1, 2, 3]))
            await worker.consumed(3)
            assert not is_followed(worker)
            proxy.rule = let_pass
            await worker.until(lambda: is_followed(worker), "topic that is read again")
    assert worker.tally[Verdict.BLOCKED] == 2


def is_of(frame: Frame, topic: str) -> bool:
    """Whether it asks for the end of `topic`, or answers that."""
    return frame.api == Api.LIST_OFFSETS and topic.encode() in frame.message


async def test_without_a_control_topic_nothing_can_be_behind(
    deployment: Deployment, start: Start
) -> None:
    """The metric is not there, so no alert on it is silent for want of a topic that is read."""
    async with start(deployment) as worker:
        await worker.live()
        assert changes_behind_s(worker) is None


async def test_a_list_that_does_not_fit_ends_the_worker_before_it_joins(
    deployment: Deployment, start: Start
) -> None:
    """Built for other keys: nothing is read."""
    deployment.config["key"]["normalize"] = "lowercase"
    worker = start(deployment)
    with pytest.raises(ConfigError, match="normalized by"):
        await worker.task
    assert not worker.lines("joining")
