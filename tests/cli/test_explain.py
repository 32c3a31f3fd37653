"""Claims about the command line of `streamdedup explain`: its arguments, exit statuses, and what it prints."""

import io
import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamdedup.cli import main
from streamdedup.commands import explain as commands
from tests.deployment import keyed
from tests.explain.asking import Asked, deployed, user


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Two partitions with the keys 1 to 3, and one event that is unread; the command asks them."""
    made = deployed(tmp_path, 2)
    made.fill([1, 2, 3, 1])
    made.feed(keyed([5], 2))
    for name in ("explain", "explain_at"):
        monkeypatch.setattr(commands, name, partial(getattr(commands, name), connect=made.connect))
    monkeypatch.setattr(os, "nice", lambda _: 0)
    return made


def run(asked: Asked, *arguments: str) -> int:
    """Run the command."""
    return main(["explain", "-c", str(asked.write_config()), *arguments])


def given(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    """Give a text on standard input."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(fileno=_no_file, buffer=io.BytesIO(text)))


def _no_file() -> int:
    raise io.UnsupportedOperation


def test_the_status_says_whether_a_key_is_known(
    asked: Asked, capfd: pytest.CaptureFixture[str]
) -> None:
    """0 and 4; the text names the event that passed."""
    assert run(asked, user(1).decode()) == 0
    assert f"by the event that passed to {asked.sink}/1 offset 0" in capfd.readouterr().out
    assert run(asked, "nobody") == 4
    assert "not known in partitions 0, 1" in capfd.readouterr().out


def test_keys_on_standard_input_are_answered_line_by_line(
    asked: Asked, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line each, in their order; with `--json` one object each."""
    lines = b"\r\n".join([user(1), b"nobody", user(2)]) + b"\n"
    given(monkeypatch, lines)
    assert run(asked, "-") == 4
    rows = [line.split("\t") for line in capfd.readouterr().out.splitlines()]
    assert [row[:2] for row in rows] == [["1", "duplicate"], ["2", "pass"], ["3", "duplicate"]]
    given(monkeypatch, lines)
    assert run(asked, "-", "--json") == 4
    answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [answer["status"] for answer in answers] == [0, 4, 0]


def test_standard_input_without_keys_is_no_answer(
    asked: Asked, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status of 0 would say that all are known."""
    given(monkeypatch, b"")
    assert run(asked, "-") == 2
    assert "standard input has no key" in capfd.readouterr().err


def test_an_event_is_asked_for_by_its_place(
    asked: Asked, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither its key nor a digest is printed, unless the key is asked for."""
    at = f"--at={asked.source}/1:0"
    assert run(asked, at) == 0
    out = capfd.readouterr().out
    assert f"passed: it passed to {asked.sink}/1 offset 0" in out
    assert "user1" not in out
    assert run(asked, at, "--json") == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["outcome"], "key" in said, "digest" in said) == ("passed", False, False)
    assert run(asked, at, "--show-key") == 0
    assert f"key: {user(1).decode()}" in capfd.readouterr().out
    assert run(asked, f"--at={asked.source}/1:3") == 4
    assert "unread: it has not been read" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a KEY, or - for keys on standard input, or --at"),
        (("key", "--at", "in/0:1"), "one of these"),
        (("key", "--show-key"), "--show-key is for --at"),
        (("--at", "in/0:1", "--all"), "--partition and --all are for keys"),
        (("--at", "in/0:1", "--partition", "0"), "--partition and --all are for keys"),
        (("--at", "in:1"), "must be TOPIC/PARTITION:OFFSET"),
        (("--at", "in/0:-1"), "must be TOPIC/PARTITION:OFFSET"),
        (("key", "--since", "soon"), "neither earliest, latest, a time"),
        (("key", "--since", "latest"), "must be a time like"),
        (("key", "--partition", "one"), "must be the number of a partition"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(
    asked: Asked, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    """Status 2, before any broker is asked; nothing that was given is quoted."""
    try:
        status = run(asked, *arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    assert status == 2
    assert said in capfd.readouterr().err.replace("\n", " ")


def test_the_command_lets_workers_go_first(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs at nice 10."""
    nices: list[int] = []
    monkeypatch.setattr(os, "nice", nices.append)
    assert run(asked, user(1).decode()) == 0
    assert nices == [10]
