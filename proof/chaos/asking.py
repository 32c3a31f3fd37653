"""Questions to a cluster of which a broker may be away, or back with another leader epoch: asked until answered.

confluent-kafka raises in the one who asks; of the broker's own errors it does not tell which of them pass.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from tests.broker.base import DEADLINE_S

WITHIN_S = DEADLINE_S
AGAIN_S = 0.05

T = TypeVar("T")


def patiently(ask: Callable[[], T], within_s: float = WITHIN_S) -> T:
    """The answer. An error that ends a client is raised at once, any other, as TimeoutError, where it does not pass."""
    ends_at = time.monotonic() + within_s
    while True:
        try:
            return ask()
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, KafkaException) and error.args[0].fatal():
                raise
            if time.monotonic() > ends_at:
                raise TimeoutError(
                    f"the cluster did not answer within {within_s:g} s, but: {error}"
                ) from error
        time.sleep(AGAIN_S)
