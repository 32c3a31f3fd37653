"""Results as files, and what is read off them: rates, ratios round by round, medians, and whether targets are met."""

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import clock
from bench.worker.contenders import BOTH, COPY, LOOP, OURS, SECOND, STAGE

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "results"
PACKAGES = ("streamdedup-kafka", "aiokafka", "confluent-kafka", "numba", "numpy", "orjson")
RATIO_MIN = {COPY: 5.0, LOOP: 3.0}
RATE_MIN = 1_800_000  # events a second
LARGE_RATIO_MIN = 3.0  # to the copy, with events of 1,000 bytes
STREAMS, STREAMS_RATIO_MIN = ("kafka-streams-memory", "kafka-streams-rocksdb"), 10.0
STREAMS_CLAIM = "rate, as a ratio to Kafka Streams, exactly once, the faster of two stores"
REPARTITION = (
    ("the first stage alone, as a ratio to the plain aiokafka copy", STAGE, COPY, 2.5),
    ("both stages in one process, as a ratio to the plain aiokafka copy", BOTH, COPY, 1.3),
    (
        "the second stage alone, as a ratio to a worker that reads the same events",
        SECOND,
        OURS,
        None,
    ),
)
CPU_US_MAX = 0.45
RSS_BYTES_MAX = 300_000_000  # beside the filters

Found = Mapping[str, Any]


def circumstances(broker: str) -> dict[str, Any]:
    """What figures depend on: the day, the machine, versions, the code."""
    return {
        "measured": datetime.now(UTC).date().isoformat(),
        "machine": clock.machine(PACKAGES),
        "load_before": clock.load(),
        "broker": broker,
        "commit": commit(),
    }


def commit() -> str:
    """The commit that is checked out; marked where code differs from it, unknown without git."""
    changed = _git("status", "--porcelain", "--", "*.py")
    return _git("rev-parse", "--short=12", "HEAD") + ("-changed" if changed else "") or "unknown"


def _git(*asked: str) -> str:
    done = subprocess.run(["git", *asked], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def read(path: Path) -> dict[str, Any]:
    """Results that were written; nothing where there are none."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def write(path: Path, results: Found) -> None:
    """At once or not at all: `python -m bench full` may be ended at any time."""
    path.parent.mkdir(exist_ok=True, parents=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    beside.replace(path)


def rates(rounds: Sequence[Found], contender: str) -> list[float]:
    """Events a second, round by round."""
    runs = [found["runs"][contender] for found in rounds]
    return [run["events"] / run["seconds"] for run in runs]


def ratios(rounds: Sequence[Found], other: str, of: str = OURS) -> list[float]:
    """Our rate, or that of a third, by another's, round by round."""
    pairs = zip(rates(rounds, of), rates(rounds, other), strict=True)
    return [one / theirs for one, theirs in pairs]


def cpu_us(rounds: Sequence[Found], contender: str) -> float:
    """Microseconds of processor an event that the contender itself took; the median."""
    runs = [found["runs"][contender] for found in rounds]
    return float(statistics.median(1e6 * run["cpu_s"] / run["events"] for run in runs))


def broker_us(rounds: Sequence[Found], contender: str) -> float | None:
    """Microseconds of processor that the broker took for an event of a contender's; the median, where it was seen."""
    runs = [found["runs"][contender] for found in rounds]
    seen = [run for run in runs if run.get("broker_cpu_s") is not None]
    if not seen:
        return None
    return float(statistics.median(1e6 * run["broker_cpu_s"] / run["events"] for run in seen))


def rss_bytes(rounds: Sequence[Found], contender: str) -> int:
    """Memory, at most, in any round."""
    return int(max(found["runs"][contender]["rss_bytes"] for found in rounds))


def targets(rounds: Sequence[Found]) -> list[dict[str, Any]]:
    """What the base case is to reach, what it reached, and whether that is enough."""
    filters = max(found["runs"][OURS]["filter_bytes"] for found in rounds)
    beside = rss_bytes(rounds, OURS) - filters
    judged = [
        _target(f"rate, as a ratio to the {name}", f"at least {least:g}", ratio, ratio >= least)
        for name, least, ratio in (
            ("plain aiokafka copy", RATIO_MIN[COPY], statistics.median(ratios(rounds, COPY))),
            ("loop by hand", RATIO_MIN[LOOP], statistics.median(ratios(rounds, LOOP))),
        )
    ]
    rate, cpu = statistics.median(rates(rounds, OURS)), cpu_us(rounds, OURS)
    return [
        _target(
            "thousand events a second",
            f"at least {RATE_MIN / 1000:,.0f}",
            rate / 1000,
            rate >= RATE_MIN,
        ),
        *judged,
        _target("processor an event, µs", f"at most {CPU_US_MAX:g}", cpu, cpu <= CPU_US_MAX),
        _target(
            "resident memory beside the filters, MB",
            f"at most {RSS_BYTES_MAX / 1e6:g}",
            beside / 1e6,
            beside <= RSS_BYTES_MAX,
        ),
    ]


def large_target(rounds: Sequence[Found]) -> dict[str, Any]:
    """What the case with events of 1,000 bytes is to reach."""
    ratio = statistics.median(ratios(rounds, COPY))
    claim = "rate with events of 1,000 bytes, as a ratio to the plain aiokafka copy"
    return _target(claim, f"at least {LARGE_RATIO_MIN:g}", ratio, ratio >= LARGE_RATIO_MIN)


def repartition_ratios(rounds: Sequence[Found]) -> list[dict[str, Any]]:
    """What `source.repartition` is to reach, and what its second stage loses, for which nothing is wanted."""
    told = []
    for claim, name, other, least in REPARTITION:
        each = ratios(rounds, other, name)
        ratio = statistics.median(each)
        wanted = "" if least is None else f"at least {least:g}"
        target = _target(claim, wanted, ratio, least is None or ratio >= least)
        told.append({**target, "rounds": [round(one, 2) for one in each]})
    return told


def streams_target(cells: Found) -> dict[str, Any] | None:
    """The ratio to Kafka Streams with the faster of its stores; None where one of them was not measured."""
    rounds = [cells.get(f"peers/{name}", {}).get("rounds") for name in STREAMS]
    if not all(rounds):
        return None
    ratio = min(
        statistics.median(ratios(found, name)) for name, found in zip(STREAMS, rounds, strict=True)
    )
    met = ratio >= STREAMS_RATIO_MIN
    return _target(STREAMS_CLAIM, f"at least {STREAMS_RATIO_MIN:g}", ratio, met)


def _target(claim: str, wanted: str, measured: float, met: bool) -> dict[str, Any]:
    return {"claim": claim, "wanted": wanted, "measured": round(measured, 2), "met": met}
