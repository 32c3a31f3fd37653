"""`streamdedup status`: a worker in text, and an exit status by its worst finding."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest

from streamdedup import shape
from streamdedup.cli import main
from streamdedup.server.listener import Listener
from streamdedup.server.request import Page, as_json
from streamdedup.server.route import Route, Routes
from tests.test_shape import example

HOST = "127.0.0.1"
PATH = "/api/status"
ESCAPE = "\x1b[2J"

Serve = Callable[[Page], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a page as the document of a worker; its URL."""
    listeners = list[Listener]()

    def serving(page: Page) -> str:
        listeners.append(Listener(HOST, 0, Routes([Route(PATH, lambda _: page)])))
        return f"http://{HOST}:{listeners[-1].port}"

    yield serving
    for listener in listeners:
        listener.close()
        listener.join(5)


@pytest.fixture
def document() -> dict[str, Any]:
    """One that has all there is, and no finding."""
    made: dict[str, Any] = example(shape.SCHEMA)
    return made | {"version": shape.VERSION, "findings": []}


def finding(severity: str) -> dict[str, Any]:
    """One of that severity."""
    about = {"id": "some-id", "place": "events/3", "sentence": "what is wrong", "remedy": "do that"}
    return {**about, "severity": severity, "since": 0}


@pytest.mark.parametrize(
    ("severities", "status"),
    [
        ([], 0),
        (["note"], 0),
        (["note", "warning"], 3),
        (["warning", "failure"], 2),
    ],
)
def test_the_exit_status_is_by_the_worst_finding(
    serve: Serve,
    document: dict[str, Any],
    severities: list[str],
    status: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As that of `doctor`; each finding is printed with its place and its remedy."""
    document["findings"] = [finding(severity) for severity in severities]
    assert main(["status", serve(as_json(document))]) == status
    printed = capsys.readouterr().out
    assert printed.count("[some-id] events/3") == len(severities)
    assert printed.count("\n  do that\n") == len(severities)


def test_partitions_in_trouble_are_first(
    serve: Serve, document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that stand still before those that are not live yet, then by number; 80 columns hold all of it."""
    (shard,) = document["shards"]
    states = ["live", "folding", "live", "stopped", "full"]
    document["shards"] = [
        copy.deepcopy(shard)
        | {"partition": number, "state": state, "fold": None}
        | {"trouble": "x" if state in ("stopped", "full") else None, "lag": 10**9}
        for number, state in enumerate(states)
    ]
    main(["status", serve(as_json(document))])
    lines = capsys.readouterr().out.splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith(" part state"))
    shown = [line.split()[:2] for line in lines[at + 1 : at + 6]]
    assert shown == [
        ["3", "stopped"],
        ["4", "full"],
        ["1", "folding"],
        ["0", "live"],
        ["2", "live"],
    ]
    assert max(map(len, lines)) <= 80


def test_what_a_stranger_chose_moves_no_cursor(
    serve: Serve, document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of topics and lists, and sentences, are data, in text and in JSON."""
    for place, name in (("worker", "topic"), ("ready", "sentence"), ("worker", "group")):
        document[place][name] = ESCAPE
    document["lists"][0]["name"] = document["not_passed"][0]["reason"] = ESCAPE
    url = serve(as_json(document))
    main(["status", url])
    main(["status", url, "--json"])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert r"\x1b[2J" in printed


def test_json_is_the_document(
    serve: Serve, document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """As the worker gives it."""
    main(["status", serve(as_json(document)), "--json"])
    assert json.loads(capsys.readouterr().out) == document


@pytest.mark.parametrize(
    "page",
    [
        as_json({}),
        as_json([1]),
        Page(HTTPStatus.OK, "<html>", "text/html"),
        Page(HTTPStatus.OK, "[" * 100_000),
        as_json({"error": "x"}, HTTPStatus.INTERNAL_SERVER_ERROR),
    ],
    ids=["empty", "list", "html", "deep", "failed"],
)
def test_another_server_is_no_worker(
    serve: Serve, page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence says so, and the status is none that a worker's finding has."""
    assert main(["status", serve(page)]) == 1
    assert capsys.readouterr().err.startswith("streamdedup: http://127.0.0.1:")


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 1, and the sentence names the URL."""
    listener = Listener(HOST, 0, Routes([]))
    listener.close()
    listener.join(5)
    assert main(["status", f"{HOST}:{listener.port}"]) == 1
    assert f"http://{HOST}:{listener.port}: no worker answers" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x/path", "http://u:p@x", "x:y"])
def test_a_wrong_url_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With status 2, and the name of the argument."""
    assert main(["status", url]) == 2
    assert "URL: must be a URL" in capsys.readouterr().err


def test_it_imports_neither_numpy_nor_numba() -> None:
    """So `watch` costs little."""
    script = (
        "import sys; from streamdedup.commands import status;"
        " print({'numpy', 'numba', 'pydantic', 'aiokafka'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
