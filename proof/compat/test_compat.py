"""`python -m proof compat`: what is asked for, what is not played again, and the page that is written of it."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from proof.chaos.results import code_id
from proof.compat import playing
from proof.compat.__main__ import main, wish_of
from proof.compat.page import PAGE, failures, mode, page, table
from proof.compat.playing import VERSIONS, files_with_a_broker, play_tests, run_files
from proof.compat.results import OfVersion, Origin, Storm, TestFile, keep, read, write
from tests.broker.plugin import TOO_OLD
from tests.broker.versions import NEWEST, WANTED, Kafka, known

ORIGIN = Origin("code", "abc1234", "2026-01-02T03:04:05+00:00", "2 cores", 60.0)
KEPT = Storm(ORIGIN, 1000, 10, 7, 30, 0, 0, [])
PASSED = TestFile(ORIGIN, 5, [], {"topic ids (Kafka 2.8 or later)": 2})


def test_the_page_is_written_from_what_is_kept() -> None:
    """`python -m proof compat --report` would change nothing."""
    assert PAGE.read_text("utf-8") == page(read())


def test_every_version_is_played_and_each_level_of_transactions() -> None:
    """Those with a lock file; the newest with its own level, too."""
    assert {kafka.version for kafka in VERSIONS} == {kafka.version for kafka in known()}
    newest = [kafka for kafka in VERSIONS if kafka.version == NEWEST]
    assert [mode(kafka) for kafka in newest] == [
        f"KRaft, transaction.version {level}" for level in (0, 1, 2)
    ]
    assert {mode(kafka) for kafka in VERSIONS if not kafka.is_from("3")} == {"ZooKeeper"}


def test_what_is_asked_for() -> None:
    """All, or what the arguments name; a version alone means it with every level of transactions."""
    assert wish_of([]).versions == VERSIONS
    assert wish_of(["2.5.1", "2.8.2"]).versions == [Kafka("2.5.1"), Kafka("2.8.2")]
    assert wish_of([NEWEST]).versions == [Kafka(NEWEST, 0), Kafka(NEWEST, 1), Kafka(NEWEST)]
    assert wish_of(["--part", "tests"]).part == ["tests"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["2.5"], "argument VERSION: 2.5: there are 2.5.1, 2.8.2,"),
        (["--part", "x"], "argument --part: invalid choice: 'x'"),
        (["report"], "argument VERSION: report: there are 2.5.1"),
    ],
)
def test_a_wrong_argument_plays_nothing(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and what there is."""
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert says in capsys.readouterr().err


def test_the_table_counts(tmp_path: Path) -> None:
    """A row has the sums of its storms and files; what was not played says so; what is kept is read again."""
    results = {
        "2.5.1": OfVersion({"kill": KEPT, "storm": KEPT}, {"a.py": PASSED, "b.py": PASSED}),
        "2.8.2": OfVersion({}, {"a.py": PASSED}, files_in_all=2),
    }
    rows = dict(zip(map(str, VERSIONS), table(results)[2:], strict=True))
    assert rows["2.5.1"] == "| 2.5.1 | ZooKeeper | kept | 20 | 2,000 | 0 | 0 | 10 | 0 | 4 |"
    assert (
        rows["2.8.2"] == "| 2.8.2 | ZooKeeper | not run |  |  |  |  | 5 in 1 of 2 files | 0 | 2 |"
    )
    assert rows["3.9.1"] == "| 3.9.1 | KRaft | not run |  |  |  |  | not run |  |  |"
    written = page(results)
    assert "| 2.5.1 | 4 | topic ids (Kafka 2.8 or later) |" in written
    assert "| 2.5.1 | `abc1234` | 14 | 60 | `abc1234` | 4 |" in written
    assert "What failed" not in written
    write(results, tmp_path / "results.json")
    assert read(tmp_path / "results.json") == results


def test_what_fails_is_named() -> None:
    """On the page, and by the status."""
    lost = replace(KEPT, lost=1, failures=["lost 1, doubled 0, foreign 0:\nand a log"])
    results = {"2.8.2": OfVersion({"kill": lost}, {"a.py": replace(PASSED, failed=["a.py::b"])})}
    assert failures(results) == [
        "2.8.2: `kill`: lost 1, doubled 0, foreign 0",
        "2.8.2: `a.py::b`",
    ]
    written = page(results)
    assert "- 2.8.2: `a.py::b`" in written
    assert "| 2.8.2 | ZooKeeper | 1 of 1 failed | 10 | 1,000 | 1 | 0 | 5 | 1 | 2 |" in written


def test_what_was_played_with_this_code_is_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other code is; and so is what failed."""
    ours = replace(ORIGIN, code=code_id(playing.TESTED))
    played: list[str] = []
    of = OfVersion(
        files={
            "done.py": replace(PASSED, origin=ours),
            "failed.py": replace(PASSED, origin=ours, failed=["failed.py::test"]),
            "other.py": PASSED,
        }
    )

    def run(paths: Sequence[str]) -> dict[str, TestFile]:
        played.extend(paths)
        return {path: replace(PASSED, origin=ours) for path in paths}

    monkeypatch.setattr(playing, "run_files", run)
    monkeypatch.setattr(playing, "files_with_a_broker", lambda: [*of.files, "new.py"])
    path = tmp_path / "results.json"
    for ran in play_tests(Kafka(NEWEST), of):
        keep(NEWEST, ran, path)
    assert played == ["failed.py", "other.py", "new.py"]
    keep(NEWEST, OfVersion(files={"done.py": of.files["done.py"]}), path)
    assert list(play_tests(Kafka(NEWEST), read(path)[NEWEST])) == []


def test_a_file_is_counted_as_pytest_ran_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passed, failed, skipped with the reason, by its results and not by its words."""
    file = tmp_path / "test_inner.py"
    file.write_text(INNER.format(TOO_OLD))
    monkeypatch.setattr(playing, "DIRECTORY", tmp_path)
    monkeypatch.setenv(WANTED, "2.5.1")
    (found,) = run_files([str(file)]).values()
    assert (found.passed, found.skipped) == (1, {"topic ids (Kafka 2.8 or later)": 2})
    assert [name.split("::")[1] for name in found.failed] == ["test_fails", "test_has_an_error"]
    assert found.tests == 5
    (log,) = (tmp_path / "failed").iterdir()
    assert "1 failed" in log.read_text()


def test_files_are_those_with_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pytest collects them, each once; those of this room need none."""
    listed = "tests/a.py::test_one\ntests/a.py::test_two[x::y]\ntests/b.py::T::t\n\n3 tests\n"
    done = subprocess.CompletedProcess([], 0, stdout=listed)
    monkeypatch.setattr(playing, "_pytest", lambda *_: done)
    assert files_with_a_broker() == ["tests/a.py", "tests/b.py"]


INNER = """
import pytest

pytestmark = pytest.mark.broker

def test_passes(): pass
def test_fails(): assert False

@pytest.fixture
def wrong(): raise ValueError

def test_has_an_error(wrong): pass

@pytest.mark.parametrize("number", range(2))
def test_is_skipped(number): pytest.skip("{}topic ids (Kafka 2.8 or later)")
"""
