"""What was played, one JSON line a round, in a file that a later run goes on from.

A round is known by scenario, number, attempt and seed, and holds only for the code that it was played with.
"""

import json
import os
import platform
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from proof.chaos.oracle import Finding

ROOT = Path(__file__).parents[2]
CODE = ("streamdedup", "proof/chaos")


@dataclass(frozen=True)
class Result:
    """One round and what came of it. `failures` are sentences; a round without them has kept its promise."""

    scenario: str
    number: int
    attempt: int
    seed: str
    code: str
    at: str
    seconds: float
    tried: dict[str, int]
    hits: int | None
    counts: bool
    failures: list[str]
    longest_s: dict[str, float] = field(default_factory=dict)
    finding: Finding | None = None
    seen: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """What a run need not play again."""
        return self.scenario, self.number


class Results:
    """The rounds of one seed and of the code as it is."""

    def __init__(
        self, path: Path, seed: str, also: Sequence[str] = (), anew: Collection[str] = ()
    ) -> None:
        """Rounds of other code count, too: for each scenario but `anew`, those of the first of `also` that has any."""
        self._path, self.seed, self.code = path, seed, code_id()
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        known = [json.loads(line) for line in lines]
        ours = [r for r in known if (r["seed"], r["code"]) == (seed, self.code)]
        taken = set(anew)
        for code in also:
            others = [r for r in known if (r["seed"], r["code"]) == (seed, code)]
            ours += [r for r in others if r["scenario"] not in taken]
            taken |= {r["scenario"] for r in others}
        self.rounds = [_parsed(fields) for fields in ours]  # other code may have had other fields

    def add(self, result: Result) -> None:
        """Keep a round."""
        self.rounds.append(result)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")

    def done(self, scenario: str, number: int) -> bool:
        """Whether that round was played and counts."""
        return any(r.key == (scenario, number) and r.counts for r in self.rounds)

    def of(self, scenario: str) -> list[Result]:
        """The rounds of a scenario that count."""
        return [r for r in self.rounds if r.scenario == scenario and r.counts]

    def void(self, scenario: str) -> int:
        """How many rounds of a scenario do not count, since no aborted record reached the output."""
        return sum(r.scenario == scenario and not r.counts for r in self.rounds)


def tried(results: list[Result]) -> Counter[str]:
    """How often each fault was done."""
    return sum((Counter(result.tried) for result in results), Counter())


def code_id(folders: Iterable[str] = CODE) -> str:
    """Changes with the product and with the scenarios, or with whatever else is in `folders`."""
    digest = sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def machine() -> str:
    """Describe the machine and what the worker and its tests run on."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("aiokafka", "confluent-kafka"))
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}; "
        f"Python {platform.python_version()}, {libraries}"
    )


def _parsed(fields: dict[str, Any]) -> Result:
    found = fields["finding"]
    return Result(**{**fields, "finding": Finding(**found) if found else None})
