"""Claims about work that takes long: it is done beside the loop, and what is decided does not depend on that."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import email_validator
import pytest

from streamdedup.delivery import turns
from streamdedup.delivery.turns import KEYS_A_CALL, Turns, digests_of
from streamdedup.events import Column, EventBatch
from streamdedup.keys.extract import Extractor, Keys
from streamdedup.keys.hashing import MURMUR3, Digests
from streamdedup.keys.normalizers import normalizer
from streamdedup.threads import Lane
from tests.broker.base import DEADLINE_S
from tests.keys.test_extract import batch_of
from tests.local import until


class NotedHash:
    """A hash that notes in which threads it was asked."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def of_column(self, keys: Column) -> Digests:
        """Hash them."""
        self.threads.append(threading.get_ident())
        return MURMUR3.of_column(keys)


@pytest.mark.parametrize(
    ("cells", "is_long"), [([b"12345", b"67890"], False), ([b"12345", b"6789012"], True)]
)
async def test_long_keys_are_hashed_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, cells: list[bytes | None], is_long: bool
) -> None:
    """Above so many bytes of keys, in one or in several, a thread hashes them; below, the loop does."""
    monkeypatch.setattr(turns, "BYTES_A_TURN", 10)
    hash_, keys = NotedHash(), Column.of(cells)
    found = await digests_of(keys, hash_)  # type: ignore[arg-type]
    assert (found == MURMUR3.of_column(keys)).all()
    assert [thread != threading.get_ident() for thread in hash_.threads] == [is_long]


ADDRESSES = 3 * KEYS_A_CALL + 1


class Reading:
    """Keys of partitions whose addresses Python code must read, by a lane for one call at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = list[str]()  # the local part of each address, which is the partition's number
        self.may_read = threading.Event()
        self.lane = Lane(1)
        self._extractor = Extractor("key", normalizer=normalizer("email"))
        validate = email_validator.validate_email

        def noted(text: str, **options: Any) -> Any:
            self.read.append(text.partition("@")[0])
            assert self.may_read.wait(DEADLINE_S)
            return validate(text, **options)

        self._extractor.extract(batch_of([b"{}"], [b"a@example.com"], [[]]))  # loads the kernels
        monkeypatch.setattr(email_validator, "validate_email", noted)

    def begin(self, partition: int, domains: Sequence[str]) -> "asyncio.Task[Keys]":
        """Begin to extract the keys of a batch."""
        cells: list[bytes | None] = [f"{partition}@{domain}".encode() for domain in domains]
        batch: EventBatch = batch_of([b"{}"] * len(cells), cells, [[]] * len(cells))
        batch = replace(batch, partition=partition)
        return asyncio.create_task(turns.keys_of(batch, self._extractor, self.lane))


DEAR = [f"bücher{number}.example.org" for number in range(ADDRESSES)]


async def test_partitions_whose_keys_take_long_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few keys a turn, and no turn before those who came first had theirs: a plain batch waits for one of each."""
    reading = Reading(monkeypatch)
    reading.may_read.set()
    dear = [reading.begin(partition, DEAR) for partition in (1, 2, 3)]
    plain = reading.begin(0, ["example.com"] * 10_000)
    assert len({*(await plain).keys}) == 1
    assert len(reading.read) <= 4 * KEYS_A_CALL
    found = [(await keys).keys for keys in dear]
    assert [len({*keys}) for keys in found] == [ADDRESSES] * 3
    every_turn = [(name, len([*names])) for name, names in groupby(reading.read)]
    full, last = [(str(p), KEYS_A_CALL) for p in (1, 2, 3)], [(str(p), 1) for p in (1, 2, 3)]
    assert every_turn == [*full * 3, *last]


async def test_keys_that_nobody_waits_for_are_read_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call under way ends, after few keys; the next of that partition then has its turn."""
    reading = Reading(monkeypatch)
    keys = reading.begin(1, DEAR)
    await until(lambda: reading.read, lambda: "nothing is read")
    keys.cancel()
    await asyncio.wait([keys])
    assert reading.lane.busy
    reading.may_read.set()
    await until(lambda: not reading.lane.busy, lambda: "still read")
    assert len(reading.read) == KEYS_A_CALL
    assert len((await reading.begin(1, DEAR[:2])).keys) == 2
    assert len(reading.read) == KEYS_A_CALL + 2


async def test_a_turn_of_the_loop_is_for_one_caller() -> None:
    """Each goes on in a turn of its own, in the order in which they asked; one that is cancelled holds up no other."""
    turns_, seen = Turns(), list[str]()

    async def work(name: str) -> None:
        await turns_.mine()
        seen.append(name)
        asyncio.get_running_loop().call_soon(seen.append, "turn")

    tasks = [asyncio.create_task(work(name)) for name in "abcd"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    assert seen == ["a", "turn", "c", "turn", "d", "turn"]
