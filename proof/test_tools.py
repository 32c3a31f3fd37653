"""The tools have one entry each, `python -m proof` and `python -m bench`: each name runs, and says what it takes."""

import subprocess
import sys
from pathlib import Path

import pytest

import bench.__main__
import proof.__main__
from bench.entry import Tool, run
from tests.rows import every

ROOT = Path(__file__).parents[1]
TOOLS = [
    (package, name)
    for package, tools in (("proof", proof.__main__.TOOLS), ("bench", bench.__main__.TOOLS))
    for name in tools
]


def ended(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a Python with these arguments."""
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_each_tool_has_a_help() -> None:
    """It ends at once, with status 0 and its own usage, and runs nothing; an argument that is none ends with 2."""

    def check(tool: tuple[str, str]) -> None:
        done = ended("-m", *tool, "--help")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("usage: ")

    every(TOOLS, check)
    wrong = ended("-m", *TOOLS[0], "--no-such-option")
    assert wrong.returncode == 2
    assert "--no-such-option" in wrong.stderr


def test_all_modules_of_a_tool_run_until_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with the arguments; the status is the first that is not 0."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, status in (("good_tool", 0), ("bad_tool", 3), ("last_tool", 4)):
        code = f"import sys, pathlib\npathlib.Path({str(tmp_path / name)!r}).write_text(str(sys.argv[1:]))\n"
        (tmp_path / f"{name}.py").write_text(f"{code}raise SystemExit({status})\n")
    tools = {"all": Tool("All", ["good_tool", "bad_tool", "last_tool"])}
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert run("tools", tools, ["all", "--rounds", "2"]) == 3
    assert (tmp_path / "good_tool").read_text() == "['--rounds', '2']"
    assert not (tmp_path / "last_tool").exists()
