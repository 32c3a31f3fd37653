"""Claims about the last lines of a process, at each of its ends."""

import pytest

from tests.logs.pipes import Pipe
from tests.logs.test_exits import ENDS, ends_without_a_reader, last_lines_come
from tests.logs.test_exits import pipe as pipe  # noqa: PLC0414 - a fixture


@pytest.mark.parametrize("how", ENDS)
def test_the_last_lines_come_at_each_end(pipe: Pipe, how: str) -> None:
    """Every line, once, in order, and then what ended it."""
    last_lines_come(pipe, how)


@pytest.mark.parametrize("how", [how for how in ENDS if how != "after a fork"])
def test_without_a_reader_each_end_comes(pipe: Pipe, how: str) -> None:
    """With its own status, a second later."""
    ends_without_a_reader(pipe, how)
