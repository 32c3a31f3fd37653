"""Claims about emission: what malformed events cost the loop, and what the operator is told of them."""

import asyncio
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from structlog.testing import capture_logs

from streamdedup.emission import LETTERS_A_TURN, TELL_EVERY_S, Emission
from streamdedup.events import Verdict
from streamdedup.flight import Part
from streamdedup.kafka import limits as limits_module
from streamdedup.kafka.records import Record
from streamdedup.kafka.topics import Topic, Topology
from streamdedup.settings import Settings
from streamdedup.testing.clock import VirtualLoop
from tests.test_limits import NOW_MS, events, limits

REASON = "the field id is missing"


class Sent:
    """A writer that counts the turns of the loop between two sends."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.turns: list[int] = []
        self._turn = 0

    async def turning(self) -> None:
        """Count, until cancelled."""
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    async def copy(self, *_arguments: Any) -> None:
        """Nothing passes."""

    async def send(self, _topic: str, records: Iterable[Record], _bytes_max: int) -> None:
        """Without awaiting anything."""
        self.sizes.append(len(list(records)))
        self.turns.append(self._turn)


def emission_to(writer: Any, *, dead_letters: bool = True) -> Emission:
    """An emission whose topics have Kafka's own limits."""
    letters = {"dead_letter_topic": "letters"} if dead_letters else {}
    made = Emission(
        Settings.model_validate(
            {
                "kafka": {"bootstrap_servers": "localhost:9092", "group_id": "g"},
                "source": {"topic": "in"},
                "key": {"from": "json", "field": "id"},
                "filter": {"capacity": 1000},
                "sink": {"topic": "out", **letters},
                "snapshot": {"directory": "snapshots"},
            }
        ),
        writer,
    )
    topics = {name: Topic(name, None, 1, 1) for name in ("out", "letters")}
    made.observe(Topology(None, topics))
    return made


def malformed_part(count: int) -> Part:
    """A part of which no event has a key."""
    batch = events(*((NOW_MS, b"secret", b"{}", ()) for _ in range(count)))
    verdicts = np.full(count, Verdict.MALFORMED, dtype=np.uint8)
    return Part(batch, verdicts, dict.fromkeys(range(count), REASON), {}, NOW_MS)


async def test_dead_letters_leave_the_loop_its_turns() -> None:
    """They are made so many at a time, and others run in between."""
    writer = Sent()
    turning = asyncio.create_task(writer.turning())
    await emission_to(writer).emit(malformed_part(2 * LETTERS_A_TURN + 1))
    turning.cancel()
    assert writer.sizes == [LETTERS_A_TURN, LETTERS_A_TURN, 1]
    assert writer.turns[0] < writer.turns[1] < writer.turns[2]


def test_what_fits_anyway_is_not_built_to_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most records are far below the limit: only the others are made and compressed to be weighed."""
    built = []

    def noted(*arguments: Any) -> Any:
        built.append(1)
        return DefaultRecordBatchBuilder(*arguments)

    monkeypatch.setattr(limits_module, "DefaultRecordBatchBuilder", noted)
    narrow = limits("none", {"max.message.bytes": "1000"})
    assert narrow.takes((NOW_MS, b"k", b"x" * 800, [("h", b"v")]))
    assert not built
    assert not narrow.takes((NOW_MS, b"k", b"x" * 1000, []))
    assert built


@pytest.mark.parametrize("dead_letters", [True, False])
def test_the_operator_is_told_that_events_have_no_key(dead_letters: bool) -> None:
    """At once, with reason and offset and without the key, and then once a minute with how many there were."""

    async def emit_for_a_while() -> None:
        made = emission_to(Sent(), dead_letters=dead_letters)
        for _ in range(4):
            await made.emit(malformed_part(10))
        await asyncio.sleep(TELL_EVERY_S)
        await made.emit(malformed_part(10))

    with capture_logs() as lines, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(emit_for_a_while())
    assert [line["event"] for line in lines] == ["malformed"] * 2
    assert [line["events"] for line in lines] == [10, 40]
    assert (lines[0]["reason"], lines[0]["offset"]) == (REASON, 0)
    assert lines[0]["not_judged"] == ("dead_letter" if dead_letters else "pass")
    assert "secret" not in str(lines)


def test_nothing_is_told_where_all_have_keys() -> None:
    """A line that always comes is read by nobody."""
    part = malformed_part(3)
    passed = Part(part.batch, np.zeros(3, dtype=np.uint8), {}, {}, NOW_MS)
    with capture_logs() as lines:
        asyncio.run(emission_to(Sent()).emit(passed))
    assert not lines
