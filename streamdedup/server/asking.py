"""Questions over HTTP: `/api/explain` and `/api/lists/check`. No error quotes a key, and no line of the log has one."""

import asyncio
import base64
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

import structlog

from streamdedup.errors import StreamdedupError
from streamdedup.explain.beside import Asked
from streamdedup.explain.run import Scope
from streamdedup.kafka.partitions import InputPartition
from streamdedup.server.doing import Check
from streamdedup.server.questions import AT_ONCE, KEPT_S, BusyError, Questions
from streamdedup.server.request import JSON, Page, Refused, Request, as_json, json_body
from streamdedup.server.route import Route

log = structlog.get_logger(__name__)

KEYS_MAX = 100
CHECKED_MAX = 1_000
PARTITIONS_MAX = 1_000
TIME_MS_MAX = 1 << 53
CHECK_S_MAX = 10.0

_PLACE = re.compile(r"([A-Za-z0-9._-]{1,249})/([0-9]{1,9})[/:]([0-9]{1,18})")
_NO_QUESTION = (
    f"there is no such question: an answer is kept for {KEPT_S / 60:.0f} minutes, and until the worker ends; ask"
    " again"
)


def asking_routes(questions: Questions, check: Check) -> list[Route]:
    """Return the routes of questions."""

    def begin(request: Request) -> Page:
        asked = question_in(_object(request))
        try:
            name = questions.begin(asked)
        except BusyError:
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{AT_ONCE} questions are being answered, and no more at once; ask again once one is",
            ) from None
        log.info("action_asked", action="explain", peer=request.peer)
        return as_json({"id": name}, HTTPStatus.ACCEPTED)

    def look(request: Request) -> Page:
        text = questions.look(request.rest)
        if text is None:
            raise Refused(HTTPStatus.NOT_FOUND, _NO_QUESTION)
        return Page(HTTPStatus.OK, text + "\n", JSON)

    checks = _Checks(check)

    async def checked(request: Request) -> Page:
        keys = keys_in(_object(request), CHECKED_MAX, {"keys", "base64"})
        log.info("action_asked", action="lists_check", peer=request.peer)
        try:
            async with asyncio.timeout(CHECK_S_MAX):
                lines = await checks.of(keys)
        except TimeoutError:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the lists did not answer within {CHECK_S_MAX:.0f} s; check the disk of blocklist.file",
            ) from None
        except StreamdedupError as error:
            raise Refused(HTTPStatus.CONFLICT, str(error)) from None
        return as_json({"base64": base64.b64encode(lines).decode()})

    return [
        Route("/api/explain", begin, "POST", gated=True, token=True),
        Route("/api/explain/", look, gated=True, token=True, segment=True),
        Route("/api/lists/check", checked, "POST", gated=True, token=True),
    ]


class _Checks:
    """Asks the lists for one request after the other, each in a thread that no exit waits for: a disk may hang."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._free = asyncio.Lock()

    async def of(self, keys: Sequence[bytes]) -> bytes:
        """Return what the lists say of keys. If the caller is cancelled, the next one waits for the thread."""
        await self._free.acquire()
        asked = Future[bytes]()
        waiting = asyncio.wrap_future(asked)
        waiting.add_done_callback(lambda _: self._free.release())
        thread = threading.Thread(
            target=self._run, args=(keys, asked), name="lists check", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the process may have no more threads
            asked.set_exception(error)
        return await asyncio.shield(waiting)

    def _run(self, keys: Sequence[bytes], asked: "Future[bytes]") -> None:
        try:
            asked.set_result(self._check(keys))
        except BaseException as error:
            asked.set_exception(error)


def question_in(fields: Mapping[str, Any]) -> Asked:
    """Return the question in the body of a request. Refused if it is none."""
    kinds = [name for name in ("key", "keys", "at") if name in fields]
    if len(kinds) != 1:
        raise _wrong("the body", 'must have one of "key", "keys" and "at"')
    is_place = kinds == ["at"]
    allowed = {"at", "since_ms", "quick"}
    if not is_place:
        allowed = {*kinds, "since_ms", "quick", "base64", "partitions", "all"}
    _refuse_others(fields, allowed)
    scope = Scope(
        since_ms=_since(fields),
        partitions=_partitions(fields),
        quick=_flag(fields, "quick"),
        every=_flag(fields, "all"),
    )
    if is_place:
        at, offset = _place(fields["at"])
        return Asked(at=at, offset=offset, scope=scope)
    if kinds == ["key"]:
        fields = {**fields, "keys": [fields["key"]]}
    return Asked(keys=_keys(fields, KEYS_MAX, kinds[0]), scope=scope)


def keys_in(fields: Mapping[str, Any], most: int, allowed: set[str]) -> list[bytes]:
    """Return the keys in the body of a request that has nothing but keys. Refused if it has none."""
    _refuse_others(fields, allowed)
    return _keys(fields, most, "keys")


def _object(request: Request) -> Mapping[str, Any]:
    body = json_body(request)
    if not isinstance(body, dict):
        raise _wrong("the body", "must be a JSON object")
    return body


def _refuse_others(fields: Mapping[str, Any], allowed: set[str]) -> None:
    if fields.keys() - allowed:
        names = ", ".join(sorted(allowed))
        raise _wrong("the body", f"has a field that is not taken here; those that are: {names}")


def _keys(fields: Mapping[str, Any], most: int, name: str) -> list[bytes]:
    keys = fields.get("keys")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise _wrong(name, "must be a text" if name == "key" else "must be a list of texts")
    if not 1 <= len(keys) <= most:
        raise _wrong(name, f"must have from 1 to {most:,} keys; ask for the others later")
    if not _flag(fields, "base64"):
        return [key.encode() for key in keys]
    try:
        return [base64.b64decode(key, validate=True) for key in keys]
    except ValueError:
        raise _wrong(name, "must be base64, as the field base64 says") from None


def _place(text: object) -> tuple[InputPartition, int]:
    found = _PLACE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise _wrong("at", 'must be "TOPIC/PARTITION/OFFSET", like "signups/3/1042"')
    topic, number, offset = found.groups()
    return InputPartition(topic, int(number)), int(offset)


def _since(fields: Mapping[str, Any]) -> int | None:
    return _number(fields["since_ms"], "since_ms", TIME_MS_MAX) if "since_ms" in fields else None


def _partitions(fields: Mapping[str, Any]) -> tuple[int, ...]:
    given = fields.get("partitions", [])
    if not isinstance(given, list) or len(given) > PARTITIONS_MAX:
        raise _wrong("partitions", f"must be a list of at most {PARTITIONS_MAX:,} numbers")
    return tuple(dict.fromkeys(_number(each, "partitions", 1 << 31) for each in given))


def _number(value: object, name: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < most:
        raise _wrong(name, f"must be a whole number from 0, below {most}")
    return value


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, "must be true or false")
    return value


def _wrong(name: str, what: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, f"{name}: {what}")
