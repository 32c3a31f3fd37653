"""Work in steps: a generator that yields after each piece of Python work, and returns the result.

Python code reads a key in at most some 1 ms, so whoever counts the steps bounds how long a call takes.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]


def drained(steps: Steps[T]) -> T:
    """Do all steps, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # typed by the generator


def advanced(steps: Steps[T], most: int) -> T | None:
    """Do at most `most` steps; return the result, or None if there are more."""
    try:
        for _ in range(most):
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # typed by the generator
    return None
