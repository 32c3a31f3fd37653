"""Filters for a few lookups: built over a mapped table without reading all of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_glancing: ContextVar[bool] = ContextVar("glancing", default=False)


@contextmanager
def at_a_glance() -> Iterator[None]:
    """Within this context, a filter takes its counts from its header, if its kind can, and does not read its table.

    Then its error rate is that of the number of keys in the header.
    """
    token = _glancing.set(True)
    try:
        yield
    finally:
        _glancing.reset(token)


def is_glance() -> bool:
    """Whether a filter is built for a few lookups."""
    return _glancing.get()
