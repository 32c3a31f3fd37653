"""Wait for brokers, or a schema registry, that are away: back-off, jitter, a cap, one log line a minute, a time limit.

All users of a cluster share one `Patience`, so that many shards with the same trouble log it once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, TypeVar

import structlog
from aiokafka.errors import KafkaConnectionError, KafkaError, UnknownTopicOrPartitionError

from streamdedup.errors import DeliveryError
from streamdedup.kafka.client.connection import describe_error

log = structlog.get_logger(__name__)

T = TypeVar("T")

BACKOFF_S = 0.2
BACKOFF_S_MAX = 15.0
LOG_EVERY_S = 60.0


class Backoff:
    """Waiting times that double from `first_s` to `most_s`, with jitter, so that clients do not wait in step."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s, self._most_s = first_s, most_s
        self.reset()

    def reset(self) -> None:
        """Begin with the first waiting time again."""
        self._wait_s = self._first_s

    def next_s(self) -> float:
        """Return how long to wait this time, in seconds."""
        wait_s, self._wait_s = self._wait_s, min(self._wait_s * 2, self._most_s)
        return wait_s * random.uniform(0.5, 1.5)  # noqa: S311 - jitter, not a secret


class Patience:
    """Records which clients wait for a broker, and since when.

    `give_up_after_s` is the time limit; None for no limit. `awaited` is what they wait for; a subclass may
    change it, the events that are logged, and the remedy.
    """

    awaited = "broker"
    remedy = (
        "still trying; if it is up, look at kafka.bootstrap_servers and kafka.security_protocol"
    )

    def __init__(self, give_up_after_s: float | None = None) -> None:
        self._give_up_after_s = give_up_after_s
        self._since: dict[str, float] = {}
        self._logged_at = float("-inf")

    @property
    def away_s(self) -> float:
        """For how many seconds some client has waited for a broker; 0 if none waits."""
        if not self._since:
            return 0.0
        return asyncio.get_running_loop().time() - min(self._since.values())

    @property
    def since(self) -> float | None:
        """When the waiting began, by the loop's clock; None if no client waits. Safe to read in any thread."""
        return min(list(self._since.values()), default=None)

    def away(self, what: str, error: BaseException, since: float | None = None) -> None:
        """Record that `what` waits, since now or a time of the loop. Log one line a minute, however many wait."""
        now = asyncio.get_running_loop().time()
        self._since.setdefault(what, now if since is None else since)
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            self._log_away(
                what=what,
                waiting=len(self._since),
                seconds=round(self.away_s, 1),
                **describe_error(error),
            )

    def back(self, what: str) -> None:
        """Record that `what` has reached a broker again."""
        if what not in self._since:
            return
        away_s = self.away_s
        self.forget(what)
        if not self._since and self._logged_at > float("-inf"):
            self._logged_at = float("-inf")
            self._log_back(seconds=round(away_s, 1))

    def _log_away(self, **fields: Any) -> None:
        log.warning("broker_away", remedy=self.remedy, **fields)

    def _log_back(self, **fields: Any) -> None:
        log.info("broker_back", **fields)

    def forget(self, what: str) -> None:
        """Record that `what` no longer waits, which does not mean that a broker is back."""
        self._since.pop(what, None)

    def check(self) -> None:
        """DeliveryError if the operator's time limit is over."""
        limit_s = self._give_up_after_s
        if limit_s is not None and self.away_s > limit_s:
            raise DeliveryError(
                f"no {self.awaited} was there for {self.away_s:.0f} s ({', '.join(sorted(self._since)[:3])}), longer"
                f" than kafka.give_up_after_s: {limit_s:g}",
                remedy="look at it, then restart the worker",
            )


def is_away(error: BaseException) -> bool:
    """Return whether waiting may help: nobody answers, or a broker is not ready."""
    if isinstance(error, KafkaError):
        return isinstance(error, KafkaConnectionError) or bool(error.retriable)
    return isinstance(error, OSError)  # TimeoutError is one


def is_topic_unknown(error: BaseException) -> bool:
    """Return whether a broker has answered, and does not know the topic: it was made, or deleted, a moment ago."""
    return isinstance(error, UnknownTopicOrPartitionError)


async def start_patiently(
    start: Callable[[], Awaitable[T]],
    what: str,
    patience: Patience,
    *,
    ends: bool = True,
    silent_s_max: float = inf,
) -> T:
    """Return the result of `start`; repeat it, with back-off, while the broker is away.

    A broker that has not answered for `silent_s_max` seconds is away, too. DeliveryError after the time limit of
    `patience`. If `ends` is false, this ignores the limit: another caller checks it. Cancel the call to give up early.
    """
    backoff, loop = Backoff(BACKOFF_S, BACKOFF_S_MAX), asyncio.get_running_loop()
    began, silence = loop.time(), TimeoutError("no answer yet")
    try:
        while True:
            silent = None
            if silent_s_max < inf:
                silent = loop.call_later(silent_s_max, patience.away, what, silence, began)
            try:
                started = await start()
            except (KafkaError, OSError) as error:
                if not is_away(error):
                    raise
                patience.away(what, error, began)
            else:
                patience.back(what)
                return started
            finally:
                if silent:
                    silent.cancel()
            if ends:
                patience.check()
            await asyncio.sleep(backoff.next_s())
    finally:
        patience.forget(what)
