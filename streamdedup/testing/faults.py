"""A network that, at random, is slow, loses requests and answers, repeats requests, and is away for a while.

A request under way arrives whatever happens to its sender; if its sender is killed, it may be lost. All randomness
comes from one `random.Random`, so in a `VirtualLoop` the same seed gives the same history.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from aiokafka.errors import GroupLoadInProgressError, KafkaConnectionError, RequestTimedOutError

from streamdedup.testing.clock import PROCESS, Process
from streamdedup.testing.network import outcome

T = TypeVar("T")

OF_GROUPS = frozenset(
    [
        "join_group",
        "sync_group",
        "heartbeat",
        "leave_group",
        "list_groups",
        "offset_fetch",
        "offset_commit",
    ]
)
# A broker cannot distinguish a repeated one from a new one.
REPEATED = frozenset(("end_txn", "txn_offset_commit"))
NOBODY = Context()


@dataclass
class Chances:
    """How slow requests are, in seconds, and the probability of each fault of a request."""

    latency_s_max: float = 0.005
    marker_s_max: float = 0.02
    slow: float = 0.0
    slow_s_max: float = 2.0
    request_lost: float = 0.0
    answer_lost: float = 0.0
    repeated: float = 0.0


class FaultyNetwork:
    """Set `away` and `loading` for faults that last. `trace` is called with a line about every arrival."""

    def __init__(
        self, chance: Random, chances: Chances, trace: Callable[[str], None] = lambda _: None
    ) -> None:
        self.chance, self.chances, self.trace = chance, chances, trace
        self.away = False  # no broker answers
        self.loading = False  # the coordinator of groups is still loading them

    def connect(self) -> "FaultyConnection":
        """Return a new connection of one client."""
        return FaultyConnection(self)

    def later(self, act: Callable[[], None]) -> None:
        """Have the broker do `act` by itself, after a random delay."""
        loop = asyncio.get_running_loop()
        loop.call_later(self.chance.uniform(0, self.chances.marker_s_max), act, context=NOBODY)

    def latency_s(self) -> float:
        """Return how long a message takes in one direction, in seconds."""
        if self.chance.random() < self.chances.slow:
            return self.chance.uniform(0, self.chances.slow_s_max)
        return self.chance.random() * self.chances.latency_s_max


class FaultyConnection:
    """One client's requests, with faults. They arrive in the order in which they were sent."""

    def __init__(self, network: FaultyNetwork) -> None:
        self._network = network
        self._arrived_at = 0.0

    def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":
        """Send a request; return its answer, or the error of a fault."""
        process = PROCESS.get()
        if process is not None:
            process.check()
        loop, network = asyncio.get_running_loop(), self._network
        answer: asyncio.Future[T] = loop.create_future()
        self._arrived_at = max(self._arrived_at, loop.time() + network.latency_s())
        loop.call_at(self._arrived_at, self._arrive, process, call, act, answer, context=NOBODY)
        return answer

    def _arrive(
        self,
        process: Process | None,
        call: str,
        act: Callable[[], T],
        answer: "asyncio.Future[T]",
    ) -> None:
        network, chances, draw = self._network, self._network.chances, self._network.chance.random()
        loop = asyncio.get_running_loop()
        who = process.name if process else "-"
        error: Exception | None = None
        if network.away or (process and process.dead and draw < 0.5):
            error = KafkaConnectionError("the broker is away")
        elif draw < chances.request_lost:
            error = KafkaConnectionError("the request was lost")
        elif network.loading and call in OF_GROUPS:
            error = GroupLoadInProgressError()
        if error is not None:
            network.trace(f"{loop.time():.6f} {who} {call} {type(error).__name__}")
            loop.call_later(network.latency_s(), outcome(answer, lambda: _raise(error)))
            return
        give = outcome(answer, act)
        network.trace(f"{loop.time():.6f} {who} {call}")
        repeated = chances.repeated if call in REPEATED else 0.0
        # A client notices a repeated request by its replaced connection.
        if draw < chances.request_lost + repeated:
            loop.call_later(network.latency_s() * 4, outcome, loop.create_future(), act)
            give = outcome(answer, lambda: _raise(KafkaConnectionError("sent again")))
        elif draw < chances.request_lost + repeated + chances.answer_lost:
            give = outcome(answer, lambda: _raise(RequestTimedOutError()))
        loop.call_later(network.latency_s(), give)


def _raise(error: Exception) -> T:  # type: ignore[type-var]  # usable in place of any answer
    raise error
