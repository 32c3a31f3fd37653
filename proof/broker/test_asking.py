"""Claims about a worker that is asked over HTTP, on a real broker: by its page's requests, and by `--worker`.

The requests by themselves: tests/server/test_asking.py.
"""

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamdedup.cli import main
from tests.broker.base import DEADLINE_S, Broker
from tests.deployment import Deployment, keyed
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
