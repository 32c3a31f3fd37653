"""What a mutant is."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """A patch of the product that breaks one promise, and the tests that must fail while it is entered.

    `breaks` makes the patch, which keeps nothing changed after it is left. A test is the name of a function, with the
    ids of its parameters if one case is enough: `test_copies_are_what_was_copied[none-none-a_tenth_of-exactly_once]`.
    `fresh_kernels`: the patch changes what kernels are compiled from, so none may come from numba's cache.
    """

    name: str
    promise: str
    breaks: Callable[[], AbstractContextManager[Any]]
    tests: tuple[str, ...]
    fresh_kernels: bool = False
