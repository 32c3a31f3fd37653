"""Who runs: the worker as its users start it, its stages with `source.repartition`, a plain copy, a loop by hand."""

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from bench.worker.asked import Asked
from bench.worker.cases import OURS_S, SLOW_S, Case


@dataclass(frozen=True)
class Topics:
    """Where one run reads and writes, and as which group."""

    bootstrap: str
    group: str
    source: str
    sink: str

    @property
    def middle(self) -> str:
        """The middle topic of a contender that has two stages; it makes the topic itself."""
        return f"{self.group}-middle"


class Clock(Enum):
    """How it is seen from outside how far a contender is in its input."""

    COMMITTED = "committed"  # by what its group has committed
    COPIED = "copied"  # by what the group of the first stage has committed; the middle topic is what is checked
    PASSED = "passed"  # by whether the first stage is at the end, and its group has committed all of the middle topic


@dataclass(frozen=True)
class Contender:
    """`command` writes what is needed into a directory and gives what is started; `seconds_max` ends a run.

    The clock begins once it has run for `warm_s`, or, where it is `timed_live`, once all its partitions are live. One
    that is `placed` keeps an event in its partition and in order. `begins` is the line of its log that starts the
    clock. One that `errs` may drop new events, as many as the error rate of a filter explains. `after` first runs to
    the end of the input, with the same topics, and is not timed.
    """

    name: str
    what: str
    command: Callable[[Case, Topics, Path], list[str]]
    judges: bool
    seconds_max: float
    warm_s: float = 0.0
    placed: bool = True
    clock: Clock = Clock.COMMITTED
    end_status: tuple[int, ...] = (0,)  # each a regular end at SIGTERM
    timed_live: bool = False  # else what it does before is timed, too
    begins: str = "assigned"
    errs: bool = False
    after: "Contender | None" = None


def worker_command(case: Case, topics: Topics, directory: Path) -> list[str]:
    """`streamdedup run -c config.yaml`."""
    return run_command(settings_of(case, topics, directory), directory)


def _staged(stage: str) -> Callable[[Case, Topics, Path], list[str]]:
    """`streamdedup run --stage STAGE`, with a middle topic of as many partitions as the input has."""

    def command(case: Case, topics: Topics, directory: Path) -> list[str]:
        settings = settings_of(case, topics, directory)
        middle = {
            "topic": topics.middle,
            "partitions": case.partitions,
            "unread_max": 2 * case.events,  # the first stage alone must not pause
        }
        settings["source"]["repartition"] = middle
        return [*run_command(settings, directory), "--stage", stage]

    return command


def settings_of(case: Case, topics: Topics, directory: Path) -> dict[str, Any]:
    """The worker's configuration, with its snapshots below a directory."""
    settings = case.settings(topics.bootstrap, topics.group, topics.source, topics.sink)
    settings["snapshot"] = {
        "directory": str(directory / "snapshots"),
        **settings.get("snapshot", {}),
    }
    return settings


def run_command(settings: Mapping[str, Mapping[str, object]], directory: Path) -> list[str]:
    """`streamdedup run` with these settings."""
    config = directory / "config.yaml"
    config.write_text(yaml.safe_dump(dict(settings)), "utf-8")
    return [sys.executable, "-m", "streamdedup", "run", "-c", str(config)]


def _asked_of(module: str) -> Callable[[Case, Topics, Path], list[str]]:
    def command(case: Case, topics: Topics, _directory: Path) -> list[str]:
        asked = Asked(
            **asdict(topics), key=case.key, guarantee=case.guarantee, compression=case.written
        )
        return [sys.executable, "-m", f"bench.worker.{module}", json.dumps(asdict(asked))]

    return command


OURS, COPY, LOOP = "streamdedup", "copy", "loop"
CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(OURS, "streamdedup", worker_command, True, OURS_S, errs=True),
        Contender(COPY, "plain aiokafka copy", _asked_of("copying"), False, SLOW_S),
        Contender(
            LOOP, "loop by hand, confluent-kafka and a set", _asked_of("by_hand"), True, SLOW_S
        ),
    )
}

STAGE, BOTH, SECOND = "stage", "both", "second"
_STAGE = Contender(
    STAGE,
    "first stage alone, `--stage repartition`",
    _staged("repartition"),
    judges=False,
    seconds_max=math.inf,
    placed=False,
    clock=Clock.COPIED,
    begins="repartition_starts",
)
_BOTH = Contender(
    BOTH,
    "both stages in one process",
    _staged("both"),
    judges=True,
    seconds_max=math.inf,
    placed=False,
    clock=Clock.PASSED,
    begins="repartition_starts",
    errs=True,
)
_SECOND = replace(
    _BOTH,
    name=SECOND,
    what="second stage alone, `--stage deduplicate`",
    command=_staged("deduplicate"),
    begins="assigned",
    after=_STAGE,
)
REPARTITION = {
    contender.name: contender
    for contender in (
        _STAGE,
        _BOTH,
        _SECOND,
        CONTENDERS[COPY],
        replace(CONTENDERS[OURS], what="worker without `source.repartition`"),
    )
}
