"""The way between a client and the broker in memory: here without delay or loss, in simulations with both.

A request is one act on the broker's state, done at one moment: it happens wholly or not at all.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

T = TypeVar("T")


class Connection(Protocol):
    """One client's requests, which arrive in the order in which they were sent."""

    def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":
        """Have `act` done at the broker; its result, or what it raised, comes back. `call` is Kafka's name for it."""


class Network(Protocol):
    """Makes connections."""

    def connect(self) -> Connection:
        """A new one."""

    def later(self, act: Callable[[], None]) -> None:
        """Have the broker do something by itself, after the answer that it is giving."""


class DirectNetwork:
    """Everything arrives at once, and nothing is lost."""

    def connect(self) -> Connection:
        """As `Network.connect`; there is nothing to tell connections apart by."""
        return self

    def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":  # noqa: ARG002 - nothing goes by it
        """As `Connection.request`."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        loop.call_soon(outcome(answer, act))  # never before the caller has waited
        return answer

    def later(self, act: Callable[[], None]) -> None:
        """As `Network.later`."""
        act()


def outcome(answer: "asyncio.Future[T]", act: Callable[[], T]) -> Callable[[], None]:
    """Do `act` now, and give what hands its outcome to whoever waits for `answer`."""
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
        answer.exception()  # whoever sent it may be gone
