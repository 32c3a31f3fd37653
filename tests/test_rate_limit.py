"""Claims about lines of the log that could come too often: nothing waits that is new, and nothing is left out."""

from streamdedup.logs import RateLimit


def test_the_first_is_told_at_once_and_the_others_together() -> None:
    """Each line tells of all that happened since the one before."""
    limit = RateLimit(60)
    assert limit.due(1000.0, 3) == 3
    assert [limit.due(now) for now in (1000.0, 1001.0, 1059.9)] == [0, 0, 0]
    assert limit.due(1060.0, 2) == 5
    assert limit.due(1060.0) == 0


def test_after_a_quiet_time_the_next_is_told_at_once() -> None:
    """How long it was quiet does not matter."""
    limit = RateLimit(60)
    assert limit.due(0.0) == 1
    assert limit.due(86_400.0) == 1
