"""What a peer is: a contender that is fetched first, and what the page says of it."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.worker.contenders import Contender


@dataclass(frozen=True, kw_only=True)
class Peer(Contender):
    """`prepare` fetches, compiles or installs what is not there yet; raises `tests.broker.base.Unavailable`.

    `guarantee` and `configured` are phrases for the page.
    """

    judges: bool = True
    version: str
    guarantee: str
    configured: str
    prepare: Callable[[], None]
