"""A Python of a peer's own: a virtual environment in the user's cache, of what a lock file names.

It is made in a directory of its own, which is renamed when all is there and every hash is right.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.worker.cases import Case
from bench.worker.contenders import Topics, asked_file
from tests.broker.base import Unavailable
from tests.broker.jars import FETCH_S, cache_directory

PROGRAMS = Path(__file__).with_name("python")


@dataclass(frozen=True)
class Environment:
    """Named after a distribution; `pythons` are the versions that all it needs has wheels for."""

    name: str
    pythons: Sequence[str]

    @property
    def lock(self) -> Path:
        """Its requirements, with hashes."""
        return PROGRAMS / f"{self.name}.lock"

    def version(self) -> str:
        """Return the version that the lock file names."""
        lines = self.lock.read_text("utf-8").splitlines()
        (found,) = (line.split()[0] for line in lines if line.startswith(f"{self.name}=="))
        return found.partition("==")[2]

    def prepare(self) -> None:
        """Install what is locked, unless that is done; raises `Unavailable`."""
        there = self._directory()
        if self._python(there).exists():
            return
        python = self._base()
        there.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".install-", dir=there.parent))
        try:
            self._install(python, staging / "made")
            shutil.rmtree(there, ignore_errors=True)  # its Python is gone
            (staging / "made").rename(there)
        finally:
            shutil.rmtree(staging)

    def command(self, module: str, case: Case, topics: Topics, directory: Path) -> list[str]:
        """Return the command that runs a module of `python/` on a case."""
        python = str(self._python(self._directory()))
        program = f"{__package__}.{PROGRAMS.name}.{module}"
        return [python, "-m", program, asked_file(case, topics, directory)]

    def _directory(self) -> Path:
        """Named by what it is made of."""
        cache = cache_directory(self.lock)
        return cache.with_name(
            f"{cache.name}-{hashlib.sha256(self.lock.read_bytes()).hexdigest()[:12]}"
        )

    def _python(self, directory: Path) -> Path:
        return directory / "bin" / "python"

    def _base(self) -> str:
        """The Python that runs this, else the PATH's."""
        running = f"{sys.version_info.major}.{sys.version_info.minor}"
        if running in self.pythons:
            return sys.executable
        for version in self.pythons:
            if found := _asked_where(version):
                return found
        raise Unavailable(
            f"{self.name} {self.version()} needs Python {' or '.join(self.pythons)}, and none is on PATH"
        )

    def _install(self, python: str, directory: Path) -> None:
        _run([python, "-m", "venv", str(directory)])
        pip = [str(self._python(directory)), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        exactly = ["--require-hashes", "--only-binary", ":all:", "--requirement", str(self.lock)]
        _run([*pip, "install", *exactly])


def _asked_where(version: str) -> str | None:
    """Return the path of a Python of this version. It is run, since pyenv's on PATH works only if it is chosen."""
    chosen = os.environ | {"PYENV_VERSION": version}
    asked = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    try:
        answer = subprocess.run(asked, env=chosen, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FETCH_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error
    if done.returncode:
        last_line = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise Unavailable(f"python {' '.join(command[1:3])} failed: {last_line}")
