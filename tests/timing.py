"""The CPU seconds of a run and of all processes that it started, brokers and other Java left out.

With `--cpu-max SECONDS` a run that takes more fails. What Java took is in a file (tests/broker/leash.py). A process of
pytest-xdist reports its own seconds at its end.
"""

import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.broker.leash import CPU_FILE

CPU_MAX = "--cpu-max"


def pytest_addoption(parser: pytest.Parser) -> None:
    """A limit makes sense for a machine whose speed is known: that of CI."""
    parser.addoption(CPU_MAX, type=float, metavar="SECONDS", help="fail above that")


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each process of the run; the first one has the sum."""
    config.pluginmanager.register(
        OfOther(config) if hasattr(config, "workerinput") else Sum(config)
    )


class OfOther:
    """In a process of pytest-xdist: reports what it took."""

    def __init__(self, config: Any) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """After the fixtures of the session, which end brokers."""
        self._config.workeroutput["cpu_s"] = taken_s(resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


class Sum:
    """In the first process: adds all up, and judges."""

    def __init__(self, config: pytest.Config) -> None:
        self._max_s: float | None = config.getoption(CPU_MAX)
        self._is_alone = not getattr(config.option, "numprocesses", None)
        self._others_s = self._seconds = 0.0
        descriptor, name = tempfile.mkstemp(prefix="streamdedup-cpu-")
        os.close(descriptor)
        self._java = Path(name)
        os.environ[CPU_FILE] = name

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process of pytest-xdist has ended; one that crashed reports nothing."""
        self._others_s += getattr(node, "workeroutput", {}).get("cpu_s", 0.0)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The processes of pytest-xdist are children, too: theirs is not taken twice."""
        whose = [resource.RUSAGE_SELF, *[resource.RUSAGE_CHILDREN] * self._is_alone]
        java_s = sum(map(float, self._java.read_text().split()))
        self._java.unlink()
        self._seconds = taken_s(*whose) + self._others_s - java_s
        if self._is_too_much() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line, and another one above the limit."""
        terminalreporter.write_line(f"{self._seconds:.0f} s of CPU, brokers left out")
        if self._is_too_much():
            terminalreporter.write_line(f"FAILED: {CPU_MAX} is {self._max_s:g} s", red=True)

    def _is_too_much(self) -> bool:
        return self._max_s is not None and self._seconds > self._max_s


def taken_s(*whose: int) -> float:
    """User's and system's time."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, whose))
