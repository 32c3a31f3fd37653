"""What was played on each version, in a file of the repository: the newest result of each storm and each test file.

A result holds for the code that it was played with; the page names its commit, so older ones may stand beside newer.
"""

import fcntl
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import commit
from proof.chaos.results import ROOT, code_id, machine

PATH = ROOT / "results" / "compatibility.json"


@dataclass(frozen=True)
class Origin:
    """The code of a result, its commit (marked where code was changed since), the machine and the time."""

    code: str
    commit: str
    at: str
    machine: str
    seconds: float


@dataclass(frozen=True)
class Storm:
    """The round of a scenario that counts, or that failed."""

    origin: Origin
    events: int
    faults: int
    hits: int
    aborted_records: int
    lost: int
    doubled: int
    failures: list[str]


@dataclass(frozen=True)
class TestFile:
    """What came of the broker tests of a file. `skipped` counts them by reason."""

    __test__ = False

    origin: Origin
    passed: int
    failed: list[str]
    skipped: dict[str, int]

    @property
    def tests(self) -> int:
        """How many there are."""
        return self.passed + len(self.failed) + sum(self.skipped.values())


@dataclass
class OfVersion:
    """All that is known of a version, by the name of the scenario or the path of the file."""

    storms: dict[str, Storm] = field(default_factory=dict)
    files: dict[str, TestFile] = field(default_factory=dict)
    files_in_all: int = 0
    """How many files have tests with a broker, run or not."""

    @property
    def skipped(self) -> Counter[str]:
        """How many tests were skipped, by reason."""
        return sum((Counter(file.skipped) for file in self.files.values()), Counter())

    @property
    def failed(self) -> list[str]:
        """The tests that failed."""
        return [name for file in self.files.values() for name in file.failed]


Results = dict[str, OfVersion]
"""By the name of the version."""


def read(path: Path = PATH) -> Results:
    """Read what is kept."""
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {
        name: OfVersion(
            {scenario: _parsed(Storm, fields) for scenario, fields in of["storms"].items()},
            {file: _parsed(TestFile, fields) for file, fields in of["files"].items()},
            of["files_in_all"],
        )
        for name, of in kept.items()
    }


def keep(name: str, of: OfVersion, path: Path = PATH) -> None:
    """Add what came of a version to what is kept: another process may do the same."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = read(path)
        known = kept.setdefault(name, OfVersion())
        known.storms.update(of.storms)
        known.files.update(of.files)
        known.files_in_all = of.files_in_all or known.files_in_all
        write(kept, path)


def write(results: Mapping[str, OfVersion], path: Path = PATH) -> None:
    """Keep it."""
    kept = {name: asdict(of) for name, of in sorted(results.items())}
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")


def origin(folders: Sequence[str], at: str, seconds: float) -> Origin:
    """Say where a result of the code in `folders` comes from: this commit, this machine."""
    return Origin(code_id(folders), commit(), at, machine(), round(seconds, 1))


def origins(results: Iterable[OfVersion]) -> list[Origin]:
    """List where all results come from."""
    return [
        origin
        for of in results
        for origin in (
            *(storm.origin for storm in of.storms.values()),
            *(file.origin for file in of.files.values()),
        )
    ]


def _parsed(kind: Any, fields: Mapping[str, Any]) -> Any:
    return kind(**{**fields, "origin": Origin(**fields["origin"])})
