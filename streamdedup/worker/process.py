"""A worker as a process: signals, the exit status, and an exit that no hanging thread can delay.

The first interrupt drains, within `delivery.drain_s`; the second exits at once. Both wait until the log is
written, for a second at most. SIGHUP loads the lists again. SIGUSR2 logs which events did not pass lately.
"""

import asyncio
import signal
from collections.abc import Iterator
from itertools import count

import structlog

from streamdedup import logs
from streamdedup.delivery.not_passed import LastNotPassed
from streamdedup.errors import StreamdedupError, traceback_without_messages
from streamdedup.settings import Settings
from streamdedup.threads import OtherThreads
from streamdedup.worker.staged import CopyingWorker, Stages
from streamdedup.worker.worker import Worker

log = structlog.get_logger(__name__)

LINES_A_TURN = 16  # in one turn of the event loop: 1.3 ms
NOTE = "of each batch, the last event of each verdict and reason; since the start of this process"


def serve(settings: Settings, stages: Stages = "both") -> int:
    """Run a worker until it is interrupted, and return the exit status of the process. Errors are logged.

    With `source.repartition`, `stages` says which of its stages to run.

    If a thread still runs, for example in a call to a dead disk, the process exits here: the end of the loop, and
    Python's own exit, would wait for the thread.
    """
    worker: Worker | CopyingWorker
    alone = stages == "repartition"
    worker = CopyingWorker(settings) if alone else Worker(settings, copies=stages == "both")
    status, others = 0, OtherThreads()

    def hangs() -> bool:
        return worker.hangs or others.busy

    async def main() -> None:
        loop, interrupts = asyncio.get_running_loop(), count(1)
        loop.set_default_executor(others)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _interrupt, worker, number, interrupts)
        loop.add_signal_handler(signal.SIGHUP, worker.reload)
        lately, logging = worker.status.not_passed, set[asyncio.Task[None]]()
        loop.add_signal_handler(signal.SIGUSR2, _ask_not_passed, lately, logging)
        await worker.run()

    with asyncio.Runner() as runner:  # its end waits for `others`
        try:
            runner.run(main())
        except StreamdedupError as error:
            status = error.exit_status
            log.error("worker_failed", error=str(error), status=status)
        except Exception as error:
            if not hangs():
                raise
            status = 1
            log.error(
                "worker_failed",
                error=f"a fault of ours, report it: {traceback_without_messages(error)}",
                status=1,
            )
        if hangs():
            logs.exit_at_once(status)
    return status


def _interrupt(worker: Worker | CopyingWorker, number: int, interrupts: Iterator[int]) -> None:
    """Drain at the first interrupt; exit at once at the second, with 128 + the signal, as shells report it."""
    if next(interrupts) > 1:
        logs.exit_at_once(128 + number)
    log.info("draining", signal=signal.Signals(number).name, hint="a second signal exits at once")
    worker.stop()


def _ask_not_passed(lately: LastNotPassed, logging: set[asyncio.Task[None]]) -> None:
    """Log the events that did not pass `lately`, unless they are being logged: `logging` holds the task."""
    if not logging:
        task = asyncio.create_task(_log_not_passed(lately))
        logging.add(task)
        task.add_done_callback(logging.discard)


async def _log_not_passed(lately: LastNotPassed) -> None:
    """Log a line for each event that did not pass `lately`, then one with their number."""
    events = lately.as_json()
    for number, event in enumerate(events, 1):
        log.info("not_passed", **event)
        if number % LINES_A_TURN == 0:
            await asyncio.sleep(0)
    log.info("not_passed_lately", events=len(events), note=NOTE)
