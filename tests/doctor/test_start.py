"""What a worker says at its start of what doctor looks at."""

import time
from dataclasses import replace
from pathlib import Path

from structlog.testing import capture_logs

from streamdedup.doctor.examine import CHECKS, log_at_start
from streamdedup.kafka.topics import Topic, Topology
from streamdedup.testing import MemoryBroker, connected_to
from tests.doctor.stage import Stage
from tests.local import Start
from tests.memory import over

TAKES_S_MAX = 0.1  # on a quiet machine, as promised; a busy one gets ten times that
BUSY = 10


async def said_of(stage: Stage, topology: Topology) -> tuple[dict[str, object], float]:
    """The line, and how long it took."""
    with capture_logs() as lines:
        began = time.perf_counter()
        await log_at_start(stage.settings, topology, connected_to(stage.broker))
    (line,) = lines
    return dict(line), time.perf_counter() - began


def topology_of(broker: MemoryBroker) -> Topology:
    """The topics as the broker has them."""
    return Topology("memory", {name: each.topic for name, each in broker.topics.items()})


async def test_one_line_says_what_is_wrong(tmp_path: Path) -> None:
    """By the texts of doctor; without a question to a broker, and soon."""
    stage = Stage(tmp_path)
    stage.topic(stage.sink, settings={"max.message.bytes": "1000"})
    line, seconds = await said_of(stage, topology_of(stage.broker))
    assert (line["event"], line["log_level"]) == ("start_checked", "warning")
    assert f"warning  topic-sizes: {stage.sink}: max.message.bytes=1000" in str(line["warning"])
    assert seconds < BUSY * TAKES_S_MAX


async def test_what_a_start_will_make_is_no_fault(tmp_path: Path) -> None:
    """A topic that is not there yet has no settings, and nobody hides them."""
    stage = Stage(tmp_path)
    stage.config["sink"]["create_topics"] = True
    known = topology_of(stage.broker)
    planned = Topic(stage.sink, None, 2, 1)
    line, _ = await said_of(stage, replace(known, topics={**known.topics, stage.sink: planned}))
    assert line["log_level"] == "info"
    assert "unknown" not in line


class Started:
    """A worker in memory."""

    def __init__(self, directory: Path, start: Start) -> None:
        self.stage, self.start = Stage(directory), start


@over(Started)
async def test_what_has_a_line_of_its_own_is_not_said_twice(started: Started) -> None:
    """The line of the start names it, and leaves reason and remedy to it."""
    stage = started.stage
    stage.config["filter"] = {"kind": "window", "capacity": 1000, "retention": "7d"}
    short = {"retention.ms": "1000", "message.timestamp.after.max.ms": str(1 << 62)}
    stage.topic(stage.sink, settings=short)
    async with started.start(stage.there, connect=connected_to(stage.broker)) as worker:
        await worker.live()
    (line,) = worker.lines("start_checked")
    logged = [check.logged for check in CHECKS if check.logged]
    assert line["warning"] == [
        f"warning  topic-retention [output-forgets-first]: see the line `{logged[0]}`",
        f"warning  topic-timestamps: {stage.sink}: see the line `{logged[1]}`",
    ]
    assert [len(worker.lines(name)) for name in logged] == [1, 1]


@over(Started)
async def test_a_worker_says_so_once(started: Started) -> None:
    """Before it joins its group."""
    connect = connected_to(started.stage.broker)
    async with started.start(started.stage.there, connect=connect) as worker:
        await worker.live()
    names = [line["event"] for line in worker.lines()]
    assert names.count("start_checked") == 1
    assert names.index("start_checked") < names.index("joining")
