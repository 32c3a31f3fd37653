"""The questions that a worker is asked over HTTP, and their answers, for as long as they are kept.

At most `AT_ONCE` are answered at a time. An answer is kept for `KEPT_S`, of the newest `KEPT_MAX`; whoever wants it has
its id, which nobody can guess. Any thread may call the methods.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial

from streamdedup.explain.beside import Answering, Asked, Search
from streamdedup.explain.pace import Pace

AT_ONCE = 2
KEPT_S = 600.0
KEPT_MAX = 32
ANSWER_BYTES_MAX = 1 << 18
LOOKED_AT_S = 60.0  # if nobody has looked at a search for so long, the next one may take its place

_TOO_LONG = (
    f"the answer is longer than {ANSWER_BYTES_MAX >> 10} KiB; ask for fewer keys at once, or by `streamdedup explain`"
    " without --worker"
)


class BusyError(Exception):
    """No more questions are taken now."""


class _Question:
    """One question. `text` is its answer, once there is one; the times are those of the clock."""

    def __init__(self, now_s: float) -> None:
        self.search: Search | None = None
        self.text: str | None = None
        self.looked_at = self.ended_at = now_s


class Questions:
    """Asks, by `answering`, and keeps the answers. Before `begin` returns an id, nobody can have it."""

    def __init__(
        self,
        answering: Answering,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._answering, self._pace, self._clock = answering, pace or Pace(), clock
        self._lock = threading.Lock()
        self._running, self._kept = dict[str, _Question](), dict[str, _Question]()

    def begin(self, asked: Asked) -> str:
        """Begin to answer, and return the id of the question. BusyError if too many are being answered.

        RuntimeError if the process may have no more threads: then no place is taken.
        """
        self.sweep()
        name = secrets.token_urlsafe()
        with self._lock:
            if len(self._running) >= AT_ONCE:
                self._leave_place()
                raise BusyError
            question = _Question(self._clock())
            question.search = Search(
                self._answering, asked, self._pace, partial(self._ended, name, question)
            )
            self._running[name] = question
        return name

    def look(self, name: str) -> str | None:
        """Return the JSON of what is known of a question, its answer if there is one; None if it is not kept."""
        self.sweep()
        with self._lock:
            question = self._running.get(name) or self._kept.get(name)
            if question is None:
                return None
            question.looked_at = self._clock()
            if question.text is not None:
                return question.text
            progress = question.search.progress if question.search else ""
            return json.dumps({"state": "running", "progress": progress})

    def sweep(self) -> None:
        """Forget what is too old: answers, and searches that nobody has looked at."""
        with self._lock:
            old = self._clock() - KEPT_S
            self._kept = {name: each for name, each in self._kept.items() if each.ended_at > old}
            for each in self._running.values():
                if each.looked_at <= old:
                    _give_up(each)

    def close(self) -> None:
        """Give up all searches."""
        with self._lock:
            for each in self._running.values():
                _give_up(each)

    def _leave_place(self) -> None:
        """Give up the search that nobody has looked at for the longest time, if that is long: for who asks again."""
        longest = min(self._running.values(), key=lambda each: each.looked_at)
        if self._clock() - longest.looked_at >= LOOKED_AT_S:
            _give_up(longest)

    def _ended(self, name: str, question: _Question) -> None:
        """Keep the answer; the search's own thread calls this."""
        with self._lock:  # `begin` has it until the question has its search, and its place
            search = question.search
        text = _text(search) if search else ""
        with self._lock:
            question.text, question.search, question.ended_at = text, None, self._clock()
            self._kept[name] = self._running.pop(name)
            while len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]


def _give_up(question: _Question) -> None:
    if question.search is not None:
        question.search.give_up()


def _text(search: Search) -> str:
    """Return the JSON of a search that has ended."""
    if (answer := search.answer) is None:
        error, status = search.error or ("the search failed", 1)
        return json.dumps({"state": "failed", "error": error, "status": status})
    made = {
        "state": "done",
        "answer": answer.objects[0],
        "answers": answer.objects,
        "text": answer.text,
        "said": answer.said,
        "said_with_json": answer.said_with_json,
        "status": answer.status,
    }
    text = json.dumps(made)
    if len(text) > ANSWER_BYTES_MAX:
        return json.dumps({"state": "failed", "error": _TOO_LONG, "status": 1})
    return text
