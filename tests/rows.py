"""Tables in one test: every row is tried, and all that fail are told of together."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Row = TypeVar("Row")
Claim = Callable[..., None]


def every(rows: Iterable[Row], check: Callable[[Row], None]) -> None:
    """Call `check` with each row; raises one group of the errors of all that failed, each with its row as a note."""
    failures = []
    for row in rows:
        try:
            check(row)
        except (Exception, pytest.fail.Exception) as error:
            # A `raises` that saw nothing fails by what is no Exception, which no group of these may hold.
            failed = error if isinstance(error, Exception) else AssertionError(str(error))
            failed.add_note(f"row: {row!r:.300}")
            failures.append(failed)
    if failures:
        raise ExceptionGroup(f"{len(failures)} rows fail", failures)


def table(rows: Iterable[Any]) -> Callable[[Claim], Claim]:
    """Make one test of a claim and its rows; a claim of several arguments takes a tuple of them from each row."""
    given = list(rows)
    assert given, "a table without rows proves nothing"

    def one_test(claim: Claim) -> Claim:
        several = len(inspect.signature(claim).parameters) > 1

        def test() -> None:
            every(given, (lambda row: claim(*row)) if several else claim)

        test.__name__, test.__doc__ = claim.__name__, claim.__doc__
        test.__module__, test.__qualname__ = claim.__module__, claim.__qualname__
        test.__dict__.update(claim.__dict__)
        return test

    return one_test
