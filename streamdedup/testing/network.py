"""The connection between a client and the broker in memory: here without delay or loss, in simulations with both.

A request is one change of the broker's state, made at one moment: it happens as a whole or not at all.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

T = TypeVar("T")


class Connection(Protocol):
    """One client's requests, which arrive in the order in which they were sent."""

    def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `act` at the broker; the future gets its result, or its error. `call` is Kafka's name of the request."""


class Network(Protocol):
    """Makes connections."""

    def connect(self) -> Connection:
        """Return a new connection."""

    def later(self, act: Callable[[], None]) -> None:
        """Have the broker do `act` by itself, after the answer that it is giving."""


class DirectNetwork:
    """A network on which everything arrives at once, and nothing is lost."""

    def connect(self) -> Connection:
        """Return this object: it need not distinguish connections."""
        return self

    def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":  # noqa: ARG002 - it makes no difference here
        """Run `act` now; the answer arrives in the loop's next turn."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        loop.call_soon(outcome(answer, act))  # only once the caller awaits it
        return answer

    def later(self, act: Callable[[], None]) -> None:
        """Run `act` now."""
        act()


class HangingNetwork(DirectNetwork):
    """A direct network that never delivers the answers to some calls: those whose names are in `hung`."""

    def __init__(self, *hung: str) -> None:
        self.hung = set(hung)

    def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `act` now, unless its answer would never come."""
        if call in self.hung:
            return asyncio.get_running_loop().create_future()
        return super().request(call, act)


def outcome(answer: "asyncio.Future[T]", act: Callable[[], T]) -> Callable[[], None]:
    """Run `act` now; return a function that gives its result or its error to `answer`."""
    try:
        return partial(_give, answer, act())
    except Exception as error:
        return partial(_refuse, answer, error)


def _give(answer: "asyncio.Future[T]", result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _refuse(answer: "asyncio.Future[T]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # the sender may be gone, and must not leave a warning
