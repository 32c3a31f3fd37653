"""Claims about a worker that is asked over HTTP, on a real broker: by its page's requests, and by `--worker`.

The requests by themselves: tests/server/test_asking.py.
"""

import http.client
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamdedup.cli import main
from tests.broker.base import DEADLINE_S, Broker
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.lists.numbered import build_lists

TOKEN = "a-token-of-this-test"  # noqa: S105 - of this test alone
KEY = "user1@example.com"


class Stage:
    """A deployment of two partitions with lists; its worker runs, has caught up, and may be asked."""

    def __init__(self, broker: Broker, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
        made = self.deployment = Deployment(broker.bootstrap_servers, directory, partitions=2)
        self.token_file = directory / "token"
        self.token_file.write_text(f"{TOKEN}\n")
        self.token_file.chmod(0o600)
        made.config["key"] = {"from": "key", "normalize": "email"}
        made.config |= build_lists(directory)
        made.config["server"] = {"port": 0, "token_file": str(self.token_file)}
        made.create(retention_ms=-1).feed(keyed([1, 2, 3, 1], 2))
        self.worker = made.start()
        self.worker.wait_for("shard_live", 2)
        made.catch_up(self.worker)
        (listens,) = self.worker.wait_for("server_listens")
        self.port: int = listens["port"]
        self._capfd = capfd

    @property
    def asking(self) -> list[str]:
        """The arguments that ask the worker."""
        return ["--worker", f"http://127.0.0.1:{self.port}", "--token-file", str(self.token_file)]

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Status, output and standard error of the command."""
        self._capfd.readouterr()
        status = main(arguments)
        return status, *self._capfd.readouterr()

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and JSON, or text, of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        return answer.status, json.loads(text) if answer.status < 300 else text


@pytest.fixture
def stage(
    broker: Broker,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    """The stage; its worker is killed at the end unless it has ended."""
    monkeypatch.setattr(os, "nice", lambda _: 0)  # the command makes its own process nicer
    made = Stage(broker, tmp_path, capfd)
    yield made
    made.worker.kill()


def test_a_worker_answers_as_the_command_does(stage: Stage) -> None:
    """Output, standard error and status are the same with `--worker`, for keys and events, as text and as JSON."""
    config = ["-c", str(stage.deployment.write_config())]
    at = f"{stage.deployment.source}/1:0"
    for arguments in ([KEY], ["nobody@example.com"], ["no address"], ["--at", at]):
        for form in ([], ["--json"]):
            by_command = stage.run("explain", *config, *arguments, *form)
            assert stage.run("explain", *stage.asking, *arguments, *form) == by_command
    log = str(stage.worker.events())
    assert "'action': 'explain', 'peer': '127.0.0.1'" in log
    assert not any(text in log for text in (KEY, TOKEN, "nobody"))


def test_lists_are_checked_as_the_command_does(stage: Stage) -> None:
    """The lines are those of `--live`: blocked, exempt, unknown, malformed, and a key that is no UTF-8."""
    keys = ["user5@example.com", "a@junk.org", "user15@junk.org", "new@x.org", "none", "\udcff"]
    config = ["-c", str(stage.deployment.write_config())]
    by_command = stage.run("lists", "check", "--live", *config, "--", *keys)
    assert "blocked\tdomain\tfile\ta@junk.org\n" in by_command[1]
    assert stage.run("lists", "check", *stage.asking, "--", *keys)[:2] == by_command[:2]


def test_a_worker_acts(stage: Stage) -> None:
    """It saves what is new, looks at its lists, and ends as at SIGTERM; each is safe to repeat, and is logged."""
    saved = {"saving": 2, "waiting": 0}
    status, answer = stage.request("POST", "/api/snapshot")
    assert (status, {name: answer[name] for name in saved}) == (200, saved)
    stage.worker.wait_for("snapshot_saved", 2)
    assert stage.request("POST", "/api/snapshot", {})[1]["saving"] == 0
    before = stage.request("POST", "/api/lists/reload")[1]["lists"]
    assert [(each["list"], each["refused"]) for each in before] == [
        ("allowlist", None),
        ("blocklist", None),
    ]
    path = Path(stage.deployment.config["blocklist"]["file"])
    path.write_bytes(b"no list")
    (allowed, blocked) = stage.request("POST", "/api/lists/reload")[1]["lists"]
    assert (allowed["refused"], blocked["version"]) == (None, before[1]["version"])
    assert str(path) in blocked["refused"]
    assert stage.request("POST", "/api/drain")[0] == 200
    assert stage.worker.process.wait(DEADLINE_S) == 0
    done = [line["action"] for line in stage.worker.events("action_asked")]
    assert done == ["snapshot", "snapshot", "lists_reload", "lists_reload", "drain"]
    assert stage.worker.events("stopped")


def test_questions_beside_the_flow_change_nothing(stage: Stage) -> None:
    """While two are answered again and again, events flow: none is lost, none comes twice, and answers are right."""
    there, ends = stage.deployment, threading.Event()
    answers = list[Any]()

    def ask() -> None:
        while not ends.is_set():
            status, begun = stage.request("POST", "/api/explain", {"key": KEY, "all": True})
            while status == 202:
                _, found = stage.request("GET", f"/api/explain/{begun['id']}")
                if found["state"] != "running":
                    answers.append(found)
                    break

    with ThreadPoolExecutor(2) as asking:
        asked = [asking.submit(ask) for _ in range(2)]
        try:
            for part in range(20):
                numbers = range(part * 5_000, part * 5_000 + 10_000)
                there.feed(keyed((n for n in numbers if n % 5 or not n % 3), 2))
            there.catch_up(stage.worker)
        finally:
            ends.set()
        for each in asked:
            each.result(DEADLINE_S)
    assert len(answers) >= 2
    assert {(found["state"], found["status"]) for found in answers} == {("done", 0)}
    assert stage.worker.interrupt() == 0
    assert lost_and_doubled(there) == (0, 0, 0)


def test_what_is_wrong_is_said(stage: Stage, tmp_path: Path) -> None:
    """A topic that is no input, a place that is not there, another token, and a worker that has gone."""
    said = "is no input of this configuration"
    status, _, text = stage.run("explain", *stage.asking, "--at", "elsewhere/0:0")
    assert (status, said in text) == (2, True)
    there = f"{stage.deployment.source}/0:999999"
    status, _, text = stage.run("explain", *stage.asking, "--at", there)
    assert (status, "999999" in text) == (2, True)
    other = tmp_path / "other"
    other.write_text("another-token-than-that")
    status, _, text = stage.run("explain", *stage.asking[:2], "--token-file", str(other), KEY)
    assert (status, "does not take this token" in text) == (2, True)
    stage.worker.kill()
    status, _, text = stage.run("explain", *stage.asking, KEY)
    assert (status, "no worker answers" in text) == (1, True)
