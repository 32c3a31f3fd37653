"""Claims about `--worker URL`: what is sent, what is printed, and what is said if there is no answer."""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from streamdedup.cli import main
from streamdedup.commands import asked_worker
from streamdedup.commands.worker_server import Answered, WorkerAwayError
from streamdedup.explain.beside import Answer, Asked
from streamdedup.explain.run import OnProgress
from streamdedup.server.asking import asking_routes
from streamdedup.server.gate import Gate
from streamdedup.server.listener import Listener
from streamdedup.server.questions import Questions
from streamdedup.server.request import Page, Request
from streamdedup.server.route import Route, Routes
from streamdedup.server.token import Token

TOKEN = "a-token-of-this-test"  # noqa: S105 - of this test alone
OTHER = "another-token-than-that"


class Answering:
    """Answers with what it was asked."""

    def __init__(self) -> None:
        self.asked = list[Asked]()

    async def __call__(self, asked: Asked, on_progress: OnProgress) -> Answer:
        """Return an answer of status 5 that a terminal must not take at its word."""
        self.asked.append(asked)
        on_progress("1 event read")
        return Answer(
            [{"key": "ä"}, {"key": None}], "text\x1b[2J\tof it\n", ["broken"], ["note: n"], 5
        )


class Worker:
    """A server with the routes of questions, behind a token."""

    def __init__(self, directory: Path) -> None:
        self.token_file = directory / "token"
        self.token_file.write_text(f"{TOKEN}\n")
        self.token_file.chmod(0o600)
        self.answering = Answering()
        self.checked = list[bytes]()
        self.questions = Questions(self.answering)
        self.routes = asking_routes(self.questions, self._check)
        self.token: Token | None = Token(self.token_file)

    def _check(self, keys: Sequence[bytes]) -> bytes:
        self.checked += keys
        return b"".join(b"pass\t-\t-\t%b\n" % key for key in keys)

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        """Serve; yield the arguments that ask it."""
        listener = Listener("127.0.0.1", 0, Routes(self.routes, Gate((), self.token)))
        try:
            url = f"http://127.0.0.1:{listener.port}"
            yield ["--worker", url, "--token-file", str(self.token_file)]
        finally:
            listener.close()
            listener.join(5)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The server is in this process: what it logs is not the command's output."""
    with capture_logs():
        yield


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    """A worker that may be asked."""
    return Worker(tmp_path)


@pytest.fixture
def asking(worker: Worker) -> Iterator[list[str]]:
    """The arguments that ask the worker."""
    with worker.listening() as arguments:
        yield arguments


def give(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    """Give a text on standard input."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(fileno=_no_file, buffer=io.BytesIO(text)))


def _no_file() -> int:
    raise io.UnsupportedOperation


def test_the_answer_is_printed(
    worker: Worker, asking: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """The text, escaped, and the status; with `--json` an object a line, and the notes on standard error."""
    assert main(["explain", *asking, "k"]) == 5
    out, err = capfd.readouterr()
    assert (out, err) == ("text\\x1b[2J\tof it\n", "streamdedup: broken\n")
    assert main(["explain", *asking, "k", "--json"]) == 5
    out, err = capfd.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [{"key": "ä"}, {"key": None}]
    assert err == "streamdedup: note: n\n"
    assert [asked.keys for asked in worker.answering.asked] == [[b"k"], [b"k"]]


def test_all_options_reach_the_worker(worker: Worker, asking: list[str]) -> None:
    """Those of the search, and the place of an event."""
    since = ["--since", "2026-01-31T08:00Z", "--quick"]
    main(["explain", *asking, "k", *since, "--all", "--partition", "1", "--partition", "0"])
    main(["explain", *asking, "--at", "t/3:17", *since])
    by_key, by_place = worker.answering.asked
    scope = by_key.scope
    assert (scope.since_ms, scope.quick, scope.every) == (1_769_846_400_000, True, True)
    assert scope.partitions == (1, 0)
    assert (str(by_place.at), by_place.offset, by_place.scope.quick) == ("t/3", 17, True)


@pytest.mark.parametrize("text", [b"a\n\xc3\xa4\r\nb\n", b"a\n\xff\nb"], ids=["utf-8", "bytes"])
def test_keys_on_standard_input_reach_the_worker(
    worker: Worker, asking: list[str], monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    """As they are, even if they are no UTF-8; for the lists, too."""
    give(monkeypatch, text)
    main(["explain", *asking, "-"])
    keys = text.replace(b"\r", b"").rstrip(b"\n").split(b"\n")
    assert worker.answering.asked[0].keys == keys
    give(monkeypatch, text)
    assert main(["lists", "check", *asking, "-"]) == 0
    assert worker.checked == keys


def test_any_number_of_keys_is_checked(
    worker: Worker,
    asking: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In parts that a worker takes; the lines are in the order of the keys."""
    keys = [b"%d" % number for number in range(2_500)] + [b"\xff" * 5_000, b"\x01" * 9_000, b"z"]
    give(monkeypatch, b"\n".join(keys))
    assert main(["lists", "check", *asking]) == 0
    assert worker.checked == keys
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == len(keys)
    assert lines[2_499] == "pass\t-\t-\t2499"


def fails(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The status of a command, and what it says on standard error; it prints nothing."""
    capfd.readouterr()
    status = main(arguments)
    out, err = capfd.readouterr()
    assert out == ""
    return status, err


def test_what_does_not_go_together_is_refused(
    asking: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the names of the options, before anything is asked."""
    file = str(tmp_path / "c.yaml")
    for arguments, said in (
        (["explain", *asking, "k", "-c", file], "-c is not for --worker"),
        (["explain", *asking, "k", "--set", "a=b"], "--set is not for --worker"),
        (["explain", *asking, "--at", "t/0:0", "--show-key"], "--show-key is not for --worker"),
        (["explain", *asking[:2], "k"], "--worker needs --token-file"),
        (["explain", *asking[2:], "k"], "--token-file is for --worker"),
        (["explain", *asking], "give a KEY"),
        (["lists", "check", *asking, "--live", "k"], "--live is not for --worker"),
        (["lists", "check", *asking, "-c", file, "k"], "-c is not for --worker"),
    ):
        status, text = fails(capfd, *arguments)
        assert (status, said in text) == (2, True), text


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:9464",
        "ftp://x",
        "http://",
        "http://x/page",
        "http://u:p@x",
        "http://x:y",
        "http://[",
        "http://x?a",
    ],
)
def test_a_url_that_is_none_is_refused(
    asking: list[str], capfd: pytest.CaptureFixture[str], url: str
) -> None:
    """With one that is; it is not repeated, since it may have a secret."""
    status, text = fails(capfd, "explain", "--worker", url, *asking[2:], "k")
    assert (status, "http://127.0.0.1:9464" in text) == (2, True)


@pytest.mark.parametrize("content", [None, b"", b"\n", b"two words", b"\xff", b"a\nb"])
def test_a_file_without_a_token_is_refused(
    asking: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    """Its content is in no message."""
    path = tmp_path / "other"
    if content is not None:
        path.write_bytes(content)
    status, text = fails(capfd, "explain", *asking[:2], "--token-file", str(path), "k")
    assert (status, "--token-file" in text, "two words" in text) == (2, True, False)


def test_another_token_is_refused(
    worker: Worker, asking: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither token is in the message, and nothing is asked."""
    path = tmp_path / "other"
    path.write_text(OTHER)
    for command in (["explain"], ["lists", "check"]):
        status, text = fails(capfd, *command, *asking[:2], "--token-file", str(path), "k")
        assert (status, "does not take this token" in text) == (2, True)
        assert TOKEN not in text
        assert OTHER not in text
    assert not worker.answering.asked
    assert not worker.checked


def test_a_worker_without_a_token_takes_no_questions(
    worker: Worker, capfd: pytest.CaptureFixture[str]
) -> None:
    """It says which option turns them on."""
    worker.token = None
    with worker.listening() as asking:
        status, text = fails(capfd, "explain", *asking, "k")
    assert (status, "server.token_file" in text) == (2, True)


def test_a_busy_worker_says_so(
    asking: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Status 1, and when to ask again."""
    monkeypatch.setattr("streamdedup.server.questions.AT_ONCE", 0)
    monkeypatch.setattr(Questions, "_leave_place", lambda _: None)
    status, text = fails(capfd, "explain", *asking, "k")
    assert (status, "ask again" in text) == (1, True)


def test_a_worker_that_restarts_meanwhile_is_named(
    worker: Worker,
    asking: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It knows no question from before."""
    monkeypatch.setattr(worker.questions, "look", lambda _: None)
    status, text = fails(capfd, "explain", *asking, "k")
    assert (status, "restarted meanwhile" in text) == (1, True)


def test_nobody_answers(worker: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    """At first that is an error at once; in a search, once the worker was away for some seconds."""
    with worker.listening() as asking:
        pass
    status, text = fails(capfd, "explain", *asking, "k")
    assert (status, "no worker answers" in text) == (1, True)
    now_s, sleeps = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now_s[0] += seconds

    class Gone:
        name = "http://gone"

        def post(self, *_: object) -> Answered:
            return Answered(202, b'{"id": "x"}')

        def get(self, _: str) -> Answered:
            raise WorkerAwayError("gone")

    with pytest.raises(WorkerAwayError):
        asked_worker.explained(
            Gone(),  # type: ignore[arg-type]  # a server that goes away
            {},
            lambda _: None,
            sleep=sleep,
            clock=lambda: now_s[0],
        )
    assert asked_worker.AWAY_S_MAX < sum(sleeps) < 2 * asked_worker.AWAY_S_MAX


def test_another_server_is_no_worker(worker: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    """One that answers anything else, or sends elsewhere, which is not followed."""

    def elsewhere(_: Request) -> Page:
        return Page(HTTPStatus.FOUND, "\x1b[2Jgo", headers=(("Location", "http://127.0.0.1:1/"),))

    def nonsense(_: Request) -> Page:
        return Page(HTTPStatus.ACCEPTED, "[" * 5_000)

    for answer in (elsewhere, nonsense):
        worker.routes = [Route("/api/explain", answer, "POST")]
        with worker.listening() as asking:
            status, text = fails(capfd, "explain", *asking, "k")
        assert (status, "\x1b" in text) == (1, False)


def test_a_failed_search_ends_as_the_command_does(
    worker: Worker, asking: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Its sentence, and its status."""

    def failing(status: int) -> str:
        return json.dumps({"state": "failed", "error": "no such topic", "status": status})

    for status in (1, 2):
        worker.questions.look = lambda _, status=status: failing(status)  # type: ignore[method-assign,misc]
        assert fails(capfd, "explain", *asking, "k") == (status, "streamdedup: no such topic\n")
