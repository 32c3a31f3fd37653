"""What is read off rounds: rates, ratios round by round, medians, and whether targets are met."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench import harness
from bench.harness import Found, target
from bench.worker.contenders import BOTH, COPY, LOOP, OURS, SECOND, STAGE

PACKAGES = ("aiokafka", "confluent-kafka", "numba", "numpy", "orjson")
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


def circumstances(broker: str) -> dict[str, Any]:
    """What figures depend on: the day, the machine, versions, the code."""
    return {
        "measured": harness.today(),
        "machine": harness.machine(PACKAGES),
        "load_before": harness.load(),
        "broker": broker,
        "commit": harness.commit(),
    }


def runs(rounds: Sequence[Found], contender: str) -> list[Found]:
    """Those of one contender, round by round."""
    return [found["runs"][contender] for found in rounds]


def rates(rounds: Sequence[Found], contender: str) -> list[float]:
    """Events a second, round by round."""
    return [run["events"] / run["seconds"] for run in runs(rounds, contender)]


def rate(rounds: Sequence[Found], contender: str) -> float:
    """Events a second; the median."""
    return median(rates(rounds, contender))


def ratios(rounds: Sequence[Found], other: str, of: str = OURS) -> list[float]:
    """Our rate, or that of a third, by another's, round by round."""
    pairs = zip(rates(rounds, of), rates(rounds, other), strict=True)
    return [one / theirs for one, theirs in pairs]


def cpu_us(rounds: Sequence[Found], contender: str) -> float:
    """Microseconds of processor an event that the contender itself took; the median."""
    return float(median(1e6 * run["cpu_s"] / run["events"] for run in runs(rounds, contender)))


def broker_us(rounds: Sequence[Found], contender: str) -> float | None:
    """Microseconds of processor that the broker took for an event of a contender's; the median, where it was seen."""
    seen = [run for run in runs(rounds, contender) if run.get("broker_cpu_s") is not None]
    return median(1e6 * run["broker_cpu_s"] / run["events"] for run in seen) if seen else None


def rss_bytes(rounds: Sequence[Found], contender: str) -> int:
    """Memory, at most, in any round."""
    return int(max(run["rss_bytes"] for run in runs(rounds, contender)))


def filter_bytes(rounds: Sequence[Found]) -> int:
    """The memory of our filters."""
    return int(max(run["filter_bytes"] for run in runs(rounds, OURS)))


def other_load(rounds: Sequence[Found], unknown: str) -> str:
    """What others took of the machine, at most in any round; `unknown` where that was not seen."""
    loads = [found["other_load"] for found in rounds]
    return unknown if None in loads else f"{max(loads):.1%}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, and each."""
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"**{median(values):.{digits}f}** ({each})"


def targets(rounds: Sequence[Found]) -> list[dict[str, Any]]:
    """What the base case is to reach, what it reached, and whether that is enough."""
    beside = rss_bytes(rounds, OURS) - filter_bytes(rounds)
    copy, loop = (median(ratios(rounds, name)) for name in (COPY, LOOP))
    return [
        target("thousand events a second", rate(rounds, OURS) / 1000, least=RATE_MIN / 1000),
        target("rate, as a ratio to the plain aiokafka copy", copy, least=RATIO_MIN[COPY]),
        target("rate, as a ratio to the loop by hand", loop, least=RATIO_MIN[LOOP]),
        target("processor an event, µs", cpu_us(rounds, OURS), most=CPU_US_MAX),
        target("resident memory beside the filters, MB", beside / 1e6, most=RSS_BYTES_MAX / 1e6),
    ]


def large_target(rounds: Sequence[Found]) -> dict[str, Any]:
    """What the case with events of 1,000 bytes is to reach."""
    claim = "rate with events of 1,000 bytes, as a ratio to the plain aiokafka copy"
    return target(claim, median(ratios(rounds, COPY)), least=LARGE_RATIO_MIN)


def repartition_ratios(rounds: Sequence[Found]) -> list[dict[str, Any]]:
    """What `source.repartition` is to reach, and what its second stage loses, for which nothing is wanted."""
    told = []
    for claim, name, other, least in REPARTITION:
        each = ratios(rounds, other, name)
        every = {"rounds": [round(one, 2) for one in each]}
        told.append(target(claim, median(each), least=least) | every)
    return told


def streams_target(cells: Found) -> dict[str, Any] | None:
    """The ratio to Kafka Streams with the faster of its stores; None where one of them was not measured."""
    rounds = [cells.get(f"peers/{name}", {}).get("rounds") for name in STREAMS]
    if not all(rounds):
        return None
    each = (median(ratios(found, name)) for name, found in zip(STREAMS, rounds, strict=True))
    return target(STREAMS_CLAIM, min(each), least=STREAMS_RATIO_MIN)
