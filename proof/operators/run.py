"""Runs a command as an operator types it, and takes its time."""

import re
import subprocess
import sys
from dataclasses import dataclass
from time import perf_counter

from proof.operators.cases import Asked, There

COMMAND_S_MAX = 120.0


@dataclass(frozen=True)
class Ran:
    """What a command printed, its exit status, and how long it took."""

    text: str
    status: int
    seconds: float


def command(*arguments: str, reads: str = "") -> Ran:
    """Run `streamdedup` with these arguments."""
    began = perf_counter()
    ran = subprocess.run(
        [sys.executable, "-m", "streamdedup", *arguments],
        input=reads,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=COMMAND_S_MAX,
    )
    return Ran(ran.stdout, ran.returncode, perf_counter() - began)


@dataclass(frozen=True)
class Answer:
    """What a command answered in a broken deployment: the line that names the cause; None if no line does."""

    typed: str
    line: str | None
    ran: Ran
    is_expected: bool


def ask(there: There, asked: Asked) -> Answer:
    """Ask in a deployment that is broken."""
    name, *rest = asked.arguments
    config = str(there.write_config())
    ran = command(name, "-c", config, *rest, reads=asked.reads)
    lines = [line for line in ran.text.splitlines() if re.search(asked.names, line)]
    said = f"echo {asked.reads.strip()} | " if asked.reads else ""
    typed = f"{said}streamdedup {name} -c my.yaml {' '.join(rest)}".strip()
    expected = bool(lines) and ran.status in asked.statuses
    return Answer(typed, lines[0].strip() if lines else None, ran, expected)
