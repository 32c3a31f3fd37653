"""Claims about the Makefile: which environment its commands use."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "run",
    "test",
    "test-page",
    "test-all",
    "chaos",
    "lowest",
    "check",
    "lock",
    "docs",
    "bench",
)
OF_THIS_PYTHON = f"build/venv-{sys.version_info[0]}.{sys.version_info[1]}{sys.abiflags}"

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="there is no make")


def make(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call make as in a shell of its own, even if a make runs these tests."""
    ours = {"PYTHON", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL"}
    env = {name: value for name, value in os.environ.items() if name not in ours} | variables
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_the_environment_is_of_the_python_that_is_named() -> None:
    """On the command line or in the environment; `.venv` only if none is named."""
    assert make("environment").stdout == ".venv\n"
    assert make("environment", f"PYTHON={sys.executable}").stdout == f"{OF_THIS_PYTHON}\n"
    assert make("environment", PYTHON=sys.executable).stdout == f"{OF_THIS_PYTHON}\n"


def test_no_command_uses_the_environment_of_another_python() -> None:
    """Nor does it make one for it."""
    done = make("--dry-run", *COMMANDS, f"PYTHON={sys.executable}")
    assert done.returncode == 0, done.stderr
    assert f"{OF_THIS_PYTHON}/bin/python -m pytest" in done.stdout
    assert ".venv/" not in done.stdout.replace(sys.executable, "PYTHON")


def test_what_is_compiled_is_kept(tmp_path: Path) -> None:
    """Where Python is told to keep nothing, as in many images: hundreds of processes would compile the package."""
    more = tmp_path / "more"
    more.write_text("show:\n\t@echo kept$$PYTHONDONTWRITEBYTECODE\n")
    done = make("-f", "Makefile", "-f", str(more), "show", PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout == "kept\n"


@pytest.mark.parametrize("version", ["3.10", "3.15"])
def test_a_python_that_does_not_fit_is_refused_in_a_sentence(tmp_path: Path, version: str) -> None:
    """Those that fit are the package's own, and no environment is made."""
    python, (major, minor) = tmp_path / "python", version.split(".")
    as_if = f"import sys; sys.version_info = ({major}, {minor}, 0, 'final', 0);"
    python.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo Python {version}.0 && exit\n'
        f'[ "$1" = -c ] && exec {sys.executable} -c "{as_if} $2"\nexit 3\n'
    )
    python.chmod(0o755)
    target = f"build/venv-{version}{sys.abiflags}/bin/python"
    done = make(target, f"PYTHON={python}")
    assert done.returncode != 0
    assert f"{python} is Python {version}.0; Python 3.11 to 3.14 is needed" in done.stderr
    assert not (ROOT / target).exists()
    project = (ROOT / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.11,<3.15"' in project


def test_a_python_that_does_not_run_is_named() -> None:
    """Instead of another one being used."""
    done = make("--dry-run", "test", "PYTHON=no-python")
    assert done.returncode != 0
    assert "PYTHON=no-python does not run; name a Python that is installed" in done.stderr
