"""Tables in one test: every row is tried, and all that fail are told of together."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Row = TypeVar("Row")


def every(rows: Iterable[Row], check: Callable[[Row], None]) -> None:
    """Call `check` with each row; raises one group of the errors of all that failed, each with its row as a note."""
    failures = []
    for row in rows:
        try:
            check(row)
        except Exception as error:
            error.add_note(f"row: {row!r:.300}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} rows fail", failures)
