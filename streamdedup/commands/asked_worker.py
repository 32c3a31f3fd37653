"""`explain --worker URL` and `lists check --worker URL`: the same answers, by a worker that runs."""

import base64
import http.client
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from streamdedup.commands.worker_server import (
    BODY_BYTES_MAX,
    Answered,
    WorkerAwayError,
    WorkerServer,
    refusal_of,
)
from streamdedup.errors import ConfigError, StreamdedupError

LOOK_S = 0.2, 2.0  # at first, and at last, between two looks at a search
AWAY_S_MAX = 10.0  # a worker that is away for longer during a search has gone
# How many keys a worker takes at once.
KEYS_MAX = 100
CHECKED_MAX = 1_000


def explained(
    server: WorkerServer,
    question: dict[str, Any],
    on_progress: Callable[[str], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Ask, wait, and return the answer: `answers`, `text`, `said`, `said_with_json` and `status`.

    ConfigError if the question is wrong or the worker takes none; StreamdedupError if it is busy, or goes away.
    """
    begun = server.post("/api/explain", question)
    if begun.status != http.client.ACCEPTED:
        raise refusal_of(begun, server)
    path = f"/api/explain/{begun.object().get('id')}"
    pause_s, answered_at = LOOK_S[0], clock()
    while True:
        try:
            looked = server.get(path)
            answered_at = clock()
        except WorkerAwayError:
            if clock() - answered_at > AWAY_S_MAX:
                raise
        else:
            if (found := _ended(looked, server)) is not None:
                return found
            on_progress(str(looked.object().get("progress", "")))
        sleep(pause_s)
        pause_s = min(pause_s * 1.5, LOOK_S[1])


def _ended(looked: Answered, server: WorkerServer) -> dict[str, Any] | None:
    """Return the answer; None if the search goes on."""
    if looked.status == http.client.NOT_FOUND:
        raise StreamdedupError(
            f"{server.name} does not know the question any more: it has restarted meanwhile",
            remedy="ask again",
        )
    if looked.status != http.client.OK:
        raise refusal_of(looked, server)
    found = looked.object()
    if found.get("state") == "failed":
        kind = ConfigError if found.get("status") == ConfigError.exit_status else StreamdedupError
        raise kind(str(found.get("error")))
    return found if found.get("state") == "done" else None


def question_about(keys: Sequence[bytes]) -> dict[str, Any]:
    """Return the fields of a question that has these keys, each as it is, even if it is no UTF-8."""
    try:
        return {"keys": [key.decode() for key in keys]}
    except UnicodeDecodeError:
        return {"base64": True, "keys": [base64.b64encode(key).decode() for key in keys]}


def checked(server: WorkerServer, keys: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what `lists check --live` prints of keys, by the lists in force in the worker."""
    for part in _parts(keys):
        answered = server.post("/api/lists/check", question_about(part))
        if answered.status != http.client.OK:
            raise refusal_of(answered, server)
        yield base64.b64decode(answered.object().get("base64", ""))


def _parts(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield keys in parts that fit into one request: a byte takes six at most, as an escape."""
    part, size = list[bytes](), 0
    for key in keys:
        more = 6 * len(key) + 4
        if part and (len(part) == CHECKED_MAX or size + more > BODY_BYTES_MAX - 100):
            yield part
            part, size = [], 0
        part.append(key)
        size += more
    if part:
        yield part
