"""Claims about what is known of a leader's clock: the truth is always within, and nothing is claimed without proof."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.kafka.broker_clock import (
    AGE_MS_MAX,
    DRIFT,
    LOOK_EVERY_MS,
    STEP_MS_MAX,
    BrokerClock,
    Span,
    certain_s,
)

EPOCH_MS = 1_790_000_000_000
HOUR_MS = 3_600_000


@dataclass
class Machines:
    """Two machines, some time in: ours, and a leader's, whose clock is ahead of the true time by `broker_ms`.

    `clock` is under test, over our two clocks.
    """

    passed_ms: float = 0.0
    ours_ms: float = 0.0
    broker_ms: float = 0.0
    slept_ms: float = 0.0  # which our monotonic clock did not count

    def __post_init__(self) -> None:
        self.clock = BrokerClock(self.now_ms, self.monotonic_s)

    def monotonic_s(self) -> float:
        """Our monotonic clock."""
        return (77_000 + self.passed_ms - self.slept_ms) / 1000

    def now_ms(self) -> int:
        """Our wall clock."""
        return math.floor(EPOCH_MS + self.passed_ms + self.ours_ms)

    @property
    def there_ms(self) -> int:
        """The leader's time, as it stamps it."""
        return math.floor(EPOCH_MS + self.passed_ms + self.broker_ms)

    def commit(self, before_ms: float = 3, after_ms: float = 4) -> None:
        """Ask for a commit; the leader writes its marker after `before_ms`, and we see it `after_ms` later."""
        asked_s = self.monotonic_s()
        self.passed_ms += before_ms
        stamped_ms = self.there_ms
        self.passed_ms += after_ms
        self.clock.saw(1, stamped_ms, asked_s, self.monotonic_s())

    @property
    def present(self) -> Span | None:
        """What is known of the leader's time."""
        return self.clock.present(1)

    def is_right(self) -> bool:
        """Whether the leader's time is known, and true."""
        present = self.present
        return present is not None and present.earliest <= self.there_ms <= present.latest


@pytest.fixture
def machines() -> Machines:
    """Give two machines whose clocks agree, after a commit."""
    made = Machines()
    made.commit()
    return made


delays = st.floats(0, 5_000)
offsets = st.floats(-30 * 24 * HOUR_MS, 30 * 24 * HOUR_MS)


@given(offsets, offsets, st.lists(st.tuples(delays, delays, st.floats(0, 100_000)), min_size=1))
def test_the_truth_is_within(
    ours_ms: float, broker_ms: float, commits: list[tuple[float, float, float]]
) -> None:
    """However wrong our clock is, and however long a marker takes: the leader's time lies in the interval."""
    machines = Machines(ours_ms=ours_ms, broker_ms=broker_ms)
    for before_ms, after_ms, pause_ms in commits:
        machines.commit(before_ms, after_ms)
        machines.passed_ms += pause_ms
        assert machines.is_right()
        difference = machines.clock.difference(1)
        assert difference is not None
        off_ms = machines.now_ms() - machines.there_ms
        assert difference.earliest <= off_ms <= difference.latest


@given(offsets, st.lists(st.tuples(delays, delays), min_size=1, max_size=8))
def test_each_marker_makes_it_narrower(
    broker_ms: float, commits: list[tuple[float, float]]
) -> None:
    """Of several markers the narrowest decides, but for the drift since."""
    machines = Machines(broker_ms=broker_ms)
    for before_ms, after_ms in commits:
        machines.commit(before_ms, after_ms)
    present = machines.present
    assert present is not None
    narrowest = min(map(sum, commits))
    assert present.latest - present.earliest <= narrowest + 2 * DRIFT * machines.passed_ms + 4


@given(offsets, st.floats(0, 0.0009), st.floats(0, AGE_MS_MAX))
def test_a_clock_that_drifts_stays_within(broker_ms: float, drift: float, pause_ms: float) -> None:
    """Clocks that NTP slews part slowly; the interval grows with the time since the marker."""
    machines = Machines(broker_ms=broker_ms)
    machines.commit()
    machines.passed_ms += pause_ms
    machines.broker_ms += drift * pause_ms
    assert machines.is_right()


def test_before_the_first_marker_nothing_is_known() -> None:
    """Of another leader neither."""
    machines = Machines()
    clock = machines.clock
    assert (clock.present(1), clock.difference(1), clock.is_due(1)) == (None, None, True)
    machines.commit()
    assert clock.present(1) is not None
    assert clock.present(2) is None


@pytest.mark.parametrize("step_ms", [2 * HOUR_MS, -2 * HOUR_MS, STEP_MS_MAX + 100])
def test_a_step_of_our_clock_forgets_everything_at_once(machines: Machines, step_ms: int) -> None:
    """Until the next marker nothing is known; a commit that was asked for before the step proves nothing."""
    clock = machines.clock
    asked_s, stamped_ms = machines.monotonic_s(), machines.there_ms
    machines.ours_ms += step_ms
    clock.look()
    assert clock.present(1) is None
    assert clock.is_due(1)
    assert [abs(step - step_ms) <= 1 for step in clock.steps_ms()] == [True]
    assert clock.steps_ms() == []
    clock.saw(1, stamped_ms, asked_s, machines.monotonic_s())
    assert clock.present(1) is None
    machines.passed_ms += 1
    machines.commit()
    assert machines.is_right()


def test_a_machine_that_slept_knows_nothing(machines: Machines) -> None:
    """Its monotonic clock stood still, and its wall clock was set when it woke up: what was known is wrong now."""
    machines.passed_ms += HOUR_MS
    machines.slept_ms += HOUR_MS
    machines.clock.look()
    assert machines.present is None


def test_a_clock_that_is_slewed_forgets_nothing(machines: Machines) -> None:
    """Many small corrections are no step."""
    for _ in range(100):
        machines.passed_ms += 200
        machines.ours_ms += 0.1
        machines.clock.look()
    assert machines.present is not None


def test_a_broker_whose_clock_was_set_is_believed_anew(machines: Machines) -> None:
    """The newest marker contradicts the others: it counts alone."""
    machines.broker_ms += 2 * HOUR_MS
    machines.commit()
    assert machines.is_right()


def test_what_is_known_ages(machines: Machines) -> None:
    """It is renewed after some seconds, and counts no more after an hour."""
    assert not machines.clock.is_due(1)
    machines.passed_ms += LOOK_EVERY_MS
    assert machines.clock.is_due(1)
    machines.passed_ms += AGE_MS_MAX
    assert machines.present is None


@pytest.mark.parametrize(
    ("difference", "seconds"),
    [
        (None, 0.0),
        (Span(-3, 8), 0.0),
        (Span(0, 8000), 0.0),
        (Span(7000, 7200), 7.0),
        (Span(-7200, -7000), -7.0),
    ],
)
def test_only_what_is_certain_is_a_difference(difference: Span | None, seconds: float) -> None:
    """The end of the interval that is nearer to 0; nothing if 0 is in it."""
    assert certain_s(difference) == seconds
