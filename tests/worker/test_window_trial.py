"""A claim about `try` with a window: it decides each event as a worker does; on a broker in memory."""

import random
from pathlib import Path
from typing import Any

import pytest

from streamdedup.events import NO_TIMESTAMP, Verdict
from tests.local import Start, on_virtual_clock
from tests.worker.test_untimed_events import HOUR_MS, NOW_MS, Event, Stage

EVENTS = 600


def drawn(seed: int) -> list[Event]:
    """Events of 60 keys on a clock that goes on; some late, some from the future, some without a time."""
    chance, now_ms, events = random.Random(seed), NOW_MS, []
    for _ in range(EVENTS):
        now_ms += chance.randrange(HOUR_MS // 2)
        moved = chance.choices([0, -3, -9, -30, 1, 20], [60, 10, 8, 8, 10, 1])[0]
        at = now_ms + moved * HOUR_MS
        late = chance.choice([0, 1, NO_TIMESTAMP]) if chance.random() < 0.1 else at
        events.append((f"{chance.randrange(60)}", late))
    return events


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"late": "drop"},
        {"late": "drop", "max_jump": "2h"},
        {"refresh": True},
        {"late": "drop", "refresh": True, "max_jump": "2h"},
        {"retention": None, "capacity": 40},
        {"retention": None, "capacity": 40, "refresh": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(2))
def test_a_window_is_predicted_as_a_worker_decides(
    tmp_path: Path, options: dict[str, Any], seed: int
) -> None:
    """The same verdicts, and as many late events, whether these pass or not."""

    async def play(start: Start) -> None:
        stage, events = Stage(tmp_path, start, **options), drawn(seed)
        stage.deployment.config["filter"] = {
            name: value
            for name, value in stage.deployment.config["filter"].items()
            if value is not None
        }
        if "refresh" in options:
            stage.deployment.config["delivery"] = {"guarantee": "at_least_once"}
        worker = await stage.read(events)
        found = await stage.tried()
        told = {verdict: worker.tally[verdict] for verdict in Verdict if worker.tally[verdict]}
        assert found.verdicts == told
        assert found.late == worker.tally.late
        by_time = options.get("retention", "7h") is not None
        assert (found.late > 20) == by_time
        assert set(told) >= {Verdict.PASS, Verdict.DUPLICATE}
        dropped = found.late if options.get("late") == "drop" else 0
        assert found.verdicts[Verdict.BLOCKED] == dropped
        what = "blocked, as filter.late: drop asks" if dropped else "passed"
        assert (f"later than the window, and {what}: {found.late}\n" in found.as_text()) == by_time

    on_virtual_clock(play)
