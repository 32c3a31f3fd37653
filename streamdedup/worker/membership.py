"""Stays a member of a consumer group, whatever the broker does. Only an error that no waiting cures ends the worker."""

import asyncio

import structlog

from streamdedup.errors import DeliveryError
from streamdedup.kafka.base import Member
from streamdedup.kafka.client.connection import describe_error, refusal
from streamdedup.kafka.client.patience import Patience, is_away
from streamdedup.kafka.source import ConsumerDiedError
from streamdedup.logs import RateLimit

log = structlog.get_logger(__name__)

TURN_S = 0.2
TROUBLE_S = 1.0


class Membership:
    """The membership of `source`; `what` names it among those that wait for a broker."""

    def __init__(self, source: Member, patience: Patience, what: str) -> None:
        self._source, self._patience, self._what = source, patience, what
        self._trouble = RateLimit()

    async def keep_alive(self) -> None:
        """Stay a member for a turn. DeliveryError if that is over for good; if a broker refuses us, its error."""
        try:
            await self._source.keep_alive(TURN_S)
        except ConsumerDiedError as error:
            raise DeliveryError(f"{error}; restart the worker") from error
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

    def _log_trouble(self, error: Exception) -> None:
        if self._trouble.due(asyncio.get_running_loop().time()):
            remedy = "still trying; if this goes on, restart the worker, and report a bug"
            log.warning("consumer_trouble", remedy=remedy, **describe_error(error))


async def leave_group(source: Member, within_s: float) -> None:
    """Leave the group; log if the broker did not learn of it within `within_s` seconds."""
    if not await source.stop(within_s):
        log.warning(
            "group_not_left",
            remedy="none: the group drops this member after session_timeout_ms",
        )
