"""A test that is a table: written as a claim about one row, it tries all, and tells of all that fail together."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from tests.rows import every

Claim = Callable[..., None]


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
