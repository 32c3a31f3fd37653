"""Claims about what an audit says of keys in several partitions; over a broker in memory."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamdedup.cli import main
from streamdedup.commands import audit as package
from streamdedup.commands.audit import Report, audit
from streamdedup.commands.audit.across import EmittedKeys
from streamdedup.commands.audit.rows import DUE, EMITTED, Sorter, rows_of
from streamdedup.delivery.cross_partition import REMEDY, Watch
from streamdedup.filters.window.clock import UNLIMITED, Clock
from streamdedup.keys.hashing import MURMUR3
from streamdedup.settings import load
from streamdedup.testing import connected_to
from tests import memory
from tests.local import Start, on_virtual_clock
from tests.memory import over
from tests.spread import PARTITIONS, Spread, spread

SIZE_BYTES = 1 << 20


class Stage(memory.Stage):
    """A broker in memory whose output a worker wrote."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start, PARTITIONS)
        self.config["key"] = {"field": "id"}

    async def run(self, events: Iterable[Any]) -> None:
        """Feed these, and have a worker read all of them."""
        given = [event[:3] for event in events]
        self.broker.produce(self.source, given)
        await self.ended(len(given))

    async def audited(self, **options: Any) -> Report:
        """The report."""
        settings = load(self.deployment.write_config())
        return await audit(settings, connected_to(self.broker), **options)


@pytest.fixture(scope="module")
def stream() -> Spread:
    """A small one without record keys."""
    return spread(3000, 948)


@over(Stage)
async def test_with_evidence_the_promise_holds_within_partitions_only(
    stage: Stage, stream: Spread
) -> None:
    """A plain audit compares a sample, which is all of a small topic, and says the share and the remedy."""
    await stage.run(stream.events)
    report = await stage.audited()
    text = report.as_text()
    assert not report.fine
    assert report.breaches == ()
    assert text.endswith("\nthe promise holds within each partition only\n")
    assert "948 keys of a sample, of which" in text
    assert f"about {stream.unseen_share:.1%} of all duplicates pass" in text
    assert REMEDY in text
    assert "user" not in text
    across = report.as_json()["across"]
    assert across["compared"] == "sample"
    assert across["share_of_duplicates"] == pytest.approx(stream.unseen_share)
    assert across["doubled"] is None


@over(Stage)
async def test_across_partitions_each_copy_is_doubled(stage: Stage, stream: Spread) -> None:
    """All keys are compared: events emitted again in another partition are a breach, with the first of them."""
    await stage.run(stream.events)
    for size_bytes in (SIZE_BYTES, 50_000):  # in memory, and in a file
        report = await stage.audited(across=True, size_bytes=size_bytes)
        found = report.across
        assert found is not None
        assert (found.keys, found.doubled) == (948, stream.passing - 948)
        (breach,) = report.breaches
        assert f"{stream.passing - 948:,} events emitted again in another partition" in breach
        assert f"{stage.sink}/{found.places[0][0]} at offset" in breach
        assert report.as_text().endswith("\nbreach of the promise\n")
        assert all(counts.doubled == 0 for counts in report.partitions)
        limits = {limit.name for counts in report.partitions for limit in counts.limits}
        assert "keys_across_partitions" not in limits
        output = stage.broker.read_all(stage.sink)
        for partition, offset in found.places:
            (event,) = [one for one in output[partition] if one.offset == offset]
            assert any(
                event.value == other.value
                for elsewhere, events in enumerate(output)
                for other in events
                if elsewhere != partition
            )


@over(Stage)
async def test_keys_that_lie_in_one_partition_each_are_fine(stage: Stage) -> None:
    """Then it is known that the promise holds, if all were compared."""
    numbers = [*range(300), *range(300)]
    await stage.run([(n % 6, b"%d" % (n % 6), b'{"id": "%d"}' % n) for n in numbers])
    report = await stage.audited()
    assert report.fine
    assert report.as_text().endswith("the promise holds as far as can be known\n")
    report = await stage.audited(across=True)
    assert report.fine
    assert "300 keys in the output, of which 0 in several partitions\n" in report.as_text()
    assert report.as_text().endswith("\nthe promise holds\n")


def test_the_command_has_a_status_for_each(
    tmp_path: Path,
    stream: Spread,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """3 if the promise holds within each partition only, 1 if keys were found doubled across them."""
    stages = list[Stage]()

    async def scene(start: Start) -> None:
        stages.append(Stage(tmp_path, start))
        await stages[0].run(stream.events)

    on_virtual_clock(scene)
    (stage,) = stages

    async def connected(settings: Any, **options: Any) -> Report:
        return await audit(settings, connected_to(stage.broker), **options)

    monkeypatch.setattr(package, "audit", connected)
    config = str(stage.deployment.write_config())
    assert main(["audit", "-c", config]) == 3
    assert main(["audit", "-c", config, "--across"]) == 1
    capsys.readouterr()
    assert main(["audit", "-c", config, "--json"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["fine"] is False
    assert report["across"]["evidence"] is True


# --- windows ---


def emitted(
    clock: Clock | None, *partitions: list[tuple[int, int]], size_bytes: int = SIZE_BYTES
) -> EmittedKeys:
    """Give the keys of partitions, each with a list of (key, generation), in the order of their offsets."""
    keys = EmittedKeys(clock, size_bytes=size_bytes)
    for partition, events in enumerate(partitions):
        digests = MURMUR3.digests([b"%d" % key for key, _ in events])
        rows = rows_of(clock is not None, EMITTED, digests, np.arange(len(events)))
        if clock is not None:
            rows["generation"] = [generation for _, generation in events]
        with Sorter(timed=clock is not None, size_bytes=size_bytes) as sorter:
            sorter.add(rows)
            sorter.add(rows_of(clock is not None, DUE, digests, np.arange(len(events))))
            keys.add(partition, sorter.parts())
    return keys


def by_time(generations: int) -> Clock:
    """A window that keeps so many."""
    return Clock(slot=1000, generations=generations, max_jump=UNLIMITED, by_count=False)


def test_a_window_may_emit_a_key_again_once_it_forgot_it() -> None:
    """In another partition, too: only what lies less than the window apart is doubled."""
    found = emitted(by_time(4), [(1, 0), (2, 0), (3, 5)], [(1, 4), (2, 3), (3, 5)], [(2, 9)])
    across = found.compared(Watch())
    assert (across.keys, across.in_several, across.doubled) == (3, 3, 2)
    assert across.places == ((1, 1), (1, 2))
