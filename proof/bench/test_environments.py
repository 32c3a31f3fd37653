"""Claims about the Pythons of the benchmarks' peers: made of what is locked, whole or not at all."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.peers import environment
from bench.peers.environment import Environment
from bench.peers.peers import BYTEWAX, PEERS, QUIX, TKATI
from bench.worker.cases import BASE
from bench.worker.contenders import Topics
from tests.broker.base import Unavailable
from tests.broker.jars import CACHE

ENVIRONMENTS = [BYTEWAX, QUIX, TKATI]
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
TOPICS = Topics("nowhere", "group", "in", "out")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Environment:
    """An environment of the Python that runs this, with nothing in it, in a cache of its own."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(environment, "PROGRAMS", tmp_path)
    (tmp_path / "peer.lock").write_text("# what it needs\nother==1.0 \\\npeer==1.2 ; x\n", "utf-8")
    return Environment("peer", (HERE,))


@pytest.mark.parametrize("there", ENVIRONMENTS, ids=lambda there: there.name)
def test_all_that_is_installed_is_locked_with_hashes(there: Environment) -> None:
    """One version of each distribution, the peer's own among them, and no other place to fetch them from."""
    text = re.sub(r"^#.*\n", "", there.lock.read_text("utf-8"), flags=re.MULTILINE)
    requirements = text.replace("\\\n", " ").splitlines()
    assert all(re.match(r"[\w-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", each) for each in requirements)
    assert f"{there.name}=={there.version()}" in {each.split()[0] for each in requirements}
    assert there.version() in {peer.version for peer in PEERS.values()}


def test_an_environment_is_installed_once(
    made: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs is its own Python, with what the lock file names by hash; a changed lock file makes another one."""
    ran = _runs(monkeypatch)
    made.prepare()
    made.prepare()
    assert [command[2] for command in ran] == ["venv", "pip"]
    assert {"--require-hashes", str(made.lock)} <= set(ran[1])
    python = _python(made)
    assert python.read_text("utf-8") == "a Python"
    assert made.version() == "1.2"
    made.lock.write_text("peer==1.3", "utf-8")
    assert _python(made) != python


def test_a_failed_installation_leaves_nothing_behind(
    made: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reason is told, and the next one begins anew."""
    _runs(monkeypatch, fails="pip")
    with pytest.raises(Unavailable, match="pip: no network"):
        made.prepare()
    assert not list((tmp_path / "cache").iterdir())


def test_what_a_step_says_last_is_the_reason() -> None:
    """In one line, whatever it said before."""
    with pytest.raises(Unavailable, match=r"^python -m no_such failed: .*No module named no_such$"):
        environment._run([sys.executable, "-m", "no_such", "argument"])
    with pytest.raises(Unavailable, match="no-such-python"):
        environment._run(["no-such-python"])


def test_a_python_that_is_not_there_is_the_reason(made: Environment) -> None:
    """It says which ones would do."""
    absent = Environment(made.name, ("2.6", "2.9"))
    with pytest.raises(Unavailable, match=r"peer 1\.2 needs Python 2\.6 or 2\.9, and none is on"):
        absent.prepare()


def _runs(monkeypatch: pytest.MonkeyPatch, fails: str = "") -> list[Sequence[str]]:
    """What is run instead of a real installation, which makes no more than a file."""
    ran: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> None:
        ran.append(command)
        if command[2] == fails:
            raise Unavailable(f"{fails}: no network")
        if command[2] == "venv":
            python = Path(command[3]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.write_text("a Python", "utf-8")

    monkeypatch.setattr(environment, "_run", run)
    return ran


def _python(there: Environment) -> Path:
    return Path(there.command("program", BASE, TOPICS, there.lock.parent)[0])
