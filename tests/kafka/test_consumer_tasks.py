"""Claims about errors that aiokafka hands to its waiters."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import GroupAuthorizationFailedError

from streamdedup.kafka.client.tasks import disregard_waiters


async def test_an_error_for_a_poll_that_was_given_up_is_no_report() -> None:
    """Asyncio would log each of them; the next poll raises the same error, and what still waits gets it."""
    loop, said = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: said.append(context))
    state, fetches = SubscriptionState(), {loop.create_future()}
    state.register_fetch_waiters(fetches)
    disregard_waiters(SimpleNamespace(_subscription=state))
    state.wait_for_assignment()
    awaited = state.wait_for_assignment()
    state.abort_waiters(GroupAuthorizationFailedError("group"))
    with pytest.raises(GroupAuthorizationFailedError):
        await awaited
    fetches.clear()
    state._assignment_waiters.clear()
    await asyncio.sleep(0)
    gc.collect()
    assert said == []
