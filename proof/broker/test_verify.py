"""Claims about `blocklist.on_positive: verify` on a real broker: only what is on the list is blocked.

The lists err for one key in five, so that there is much to verify.
"""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamdedup import threads
from streamdedup.commands.trial import tried
from streamdedup.errors import SnapshotError
from streamdedup.events import Verdict
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.sink import transaction_s_max
from streamdedup.keys.hashing import Digests
from streamdedup.lists import load as load_list
from streamdedup.lists.exact_store import ExactStore
from streamdedup.server import findings
from streamdedup.settings import load
from tests.broker.base import DEADLINE_S, Broker
from tests.broker.topics import Event, Record, read_all
from tests.deployment import Deployment
from tests.lists.screening import blocked, build, header
from tests.local import LocalWorker, Start
from tests.memory import page

EVENTS = 20_000
ON_IT = [f"user{n}@example.com" for n in range(0, 4000, 2)]
EXACT = ("--exact", "--kind", "bloom", "--error-rate", "0.2")


@pytest.fixture
def screened(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions of addresses, no filter, a list with its store, a topic for what is blocked."""
    made = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    made.config["key"] = {"from": "key", "normalize": "email"}
    made.config["filter"] = {"kind": "none"}
    del made.config["snapshot"]
    made.config["blocklist"] = {"file": str(tmp_path / "block.list"), "on_positive": "verify"}
    made.create_side_topic("blocked_topic")
    build(tmp_path / "block.list", [*ON_IT, "@junk.example"], *EXACT)
    return made


def address(number: int) -> str:
    """Every fifth is of a domain that is on the list, and of the others every second is on it."""
    return f"user{number}@{'junk.example' if number % 5 == 0 else 'example.com'}"


def is_listed(number: int) -> bool:
    """Whether its event is to be blocked."""
    return number % 5 == 0 or number % 2 == 0


def sign_ups(numbers: Iterable[int]) -> Iterator[Event]:
    """An event of each; equal numbers share a partition."""
    for number in numbers:
        yield number % 2, address(number).encode(), b"%d" % number, [], None


def numbers_of(records: Iterable[Record]) -> list[int]:
    """What stands in the values, of one partition after the other, in order."""
    return [int(r.value or b"") for r in sorted(records, key=lambda r: (r.partition, r.offset))]


def expected(numbers: Sequence[int], *, listed: bool) -> list[int]:
    """Those that are to be blocked, or to pass: of one partition after the other, in order."""
    return sorted((n for n in numbers if is_listed(n) == listed), key=lambda n: n % 2)


def answers(path: Path, numbers: Sequence[int]) -> dict[str, int]:
    """What is to be counted: by what the filter of the list, asked here, says of each event."""
    listed = load_list(path)
    keys = [address(number).encode() for number in numbers]
    positive = listed.addresses.contains_many(listed.hash.digests(keys)).tolist()
    found: Counter[str] = Counter()
    for number, is_positive in zip(numbers, positive, strict=True):
        on_it = number % 2 == 0 and number % 5 != 0
        found[("confirmed" if on_it else "false_positive") if is_positive else "absent"] += 1
    return dict(found)


def counted(worker: LocalWorker) -> dict[str, int]:
    """What the page of metrics says, summed over the partitions."""
    found: Counter[str] = Counter()
    for line in page(worker, "/metrics").text.splitlines():
        if line.startswith("streamdedup_events_verified_total{"):
            found[line.partition('outcome="')[2].partition('"')[0]] += int(float(line.split()[-1]))
    return dict(found)


async def test_nobody_else_is_blocked_and_everything_is_counted(
    screened: Deployment, start: Start
) -> None:
    """Keys that are not on the list come out, in order; the others are blocked; the error rate is measured exactly."""
    chance = random.Random(1)
    numbers = [chance.randrange(4000) for _ in range(EVENTS)]
    await asyncio.to_thread(screened.feed, sign_ups(numbers))
    worker = await start(screened).through(len(numbers))
    output = await asyncio.to_thread(read_all, screened.bootstrap, screened.sink)
    assert numbers_of(output) == expected(numbers, listed=False)
    letters = await asyncio.to_thread(blocked, screened)
    assert numbers_of(letters) == expected(numbers, listed=True)
    by_rule = Counter(header(letter, "rule") for letter in letters)
    assert by_rule["domain"] == sum(n % 5 == 0 for n in numbers)
    found = counted(worker)
    assert found == answers(screened.directory / "block.list", numbers)
    assert sum(found.values()) == len(numbers)
    share = found["false_positive"] / (found["false_positive"] + found["absent"])
    assert 0.1 < share < 0.3
    assert worker.tally[Verdict.BLOCKED] == len(letters)


def test_try_verifies_too(screened: Deployment) -> None:
    """It says what a worker would do."""
    numbers = list(range(2000))
    screened.feed(sign_ups(numbers))
    found = asyncio.run(tried(load(screened.write_config()), 10_000))
    assert found.verdicts[Verdict.BLOCKED] == len(expected(numbers, listed=True))
    screened.config["blocklist"]["on_positive"] = "drop"
    found = asyncio.run(tried(load(screened.write_config()), 10_000))
    assert found.verdicts[Verdict.BLOCKED] > len(expected(numbers, listed=True)) + 50


async def test_a_store_that_cannot_be_read_loses_nothing(
    screened: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again until it can, and logged. Until then nothing passes or is blocked that was not verified."""
    holds, left = ExactStore.holds, [3]

    def failing(store: ExactStore, digests: Digests) -> Any:
        if left[0]:
            left[0] -= 1
            raise SnapshotError("cannot ask the store: IO error; check its disk")
        return holds(store, digests)

    monkeypatch.setattr(ExactStore, "holds", failing)
    numbers = list(range(2000))
    await asyncio.to_thread(screened.feed, sign_ups(numbers))
    worker = await start(screened).to_the_end()
    told_ = [line["error"] for line in worker.lines("doubt")]
    assert len(told_) == 3
    assert set(told_) == {"SnapshotError: cannot ask the store: IO error; check its disk"}
    output = await asyncio.to_thread(read_all, screened.bootstrap, screened.sink)
    assert numbers_of(output) == expected(numbers, listed=False)
    assert counted(worker) == answers(screened.directory / "block.list", numbers)


@contextmanager
def hanging_for(
    key: bytes, deployment: Deployment, patch: pytest.MonkeyPatch
) -> Iterator[threading.Event]:
    """Have every lookup with `key` wait for this event, which comes at the end."""
    holds, answers_again = ExactStore.holds, threading.Event()
    odd = load_list(deployment.directory / "block.list").hash.digests([key])

    def hanging(store: ExactStore, digests: Digests) -> Any:
        if (digests == odd).all(axis=1).any():
            answers_again.wait(10 * DEADLINE_S)
        return holds(store, digests)

    patch.setattr(ExactStore, "holds", hanging)
    try:
        yield answers_again
    finally:
        answers_again.set()


async def test_what_the_list_does_not_match_waits_for_no_lookup(
    screened: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though all threads that ask the store hang: the list itself answers in memory."""
    monkeypatch.setattr(threads, "LOOKUPS_MAX", 1)
    monkeypatch.setattr(findings, "LOOKUP_S_MAX", 0.01)
    listed = load_list(screened.directory / "block.list")
    numbers = [n for n in range(4002, 4200, 2) if n % 5]
    found = listed.addresses.contains_many(listed.hash.digests([address(n) for n in numbers]))
    absent = [n for n, is_found in zip(numbers, found, strict=True) if not is_found]
    odd = b"@junk.example"
    async with start(screened) as worker:
        await worker.live()
        with hanging_for(odd, screened, monkeypatch) as answers_again:
            began = time.monotonic()
            await asyncio.to_thread(screened.feed, sign_ups([5]))
            name = f"{screened.source}/1"
            await worker.until(
                lambda: name in page(worker).text, "a lookup that hangs, on the page"
            )
            waits = f"{name}: live, waits for the exact store of its block list, for "
            waited_s = page(worker).text.partition(waits)[2].partition(" s now")[0]
            assert int(waited_s) <= time.monotonic() - began + 0.5  # the page has whole seconds
            await asyncio.to_thread(screened.feed, sign_ups(absent))
            await worker.consumed(len(absent))
            answers_again.set()
            await worker.consumed(len(absent) + 1)
            await worker.until(lambda: page(worker).text.startswith("ready"), "nothing that waits")


async def test_a_disk_that_does_not_answer_holds_up_its_partition_only(
    screened: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on, and so do the others; once it answers, so does that one."""
    odd = b"@junk.example"
    waiting, others = [5, 15, 1, 3], [2, 4, 6, 8, 12]
    async with start(screened) as worker:
        await worker.live()
        with hanging_for(odd, screened, monkeypatch) as answers_again:
            await asyncio.to_thread(screened.feed, sign_ups(waiting))
            await worker.until(
                lambda: worker.worker.status.meters.of(1).in_flight == len(waiting),
                "events in hand",
            )
            await asyncio.to_thread(screened.feed, sign_ups(others))
            await worker.consumed(len(others))
            assert worker.tally.consumed == len(others)
            answers_again.set()
            await worker.consumed(len(others) + len(waiting))
    letters = await asyncio.to_thread(blocked, screened)
    assert Counter(numbers_of(letters)) == Counter(expected([*waiting, *others], listed=True))


async def test_a_disk_that_is_slow_is_no_broker_that_is_away(
    screened: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline of a transaction counts from the first verdict: nothing is taken back, however long that took."""
    holds, answers_again = ExactStore.holds, threading.Event()

    def hanging(store: ExactStore, digests: Digests) -> Any:
        answers_again.wait(DEADLINE_S)
        return holds(store, digests)

    screened.config["kafka"]["producer"] = {"request_timeout_ms": 1000}
    deadline_s = transaction_s_max(KafkaOptions.model_validate(screened.config["kafka"]))
    assert deadline_s < 1
    monkeypatch.setattr(ExactStore, "holds", hanging)
    numbers = [5, 15, 1, 3]
    async with start(screened) as worker:
        await worker.live()
        await asyncio.to_thread(screened.feed, sign_ups(numbers))
        await worker.until(lambda: worker.worker.status.meters.of(1).in_flight, "events in hand")
        await asyncio.sleep(2 * deadline_s)  # in which nothing may be given up
        answers_again.set()
        await worker.consumed(len(numbers))
        assert not worker.lines("doubt")
        assert not worker.lines("broker_away")
