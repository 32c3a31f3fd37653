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


def test_a_tool_gets_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its status is that of the command."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pytest"])
    (tmp_path / "a_tool.py").write_text("import sys\nraise SystemExit(len(sys.argv))\n")
    assert run("tools", {"one": Tool("One", "a_tool")}, ["one", "--rounds", "2"]) == 3
