"""The tasks of aiokafka's consumer: what to do if one of them ends by an error.

aiokafka restarts none of them. After the end of the task that fetches, or of the one that takes part in the group, only
another consumer helps. After that of the heartbeat, or of what reads committed offsets, every poll raises its error and
the group drops the member, which does not notice; joining anew starts both again. We rely on these private names of
`AIOKafkaConsumer`: `_fetcher.error_future`; `_subscription` (`abort_waiters`, `_assignment_waiters`, `_fetch_waiters`);
`_coordinator` (`_coordination_task`, `_heartbeat_task`, `_commit_refresh_task`, `request_rejoin`).
"""

from typing import Any

from streamdedup.kafka.client.closing import disregard


def how_it_ended(consumer: Any) -> str | None:
    """Return what a started consumer no longer does, for a message; None if it does all."""
    for what, task in (
        ("fetching", consumer._fetcher.error_future),
        ("taking part in its group", consumer._coordinator._coordination_task),
    ):
        if task.done():
            fault = _fault_of(task)
            of = f" ({type(fault).__name__})" if fault else ""
            return f"aiokafka's consumer has stopped {what}{of}"
    return None


def group_fault(consumer: Any) -> BaseException | None:
    """Return the error by which the task for the group ended; None if it did not, or was never started."""
    coordinator = consumer._coordinator
    return None if coordinator is None else _fault_of(coordinator._coordination_task)


def rejoin_after_error(consumer: Any) -> None:
    """Have the consumer join its group anew if an error has ended a task that each join starts."""
    coordinator = consumer._coordinator
    if _fault_of(coordinator._heartbeat_task) or _fault_of(coordinator._commit_refresh_task):
        coordinator.request_rejoin()


def disregard_waiters(consumer: Any) -> None:
    """Report no error of the group that aiokafka hands to what nobody awaits any more: the next poll raises it, too.

    A poll that we ended, by a time-out of our own, has left its waiter there.
    """
    subscription = consumer._subscription
    abort = subscription.abort_waiters

    def quietly(error: Exception) -> None:
        for waiter in (*subscription._assignment_waiters, *subscription._fetch_waiters):
            disregard(waiter)
        abort(error)

    subscription.abort_waiters = quietly


def _fault_of(task: Any) -> BaseException | None:
    """Return the error by which `task` ended, if it did.

    aiokafka raises a copy for us, a KafkaError that quotes it: that may quote anything.
    """
    if task is None or not task.done() or task.cancelled():
        return None
    error: BaseException | None = task.exception()
    return error and (error.__cause__ or error)
