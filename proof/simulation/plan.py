"""What a seed stands for: the stream, the settings, how slow and lossy the network is, and which faults there are."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from streamdedup.testing import Chances

FAULTS = (
    "kill",
    "pause",
    "drain",
    "power",
    "away",
    "loading",
    "disk error",
    "disk crash",
    "offsets back",
    "group deleted",
    "snapshots deleted",
    "output trimmed",
    "input made again",
    "foreign",
)
RARE = ("offsets back", "group deleted", "input made again")  # after these, less is promised
KINDS = ("bloom", "bloom", "cuckoo", "exact", "exact", "window", "window")
FILTER: Mapping[str, Any] = {"capacity": 1000, "error_rate": 1e-9}
RETENTION_MS = 20_000  # of a window
FEW = 4  # of a window that soon grows
OFTEN = {"foreign": 0.2, **dict.fromkeys(RARE, 0.15)}  # the share of seeds that have it; else 0.4
LISTED = frozenset(b"key-%d" % number for number in range(0, 40, 3))
SECOND_WRITER, LEFT_OPEN = "has a second writer", "a transaction that is not ours is open"
GROUP, MIDDLE, PLACES = "group", "middle", 3
STAGED_FAULTS = (
    "kill",
    "kill",
    "pause",
    "drain",
    "power",
    "away",
    "loading",
    "disk error",
    "disk crash",
    "snapshots deleted",
    "first offsets back",
    "second offsets back",
    "first group deleted",
    "second group deleted",
    "middle deleted",
    "middle trimmed",
    "input grown",
)
BOTH, COPIES, JUDGES = "both", "repartition", "deduplicate"
STAGES = ((BOTH,), (BOTH, BOTH), (COPIES, JUDGES), (BOTH, COPIES, JUDGES))
CALM = 0.05  # the share of seeds without any fault


@dataclass(frozen=True)
class Plan:
    """Drawn once. Times are seconds; `unjudged` is the chance of an event without a value beside one with one.

    `lingers` is the chance that a call to a disk takes up to `linger_s_max`, while everything else goes on. `static`:
    each machine has a name in the group. `sides`: there are topics for what does not pass, and events for all of them.
    `listed`: there is a block list, of the keys of which `is_listed`. `shadowed`: workers start in shadow mode or not,
    as it comes, and some events bring a mark along.
    """

    partitions: int
    keys: int
    events: int
    workers_max: int
    unjudged: float
    steps: int
    step_s_max: float
    faults: tuple[str, ...]
    chances: Chances
    fetch_events_max: int
    lingers: float
    linger_s_max: float
    static: bool
    sides: bool
    settings: dict[str, dict[str, Any]]
    listed: bool = False
    shadowed: bool = False
    stages: tuple[str, ...] = ()
    """With `source.repartition`: what each machine runs."""

    @property
    def feed_s(self) -> float:
        """For how long events come: about as long as faults do."""
        return 0.3 + 0.6 * self.steps * self.step_s_max

    @property
    def stops(self) -> tuple[str, ...]:
        """What a shard may stop for, in words of its message."""
        return (SECOND_WRITER, LEFT_OPEN) if "foreign" in self.faults else ()

    @property
    def windowed(self) -> bool:
        """Whether keys are forgotten by the events' times."""
        return bool(self.settings["filter"]["kind"] == "window")

    @property
    def untimed(self) -> bool:
        """Whether some events have no timestamp. Over a gap, a fold knows less of their times than the oracle."""
        return self.windowed and "output trimmed" not in self.faults

    @property
    def remembers(self) -> bool:
        """Whether there is a filter: else every key passes as often as it comes."""
        return bool(self.settings["filter"]["kind"] != "none")

    def is_listed(self, key: bytes | None) -> bool:
        """Whether the block list has it."""
        return self.listed and key is not None and key in LISTED

    @property
    def exactly_once(self) -> bool:
        """Whether the output must hold every key once, whatever happens."""
        return bool(self.settings["delivery"]["guarantee"] == "exactly_once")


def drawn(chance: Random) -> Plan:
    """Not every fault is there in every seed, so that meetings of few are tried, too."""
    calm = chance.random() < CALM
    faults = tuple(f for f in FAULTS if chance.random() < OFTEN.get(f, 0.4))
    partitions, keys = chance.choice((1, 1, 2, 3)), chance.randint(8, 40)
    return Plan(
        partitions=partitions,
        keys=keys,
        events=chance.randint(keys, 2 * keys),
        unjudged=chance.choice((0.05, 0.5)),
        workers_max=chance.choice((1, 1, 2, 2, 2, 3, 4)),
        steps=chance.randint(2, 6),
        step_s_max=chance.choice((0.1, 0.3, 0.8)),
        faults=() if calm else faults,
        chances=Chances() if calm else _chances(chance),
        fetch_events_max=chance.choice((2, 7, 1000)),
        lingers=chance.choice((0.0, 0.1, 0.5)),
        linger_s_max=chance.choice((0.02, 0.1, 0.3)),
        static=chance.random() < 0.3,
        sides=(sides := chance.random() < 0.4),
        settings=_settings(chance, faults, sides=sides),
    )


def listed(plan: Plan) -> Plan:
    """The same with a block list, and a topic for what it blocks where there are others of that sort."""
    blocked = {"blocked_topic": "blocked"} if plan.sides else {}
    sink = plan.settings["sink"] | blocked
    return replace(plan, listed=True, settings={**plan.settings, "sink": sink})


def shadowed(plan: Plan) -> Plan:
    """The same with a block list, and with workers of which some are in shadow mode."""
    return replace(listed(plan), shadowed=True)


def screening(plan: Plan) -> Plan:
    """The same with a block list, and without a filter."""
    only = listed(plan)
    sink = {name: of for name, of in only.settings["sink"].items() if name != "duplicates_topic"}
    return replace(only, settings={**only.settings, "filter": {"kind": "none"}, "sink": sink})


def repartitioned(plan: Plan) -> Plan:
    """The same with events of a key in any partitions, and `source.repartition`; no window, no side topics."""
    chance, settings = Random(f"{plan}"), plan.settings
    stages = chance.choice(STAGES)
    middle = {"topic": MIDDLE, "partitions": PLACES, "unread_max": chance.choice((5, 10_000))}
    filter_ = {**FILTER, "kind": chance.choice([kind for kind in KINDS if kind != "window"])}
    faults = tuple(fault for fault in STAGED_FAULTS if chance.random() < 0.4)
    return replace(
        plan,
        partitions=chance.choice((1, 2, 3)),
        workers_max=len(stages),
        stages=stages,
        sides=False,
        faults=faults if plan.faults else (),
        settings={
            **settings,
            "source": {"topic": "in", "repartition": middle},
            "filter": filter_,
            "sink": {"topic": "out"},
        },
    )


def _chances(chance: Random) -> Chances:
    return Chances(
        latency_s_max=chance.choice((0.001, 0.01, 0.03)),
        marker_s_max=chance.choice((0.001, 0.03, 0.2)),
        slow=chance.choice((0, 0, 0.01, 0.05)),
        request_lost=chance.choice((0, 0, 0.01, 0.03)),
        answer_lost=chance.choice((0, 0, 0.01, 0.03)),
        repeated=chance.choice((0, 0, 0.05)),
    )


def _filter(chance: Random, faults: tuple[str, ...]) -> dict[str, Any]:
    # A window's time may miss another's event for a moment, so what it should hold is not told by the output alone.
    kinds = KINDS[:5] if "foreign" in faults else KINDS
    sized: dict[str, Any] = {**FILTER, "kind": chance.choice(kinds)}
    if sized["kind"] != "window":
        return sized
    # Over a gap, a fold begins with the time of its end, and its events take that further, jump by jump.
    jumps = chance.random() < 0.5 and "output trimmed" not in faults
    generations = chance.choice((2, 4, 8))
    small = {} if generations == 8 else {"capacity": FEW}
    return {
        **sized,
        **small,
        "retention": f"{RETENTION_MS}ms",
        "generations": generations,
        "late": chance.choice(("pass", "pass", "drop")),
        **({"max_jump": f"{RETENTION_MS // 4}ms"} if jumps else {}),
    }


def _settings(chance: Random, faults: tuple[str, ...], *, sides: bool) -> dict[str, dict[str, Any]]:
    once = chance.random() < 0.85
    return {
        "kafka": {
            "bootstrap_servers": "memory:1",
            "group_id": GROUP,
            "consumer": {"session_timeout_ms": 600, "heartbeat_interval_ms": 100},
            "producer": {"request_timeout_ms": 1500, "transaction_timeout_ms": 2000},
        },
        "source": {
            "topic": "in",
            "on_gap": "skip" if "input made again" in faults else "stop",
        },
        "key": {"from": "key"},
        "filter": _filter(chance, faults),
        "sink": {
            "topic": "out",
            "on_gap": "accept" if "output trimmed" in faults else "stop",
            **({"duplicates_topic": "duplicates", "dead_letter_topic": "dead"} if sides else {}),
        },
        "delivery": {
            "guarantee": "exactly_once" if once else "at_least_once",
            "commit_interval_ms": chance.choice((1, 20, 100)),
            "batch_events_max": chance.choice((1, 5, 5, 20, 20, 1000)),
            "max_in_flight": chance.choice((1, 2, 3)),
            "drain_s": chance.choice((1.0, 4.0)),
            "open_transaction_s": chance.choice((1.0, 3.0, 60.0)),
        },
        "snapshot": {"interval_s": chance.choice((0.2, 0.5, 1.0)), "keep": chance.choice((1, 3))},
    }


@dataclass(frozen=True)
class Seeds:
    """One sort of plan: `changed` makes it of the plan that a seed draws; `promised` seeds are kept green.

    `make test-all` plays the first of each sort, the command all others.
    """

    changed: Callable[[Plan], Plan]
    promised: int
    in_tests: int


SORTS: Mapping[str, Seeds] = {
    "drawn": Seeds(lambda plan: plan, promised=2_000, in_tests=50),
    "listed": Seeds(listed, promised=200, in_tests=25),
    "screening": Seeds(screening, promised=200, in_tests=25),
    "shadowed": Seeds(shadowed, promised=200, in_tests=25),
    "repartitioned": Seeds(repartitioned, promised=200, in_tests=25),
}


def left_by_tests() -> Iterator[tuple[str, int]]:
    """Yield the sort and the number of every promised seed that `make test-all` does not play."""
    for name, seeds in SORTS.items():
        for seed in range(seeds.in_tests, seeds.promised):
            yield name, seed
