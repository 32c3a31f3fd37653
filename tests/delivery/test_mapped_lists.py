"""Claims about lists that are mapped files: a lookup may wait for the disk, and the loop does not."""

import asyncio
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from streamdedup.events import Column, Verdict
from streamdedup.keys.hashing import Digests
from streamdedup.lists import key_list, load
from streamdedup.lists.changed_list import ChangedList
from streamdedup.lists.overlay import NO_CHANGES
from streamdedup.rules.lists import Lists, Matches
from tests.broker.base import DEADLINE_S
from tests.delivery.bombs import Way, body, record_batch, settings_of
from tests.kafka.test_columns import fetched
from tests.lists.listed import Listed
from tests.lists.tools import built


@dataclass
class Evicted(Listed):
    """A list whose pages are not in memory: a lookup waits until `read` is set. `asked_by` are the threads."""

    is_mapped: bool = True
    read: threading.Event = field(default_factory=threading.Event)
    asked_by: list[int] = field(default_factory=list)

    def match(self, keys: Column, digests_: Digests) -> Matches:
        """Return what each key matches."""
        self.asked_by.append(threading.get_ident())
        assert self.read.wait(DEADLINE_S if threading.main_thread() is not _current() else 0)
        return super().match(keys, digests_)


def _current() -> threading.Thread:
    return threading.current_thread()


@pytest.mark.parametrize("which", ["block", "allow"])
async def test_pages_that_are_not_in_memory_hold_up_no_loop(tmp_path: Path, which: str) -> None:
    """Who waits for them is reported, by the option that names the file; then the events are decided as ever."""
    evicted = Evicted([b"a"])
    lists = Lists(block=evicted) if which == "block" else Lists(allow=evicted, block=Listed([b"a"]))
    way = Way(settings_of(tmp_path, key={"from": "value"}))
    services = way._decider._services
    services.lists.now = lists
    [batch] = fetched(record_batch(0, [body(b"a"), body(b"b")], 0))
    deciding = asyncio.create_task(way.decide(batch))
    async with asyncio.timeout(DEADLINE_S):
        while not evicted.asked_by:
            await asyncio.sleep(0.001)
    waits = services.threads.lists.waits("in/0")
    evicted.read.set()
    await deciding
    assert waits is not None
    assert "waits for the mapped file of a list" in waits
    assert threading.get_ident() not in evicted.asked_by
    verdicts = way.parts[0].verdicts.tolist()
    assert verdicts == [Verdict.BLOCKED if which == "block" else Verdict.PASS, Verdict.PASS]


@pytest.mark.parametrize("copied_max", [0, key_list.COPIED_BYTES_MAX])
def test_a_list_knows_whether_it_is_mapped(
    tmp_path: Path, copied_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small one is copied into memory, where a lookup waits for nothing; so does one with single changes."""
    path = built(tmp_path, ["a"]).path
    assert path is not None
    monkeypatch.setattr(key_list, "COPIED_BYTES_MAX", copied_max)
    listed = load(path)
    is_mapped = copied_max == 0
    changed = ChangedList(listed, NO_CHANGES, 0)
    assert (listed.is_mapped, changed.is_mapped) == (is_mapped, is_mapped)
    assert Lists(block=changed).are_mapped is is_mapped
    assert Lists(allow=listed, block=replace(listed, is_mapped=False)).are_mapped is is_mapped
    assert not Lists().are_mapped
