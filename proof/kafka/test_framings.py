"""All framings of tests/kafka/test_framings.py: what Java's consumer reads is read here, however it is framed."""

from proof.kafka.framings import all_framings
from tests.kafka.test_framings import ANSWERS, found_as_read, read_as_java_does
from tests.rows import every


def test_the_answers_are_about_these_framings() -> None:
    """After a change of one, the other is made again."""
    assert list(ANSWERS) == [name for name, _ in all_framings()]


def test_all_that_javas_consumer_reads_is_read() -> None:
    """All of it, and the same; what it does not read is refused, with the reason, or read whole."""
    every(ANSWERS, read_as_java_does)


def test_a_header_is_found_in_every_framing() -> None:
    """The kernel that looks for one header reads a record as it is read whole."""
    every(ANSWERS, found_as_read)
