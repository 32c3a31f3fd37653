"""Claims about questions and actions over HTTP, without a broker: what is taken, refused, kept and forgotten."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.explain.beside import Answer, Asked
from streamdedup.explain.run import OnProgress
from streamdedup.kafka.partitions import InputPartition
from streamdedup.server import questions as questions_module
from streamdedup.server.acting import acting_routes
from streamdedup.server.asking import CHECKED_MAX, KEYS_MAX, asking_routes
from streamdedup.server.doing import Doing, Done
from streamdedup.server.gate import Gate
from streamdedup.server.questions import AT_ONCE, KEPT_MAX, KEPT_S, BusyError, Questions
from streamdedup.server.request import JSON, Page, Refused, Request
from streamdedup.server.route import Route, Routes, answered
from tests.broker.base import DEADLINE_S, wait_until

CANARY = "jane.doe@example.org"


class Scripted:
    """Answers questions, each once it may; `asked` are those so far."""

    def __init__(self) -> None:
        self.asked = list[Asked]()
        self.may = threading.Event()
        self.error: BaseException | None = None
        self.text = "known\n"

    async def __call__(self, asked: Asked, on_progress: OnProgress) -> Answer:
        """Say how far it is, and wait until it may answer."""
        self.asked.append(asked)
        on_progress("3 events read")
        while not self.may.is_set():
            await asyncio.sleep(0.002)
        if self.error is not None:
            raise self.error
        return Answer([{"key": "k", "status": 0}], self.text, [], ["note: n"], 0)


class Clock:
    """A clock that a test sets."""

    now_s = 1_000.0

    def __call__(self) -> float:
        """Its time."""
        return self.now_s


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    """What answers; every question ends with the test."""
    made = Scripted()
    yield made
    made.may.set()


@pytest.fixture
def clock() -> Clock:
    """A clock at some time."""
    return Clock()


@pytest.fixture
def asked(scripted: Scripted, clock: Clock) -> Questions:
    """Questions to what is scripted."""
    return Questions(scripted, clock=clock)


def state(questions: Questions, name: str) -> Any:
    """What is known of a question; None if it is not kept."""
    text = questions.look(name)
    return None if text is None else json.loads(text)


def ended(questions: Questions, name: str) -> Any:
    """What is known of a question once it has ended."""

    def found() -> bool:
        return bool(state(questions, name)["state"] != "running")

    wait_until(found, DEADLINE_S, lambda: f"{name} does not end")
    return state(questions, name)


# --- Questions and their answers ---


def test_a_question_has_progress_and_then_its_answer(asked: Questions, scripted: Scripted) -> None:
    """The answer can be had again and again; its id is 256 random bits."""
    name = asked.begin(Asked(keys=[b"k"]))
    assert len(name) == 43
    wait_until(lambda: state(asked, name)["progress"] != "", DEADLINE_S, lambda: "no progress")
    assert state(asked, name) == {"state": "running", "progress": "3 events read"}
    scripted.may.set()
    answer = {
        "state": "done",
        "answer": {"key": "k", "status": 0},
        "answers": [{"key": "k", "status": 0}],
        "text": "known\n",
        "said": [],
        "said_with_json": ["note: n"],
        "status": 0,
    }
    assert ended(asked, name) == answer
    assert state(asked, name) == answer


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConfigError("no such topic"), ("no such topic", 2)),
        (StreamdedupError("the broker is away"), ("the broker is away", 1)),
        (KeyError(CANARY), ("the search failed; the worker's log has the reason", 1)),
    ],
)
def test_a_search_that_fails_says_why(
    asked: Questions, scripted: Scripted, error: Exception, said: tuple[str, int]
) -> None:
    """By its sentence and the exit status of the command; a fault of ours quotes no key, in the log neither."""
    scripted.error = error
    scripted.may.set()
    with capture_logs() as lines:
        found = ended(asked, asked.begin(Asked(keys=[b"k"])))
    assert (found["state"], found["error"], found["status"]) == ("failed", *said)
    assert CANARY not in str(lines)
    assert [line["event"] for line in lines] == ["explain_failed"] * isinstance(error, KeyError)


def test_two_are_answered_at_once(asked: Questions, scripted: Scripted) -> None:
    """The third is refused until one has ended."""
    names = [asked.begin(Asked(keys=[b"k"])) for _ in range(AT_ONCE)]
    with pytest.raises(BusyError):
        asked.begin(Asked(keys=[b"k"]))
    scripted.may.set()
    for name in names:
        ended(asked, name)
    ended(asked, asked.begin(Asked(keys=[b"k"])))


def test_an_answer_is_kept_for_ten_minutes(
    asked: Questions, scripted: Scripted, clock: Clock
) -> None:
    """And not a second longer, although somebody looks at it."""
    scripted.may.set()
    name = asked.begin(Asked(keys=[b"k"]))
    ended(asked, name)
    clock.now_s += KEPT_S - 1
    assert state(asked, name) is not None
    clock.now_s += 1
    assert state(asked, name) is None


def test_the_newest_answers_are_kept(asked: Questions, scripted: Scripted) -> None:
    """Of more than so many, the oldest goes."""
    scripted.may.set()
    names = list[str]()
    for _ in range(KEPT_MAX + 1):
        names.append(asked.begin(Asked(keys=[b"k"])))
        ended(asked, names[-1])
    assert [state(asked, name) is not None for name in names] == [False] + [True] * KEPT_MAX


def test_an_answer_that_is_too_long_is_not_kept(
    asked: Questions, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and what to do."""
    monkeypatch.setattr(questions_module, "ANSWER_BYTES_MAX", 100)
    scripted.may.set()
    found = ended(asked, asked.begin(Asked(keys=[b"k"])))
    assert (found["state"], "fewer keys" in found["error"]) == ("failed", True)


def test_a_search_that_nobody_looks_at_is_given_up(asked: Questions, clock: Clock) -> None:
    """After ten minutes."""
    name = asked.begin(Asked(keys=[b"k"]))
    clock.now_s += KEPT_S
    asked.sweep()
    found = ended(asked, name)
    assert (found["state"], "given up" in found["error"]) == ("failed", True)


def test_a_search_that_nobody_looks_at_leaves_its_place(asked: Questions, clock: Clock) -> None:
    """After a minute, to whoever asks again; one that somebody looks at stays."""
    left, stays = (asked.begin(Asked(keys=[b"k"])) for _ in range(2))
    clock.now_s += 61
    assert state(asked, stays)["state"] == "running"
    with pytest.raises(BusyError):
        asked.begin(Asked(keys=[b"k"]))
    assert "given up" in ended(asked, left)["error"]
    asked.begin(Asked(keys=[b"k"]))
    assert state(asked, stays)["state"] == "running"


def refuses(_: threading.Thread) -> None:
    """Start no thread, as in a process that may have no more."""
    raise RuntimeError("can't start new thread")


def test_a_question_without_a_thread_takes_no_place(
    asked: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once there are threads again, as many as ever are answered at once."""
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        for _ in range(AT_ONCE):
            with pytest.raises(RuntimeError):
                asked.begin(Asked(keys=[b"k"]))
    for _ in range(AT_ONCE):
        asked.begin(Asked(keys=[b"k"]))


def test_all_searches_end_with_the_worker(asked: Questions) -> None:
    """None goes on in a process that drains."""
    names = [asked.begin(Asked(keys=[b"k"])) for _ in range(2)]
    asked.close()
    assert all("given up" in ended(asked, name)["error"] for name in names)


# --- Requests ---


def checked(keys: Sequence[bytes]) -> bytes:
    """What a list says of keys that it does not have."""
    return b"".join(b"pass\t-\t-\t%b\n" % key for key in keys)


@pytest.fixture
def routes(asked: Questions) -> list[Route]:
    """The routes of questions."""
    return asking_routes(asked, checked)


def post(routes: list[Route], path: str, body: object, **headers: str) -> Page:
    """The answer to a body, as JSON unless it is bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = {"content-type": JSON, **headers}
    request = Request("POST", path, headers=found, body=content, peer="192.0.2.7")
    route = next(route for route in routes if route.path == path)
    return asyncio.run(answered(route, request))


def look(routes: list[Route], name: str) -> Page:
    """The answer about a question."""
    request = Request("GET", f"/api/explain/{name}", rest=name)
    return asyncio.run(answered(routes[1], request))


def test_a_question_over_http(routes: list[Route], asked: Questions, scripted: Scripted) -> None:
    """202 and an id; the answer under that id; the log has who asked, and no key."""
    scripted.may.set()
    with capture_logs() as lines:
        begun = post(routes, "/api/explain", {"key": CANARY})
    assert begun.status == HTTPStatus.ACCEPTED
    name = json.loads(begun.text)["id"]
    ended(asked, name)
    page = look(routes, name)
    assert (page.status, page.content_type) == (HTTPStatus.OK, JSON)
    assert json.loads(page.text)["state"] == "done"
    assert scripted.asked[0].keys == [CANARY.encode()]
    assert [(line["event"], line["action"], line["peer"]) for line in lines] == [
        ("action_asked", "explain", "192.0.2.7")
    ]
    assert CANARY not in str(lines)
    assert CANARY not in str(scripted.asked)


def test_an_unknown_question_is_not_found(routes: list[Route]) -> None:
    """With what that may mean."""
    page = look(routes, "x" * 43)
    assert (page.status, "10 minutes" in page.text) == (HTTPStatus.NOT_FOUND, True)


def test_a_third_question_is_refused(routes: list[Route]) -> None:
    """429, and when to ask again."""
    pages = [post(routes, "/api/explain", {"key": "k"}) for _ in range(AT_ONCE + 1)]
    assert [page.status for page in pages] == [202] * AT_ONCE + [429]
    assert "ask again" in pages[-1].text


@pytest.mark.parametrize(
    ("body", "keys", "at"),
    [
        ({"key": "a"}, [b"a"], None),
        ({"keys": ["a", "ä"]}, [b"a", "ä".encode()], None),
        ({"key": "/w==", "base64": True}, [b"\xff"], None),
        ({"key": ""}, [b""], None),
        ({"at": "a.b-c/3/17"}, [], (InputPartition("a.b-c", 3), 17)),
        ({"at": "a/3:17"}, [], (InputPartition("a", 3), 17)),
    ],
)
def test_what_is_asked(
    routes: list[Route],
    scripted: Scripted,
    body: dict[str, Any],
    keys: list[bytes],
    at: tuple[InputPartition, int] | None,
) -> None:
    """Keys are bytes; a place is that of a page or of `--at`."""
    assert post(routes, "/api/explain", body).status == HTTPStatus.ACCEPTED
    wait_until(lambda: bool(scripted.asked), DEADLINE_S, lambda: "nobody asked")
    (question,) = scripted.asked
    place = None if question.at is None else (question.at, question.offset)
    assert ([*question.keys], place) == (keys, at)


def test_how_far_is_asked(routes: list[Route], scripted: Scripted) -> None:
    """The options of the command are fields."""
    fields = {"since_ms": 17, "partitions": [2, 0, 2], "quick": True, "all": True}
    assert post(routes, "/api/explain", {"key": "k", **fields}).status == HTTPStatus.ACCEPTED
    wait_until(lambda: bool(scripted.asked), DEADLINE_S, lambda: "nobody asked")
    scope = scripted.asked[0].scope
    assert (scope.since_ms, scope.partitions, scope.quick, scope.every) == (17, (2, 0), True, True)


DEEP = b'{"key":' + b"[" * 30_000 + b"]" * 30_000 + b"}"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON"),
        (b"\xff", "UTF-8"),
        (b'{"key": "\\ud800"}', "UTF-8"),
        (b'{"key": "a", "key": "b"}', "twice"),
        (DEEP, "JSON"),
        ([], "object"),
        ("key", "object"),
        ({}, "one of"),
        ({"key": "a", "at": "t/0/0"}, "one of"),
        ({"key": "a", "keys": ["a"]}, "one of"),
        ({"key": 1}, "key: must be a text"),
        ({"key": None}, "key: must be a text"),
        ({"key": ["a"]}, "key: must be a text"),
        ({"keys": "a"}, "keys: must be a list"),
        ({"keys": []}, "keys: must have from 1"),
        ({"keys": ["a"] * (KEYS_MAX + 1)}, "keys: must have from 1"),
        ({"key": "%", "base64": True}, "key: must be base64"),
        ({"key": "ä", "base64": True}, "key: must be base64"),
        ({"key": "a", "base64": 1}, "base64: must be true or false"),
        ({"key": "a", "quick": "yes"}, "quick: must be true or false"),
        ({"key": "a", "since_ms": -1}, "since_ms: must be"),
        ({"key": "a", "since_ms": True}, "since_ms: must be"),
        ({"key": "a", "since_ms": 1e300}, "since_ms: must be"),
        ({"key": "a", "partitions": 3}, "partitions: must be"),
        ({"key": "a", "partitions": [-1]}, "partitions: must be"),
        ({"key": "a", "partitions": [0] * 1_001}, "partitions: must be"),
        ({"key": "a", "show_key": True}, "not taken"),
        ({"at": "t/0/0", "all": True}, "not taken"),
        ({"at": 3}, "at: must be"),
        ({"at": "t"}, "at: must be"),
        ({"at": "t/-1/0"}, "at: must be"),
        ({"at": "t/0/x"}, "at: must be"),
        ({"at": "<img onerror>/0/0"}, "at: must be"),
        ({"at": f"t/0/{'9' * 40}"}, "at: must be"),
    ],
    ids=str,
)
def test_a_wrong_question_is_refused(
    routes: list[Route], scripted: Scripted, body: object, named: str
) -> None:
    """400, the field and what it must be; nothing that was sent is repeated, and nothing is asked."""
    page = post(routes, "/api/explain", body)
    assert page.status == HTTPStatus.BAD_REQUEST
    assert named in page.text
    assert "onerror" not in page.text
    assert not scripted.asked


def test_a_form_of_another_site_asks_nothing(routes: list[Route]) -> None:
    """Its body is no JSON by its type."""
    page = post(routes, "/api/explain", {"key": "a"}, **{"content-type": "text/plain"})
    assert page.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE


def test_keys_are_checked_against_the_lists(routes: list[Route]) -> None:
    """The lines of `lists check`, as bytes."""
    page = post(routes, "/api/lists/check", {"keys": ["a", "b"]})
    assert json.loads(page.text) == {"base64": "cGFzcwktCS0JYQpwYXNzCS0JLQliCg=="}


def test_a_check_without_a_thread_leaves_its_place(
    routes: list[Route], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is answered."""
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        page = post(routes, "/api/lists/check", {"keys": ["a"]})
        assert page.status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert post(routes, "/api/lists/check", {"keys": ["a"]}).status == HTTPStatus.OK


@pytest.mark.parametrize(
    "body", [{"key": "a"}, {"keys": ["a"] * (CHECKED_MAX + 1)}, {"keys": ["a"], "quick": True}]
)
def test_what_lists_are_not_asked(routes: list[Route], body: object) -> None:
    """Too many keys, and other fields."""
    assert post(routes, "/api/lists/check", body).status == HTTPStatus.BAD_REQUEST


def test_without_a_list_nothing_is_checked(asked: Questions) -> None:
    """409, with the reason."""

    def unlisted(_: Sequence[bytes]) -> bytes:
        raise ConfigError("blocklist.file is not set")

    page = post(asking_routes(asked, unlisted), "/api/lists/check", {"keys": ["a"]})
    assert (page.status, page.text) == (HTTPStatus.CONFLICT, "blocklist.file is not set\n")


# --- Who may ---


class HasToken:
    """A token in force."""

    value: bytes | None = b"the-right-token-of-this-test"


@pytest.fixture
def guarded(asked: Questions, acts: "Acts") -> Routes:
    """All routes, behind a gate with a token."""
    every = [*asking_routes(asked, checked), *acting_routes(acts.doing, acts.submit)]
    return Routes(every, Gate((), HasToken()))  # type: ignore[arg-type]  # a token without its file


def test_everything_here_takes_the_token(guarded: Routes, scripted: Scripted) -> None:
    """Each path, for 10,000 wrong tokens: nothing is asked, and nothing is done."""
    paths = {route.path: route.method for route in guarded._routes.values()}
    assert len(paths) == 6
    wrong = ["", "x", "the-right-token-of-this-tesT", "ÿ" * 28, "the-right-token-of-this-test2"]
    for number in range(10_000):
        path, method = list(paths.items())[number % 6]
        token = wrong[number % 5] or f"{number}"
        headers = {"host": "localhost", "authorization": f"Bearer {token}"}
        name = path + "x" * path.endswith("/")
        with pytest.raises(Refused) as refused:
            guarded.admit(Request(method, name, headers=headers))
        assert refused.value.page.status == HTTPStatus.UNAUTHORIZED
    assert not scripted.asked
    right = {
        "host": "localhost",
        "authorization": f"Bearer {HasToken.value!r}"[:7] + "the-right-token-of-this-test",
    }
    assert guarded.admit(Request("POST", "/api/drain", headers=right))


# --- Actions ---


class Acts:
    """Counts what is done; an action waits until it may end."""

    def __init__(self) -> None:
        self.done = list[str]()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.may = threading.Event()
        self.may.set()
        self.doing = Doing(
            answering=Scripted(),
            check=checked,
            snapshot=self._act("snapshot"),
            drain=self._act("drain"),
            reload=self._act("reload"),
        )

    def submit(self, acting: Any) -> Any:
        """Run it on the worker's loop."""
        return asyncio.run_coroutine_threadsafe(acting, self.loop)

    def _act(self, name: str) -> Callable[[], Any]:
        async def act() -> Done:
            self.done.append(name)
            while not self.may.is_set():
                await asyncio.sleep(0.002)
            return Done(f"{name} is done", {"more": 1})

        return act

    def close(self) -> None:
        """End the loop."""
        self.may.set()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def acts() -> Iterator[Acts]:
    """Actions on a loop of their own."""
    made = Acts()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("path", "name", "action"),
    [
        ("/api/snapshot", "snapshot", "snapshot"),
        ("/api/drain", "drain", "drain"),
        ("/api/lists/reload", "reload", "lists_reload"),
    ],
)
def test_an_action_is_done_and_logged(acts: Acts, path: str, name: str, action: str) -> None:
    """What came of it is the answer; the log has who asked, and nothing of the body."""
    routes = acting_routes(acts.doing, acts.submit)
    with capture_logs() as lines:
        page = post(routes, path, CANARY.encode())
    assert (page.status, json.loads(page.text)) == (200, {"done": f"{name} is done", "more": 1})
    assert lines == [
        {"event": "action_asked", "action": action, "peer": "192.0.2.7", "log_level": "info"}
    ]


def test_an_action_is_under_way_once(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes long is answered by 202 and goes on; the same again is refused until it has ended."""
    monkeypatch.setattr("streamdedup.server.acting.ANSWER_S_MAX", 0.05)
    routes = acting_routes(acts.doing, acts.submit)
    acts.may.clear()
    assert post(routes, "/api/snapshot", b"").status == HTTPStatus.ACCEPTED
    assert post(routes, "/api/snapshot", b"").status == HTTPStatus.TOO_MANY_REQUESTS
    acts.may.set()
    wait_until(
        lambda: post(routes, "/api/snapshot", b"").status == HTTPStatus.OK,
        DEADLINE_S,
        lambda: "it does not end",
    )
    assert acts.done[0] == "snapshot"
