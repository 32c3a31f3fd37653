"""A question that is answered beside a worker: in a thread with a loop and connections of its own, at a `Pace`.

So the worker's loop never waits for a piece of the answer, and a disk that hangs holds up the answer alone.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from streamdedup.errors import StreamdedupError
from streamdedup.explain import printed
from streamdedup.explain.event_report import EventReport
from streamdedup.explain.of_keys import UNANSWERED, KeysReport
from streamdedup.explain.pace import Pace, RestingSelector
from streamdedup.explain.run import ListsOf, OnProgress, Scope, ask_event, ask_keys
from streamdedup.kafka.base import Cluster, Connect
from streamdedup.kafka.client.connection import describe_error
from streamdedup.kafka.cluster import soon
from streamdedup.kafka.partitions import InputPartition
from streamdedup.settings import Settings
from streamdedup.threads import InCaller, Threads

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question: about `keys`, each as an event has it, or about the event at `offset` of `at`."""

    keys: Sequence[bytes] = field(default=(), repr=False)
    at: InputPartition | None = None
    offset: int = 0
    scope: Scope = field(default_factory=Scope)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as `streamdedup explain` gives it: with `--json` and for a person, and the exit status.

    `said` and `said_with_json` are what standard error gets then. Their `repr` is left out, since they hold keys.
    """

    objects: Sequence[dict[str, Any]] = field(repr=False)
    text: str = field(repr=False)
    said: Sequence[str] = field(repr=False)
    said_with_json: Sequence[str] = field(repr=False)
    status: int


ListsFor = Callable[[Cluster, Threads], ListsOf]
Answering = Callable[[Asked, OnProgress], Coroutine[Any, Any, Answer]]


@dataclass(frozen=True)
class Explaining:
    """What answers questions about one deployment, each by a connection of its own."""

    settings: Settings
    connect: Connect
    lists_for: ListsFor

    async def __call__(self, asked: Asked, on_progress: OnProgress) -> Answer:
        """Return the answer. The errors are those of `ask_keys` and `ask_event`."""
        scope, threads, settings = asked.scope, Threads.in_caller(), self.settings
        async with soon(self.connect, settings.kafka, UNANSWERED) as cluster:
            lists_of = self.lists_for(cluster, threads)
            if asked.at is None:
                keys = partial(ask_keys, settings, cluster, lists_of, asked.keys)
                return _about_keys(
                    await keys(scope=scope, on_progress=on_progress, threads=threads)
                )
            event = partial(ask_event, settings, cluster, lists_of, asked.at, asked.offset)
            return _about_event(await event(scope=scope, on_progress=on_progress, threads=threads))


def _about_keys(report: KeysReport) -> Answer:
    with closing(report):
        found = list(report.answers())
        texts = [printed.key_text(report, each) for each in found]
        return Answer(
            [report.as_json(each) for each in found],
            "".join(texts) + printed.notes_below(report.all_notes()),
            list(printed.said(report, as_json=False)),
            list(printed.said(report, as_json=True)),
            report.status(each.status for each in found),
        )


def _about_event(report: EventReport) -> Answer:
    return Answer(
        [report.as_json()],
        printed.event_text(report),
        list(printed.said(report, as_json=False)),
        list(printed.said(report, as_json=True)),
        report.status,
    )


class Search:
    """One question from the moment it is asked. Any thread may read `progress`, `answer` and `error`.

    `error` is a sentence, with the exit status. `ended` is called by the search's own thread, last.
    """

    def __init__(
        self, answering: Answering, asked: Asked, pace: Pace, ended: Callable[[], None]
    ) -> None:
        self.progress = ""
        self.answer: Answer | None = None
        self.error: tuple[str, int] | None = None
        self._answering, self._asked, self._pace, self._ended = answering, asked, pace, ended
        self._is_given_up = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Answer] | None = None
        threading.Thread(target=self._run, name="explain", daemon=True).start()

    def give_up(self) -> None:
        """End the search soon, without an answer. Any thread may call this."""
        self._is_given_up = True
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        try:
            with self._pace.turn() as turn:
                self._search(turn.rest, lambda: asyncio.SelectorEventLoop(RestingSelector(turn)))
        finally:
            self._ended()

    def _search(
        self, rest: Callable[[], None], new_loop: Callable[[], asyncio.AbstractEventLoop]
    ) -> None:
        def on_progress(text: str) -> None:
            self.progress = text
            rest()  # one turn of the loop may read many batches

        async def search() -> Answer:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            self._loop.set_default_executor(InCaller())
            if self._is_given_up:
                raise asyncio.CancelledError
            return await self._answering(self._asked, on_progress)

        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                self.answer = runner.run(search())
        except StreamdedupError as error:
            self.error = str(error), error.exit_status
        except asyncio.CancelledError:
            self.error = "the search was given up; ask again", 1
        except Exception as error:
            log.error("explain_failed", **describe_error(error))
            self.error = "the search failed; the worker's log has the reason", 1
