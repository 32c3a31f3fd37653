"""Becomes and stays a member of a consumer group, whatever the broker or another member does.

Only an error that no waiting cures ends the worker.
"""

import asyncio

import structlog

from streamdedup.errors import DeliveryError, StreamdedupError
from streamdedup.kafka.base import Member
from streamdedup.kafka.client.connection import describe_error, refusal
from streamdedup.kafka.client.patience import Backoff, Patience, is_away
from streamdedup.kafka.source import ConsumerDiedError
from streamdedup.logs import RateLimit
from streamdedup.server import Status
from streamdedup.worker.tasks import is_cancelled

log = structlog.get_logger(__name__)

TURN_S = 0.2
TROUBLE_S = 1.0
TROUBLE_S_MAX = 15.0  # between two tries to join
REMEDY = (
    "still trying; if this goes on, look at the members of the group (kafka-consumer-groups.sh --bootstrap-server"
    " SERVER --describe --members --verbose --group GROUP) and stop those that are no workers; if there are none,"
    " restart the worker, and report a bug"
)


class Membership:
    """The membership of `source`; `what` names it among those that wait for a broker.

    `status` knows whether the registry is away.
    """

    def __init__(self, source: Member, patience: Patience, what: str, status: Status) -> None:
        self._source, self._patience, self._what, self._status = source, patience, what, status
        self._trouble = RateLimit()

    async def join(self) -> None:
        """Join the group, and again after each unknown error, with back-off. If a broker refuses us, its error.

        The member that leads the group makes our assignment, and aiokafka fails at one that it did not expect.
        """
        backoff = Backoff(TROUBLE_S, TROUBLE_S_MAX)
        while True:
            try:
                await self._source.start()
            except StreamdedupError:
                raise
            except Exception as error:
                if refusal(error) or is_cancelled():
                    raise
                self._log_trouble(error)
            else:
                return
            await asyncio.sleep(backoff.next_s())

    async def keep_alive(self) -> None:
        """Stay a member for a while. DeliveryError if that is over for good; if a broker refuses us, its error.

        DeliveryError, too, if a broker or the registry is away for longer than the operator allows.
        """
        try:
            await self._source.keep_alive(TURN_S)
        except ConsumerDiedError as error:
            self._log_trouble(error)
            await asyncio.sleep(TROUBLE_S)
            await self.join()
        except DeliveryError:
            raise
        except Exception as error:
            if refusal(error):
                raise
            if is_away(error):
                self._patience.away(self._what, error)
            else:
                self._log_trouble(error)
            await asyncio.sleep(TROUBLE_S)
        else:
            self._patience.back(self._what)
        self._patience.check()
        self._status.check_registry()

    def _log_trouble(self, error: Exception) -> None:
        if self._trouble.due(asyncio.get_running_loop().time()):
            log.warning("consumer_trouble", remedy=REMEDY, **describe_error(error))


async def leave_group(source: Member, within_s: float) -> None:
    """Leave the group; log if the broker did not learn of it within `within_s` seconds."""
    if not await source.stop(within_s):
        log.warning(
            "group_not_left",
            remedy="none: the group drops this member after session_timeout_ms",
        )
