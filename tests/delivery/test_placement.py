"""Claims about the second stage of a repartition: it reads our own copies, each where its key belongs, or stops.

A copy is judged and emitted as it lay in the input, and everything that names it names its place there.
"""

from pathlib import Path
from typing import Any

import pytest
from aiokafka.partitioner import murmur2
from typing_extensions import override

from streamdedup.delivery.consume import UNREADABLE_TRIES
from streamdedup.delivery.middle import REMEDY
from streamdedup.events import Headers
from streamdedup.kafka.options import MARK
from streamdedup.kafka.records.origin_header import ORIGIN
from streamdedup.kafka.records.records import Record
from streamdedup.repartition.middle import settings_for
from tests import memory
from tests.delivery.test_damaged import REASON, Damaged
from tests.lists.files import list_file
from tests.local import LocalWorker, Start
from tests.memory import over

N = 3
OWN: Headers = (("trace", b"1"), ("empty", None), (ORIGIN, b"other/0/0/group"))


def home(key: bytes) -> int:
    """Where a client of Kafka puts `key`."""
    return int(murmur2(key) & 0x7FFFFFFF) % N


def keys_in(partition: int, count: int, start: int = 0) -> list[bytes]:
    """Keys that belong in `partition`."""
    found = (b"user%d@example.com" % number for number in range(start, 1_000_000))
    chosen = (key for key in found if home(key) == partition)
    return [next(chosen) for _ in range(count)]


class Stage(memory.Stage):
    """A second stage, and what would be the work of the first."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start, N)
        self.middle = "clicks-by-key"
        self.config["source"]["repartition"] = {"topic": self.middle, "partitions": N}
        settings = settings_for(self.broker.topics[self.source].topic)
        self.broker.create_topic(
            self.middle, N, **{name.replace(".", "_"): value for name, value in settings.items()}
        )
        self.copied = 0

    @override
    def start(self, **options: Any) -> LocalWorker:
        """Start a worker that is the second stage alone."""
        return super().start(copies=False, **options)

    def origin(self, offset: int, partition: int = 7) -> bytes:
        """What the first stage says of an event."""
        return b"%b/%d/%d/%b" % (
            self.source.encode(),
            partition,
            offset,
            self.deployment.group.encode(),
        )

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        """Append one event; return its offset."""
        log = self.broker.log(topic, partition)
        log.append([Record.of(self.broker.now_ms(), key, value, headers)])
        return log.end - 1

    def copy(self, key: bytes | None, *, into: int | None = None, own: Headers = ()) -> int:
        """Copy one event as the first stage does; the input has them all in one partition, from offset 1000 on."""
        offset = 1000 + self.copied
        self.copied += 1
        partition = home(key or b"") if into is None else into
        headers = (*own, (ORIGIN, self.origin(offset)))
        return self.append(self.middle, partition, key, b"value", headers)

    def places(self) -> dict[int, int]:
        """The group's offsets on the middle topic."""
        return self.broker.committed(self.deployment.group, self.middle)

    async def until_judged(self, worker: LocalWorker) -> None:
        """Wait until the whole middle topic is committed."""
        ends = [log.end for log in self.broker.topics[self.middle].logs]
        wanted = {partition: end for partition, end in enumerate(ends) if end}
        await worker.until(lambda: wanted.items() <= self.places().items(), f"commit of {ends}")

    def emitted(self) -> list[list[bytes | None]]:
        """The keys in each partition of the output."""
        return [[event.key for event in log] for log in self.broker.read_all(self.sink)]


@over(Stage)
async def test_copies_are_judged_and_emitted_as_they_lay_in_the_input(stage: Stage) -> None:
    """Only our origin comes off: an event's own headers stay, one of the same name, too."""
    keys = [key for partition in range(N) for key in keys_in(partition, 4)]
    for key in [*keys, *keys]:
        stage.copy(key, own=OWN)
    async with stage.start() as worker:
        await stage.until_judged(worker)
    assert stage.emitted() == [keys_in(partition, 4) for partition in range(N)]
    for log in stage.broker.read_all(stage.sink):
        assert all((e.value, tuple(e.headers)) == (b"value", OWN) for e in log)
    async with stage.start() as worker:  # the fold finds every event where it belongs
        stage.copy(keys[0])
        stage.copy(new := keys_in(0, 1, start=1000)[0])
        await stage.until_judged(worker)
        assert worker.lines("shard_stopped") == []
    assert stage.emitted()[0] == [*keys_in(0, 4), new]


KINDS = (
    "no header",
    "another header",
    "an origin that is not the last",
    "another group",
    "a longer group",
    "a tampered offset",
    "null",
)


def strange_headers(stage: Stage) -> dict[str, tuple[Headers, str]]:
    """The headers of an event that we did not copy, and what is said of them."""
    ours = (ORIGIN, stage.origin(5))
    nothing, no_place = f"no header {ORIGIN} at the end", f"a header {ORIGIN} that names no place"
    group = stage.deployment.group
    return {
        "no header": ((), nothing),
        "another header": ((("trace", b"1"),), nothing),
        "an origin that is not the last": ((ours, ("trace", b"1")), nothing),
        "another group": (((ORIGIN, b"clicks/0/5/other"),), "the origin of group 'other'"),
        "a longer group": (((ORIGIN, stage.origin(5) + b"s"),), f"the origin of group '{group}s'"),
        "a tampered offset": (((ORIGIN, b"clicks/0/-5/" + group.encode()),), no_place),
        "null": (((ORIGIN, None),), no_place),
    }


@pytest.mark.finding("middle-stranger")
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.rule(24)
@over(Stage)
async def test_an_event_of_a_stranger_stops_the_shard(stage: Stage, kind: str, before: int) -> None:
    """By name, before that event: all before it is committed, and nothing after it is read."""
    headers, found = strange_headers(stage)[kind]
    keys = keys_in(1, before + 2)
    for key in keys[:before]:
        stage.copy(key)
    stage.append(stage.middle, 1, keys[-2], b"secret", headers)
    stage.copy(keys[-1])
    async with stage.start() as worker:
        said = await worker.stopped()
        await worker.until(lambda: stage.places().get(1, 0) == before, "commit before it")
    assert said.startswith(
        f"{stage.middle}/1 offset {before} is no copy of this deployment: it has {found}"
    )
    assert said.endswith(REMEDY)
    assert f"keep other writers off {stage.middle}" in said
    assert stage.deployment.group in said
    assert not any(key.decode() in said for key in keys)
    assert stage.emitted()[1] == keys[:before]


@pytest.mark.finding("key-misplaced")
@pytest.mark.rule(20)
@over(Stage)
async def test_a_misplaced_event_stops_the_shard(stage: Stage) -> None:
    """It is named by its places in the middle and in the input, with the partition where it belongs; not by its key."""
    (key,) = keys_in(2, 1)
    stage.copy(keys_in(1, 1)[0])
    stage.copy(key, into=1)
    async with stage.start() as worker:
        said = await worker.stopped()
    assert said == (
        f"{stage.middle}/1 offset 1, a copy of {stage.source}/7 offset 1001, belongs by its key in"
        f" {stage.middle}/2 (source.repartition.partitions: {N}); keep other writers off {stage.middle}, and"
        f" {REMEDY}"
    )
    assert key not in stage.emitted()[1]


@pytest.mark.parametrize("shadow", [False, True])
@pytest.mark.rule(20)
@over(Stage)
async def test_a_misplaced_event_of_the_output_stops_the_fold(stage: Stage, shadow: bool) -> None:
    """Whoever wrote it: its duplicates would pass, because they lie in another partition."""
    output = stage.sink
    stage.config["sink"]["shadow"] = shadow
    headers: Headers = ((MARK, b"duplicate"),) if shadow else ()
    stage.append(output, 1, keys_in(1, 1)[0], b"v", ())
    (key,) = keys_in(0, 1)
    stage.append(output, 1, key, b"v", headers)
    async with stage.start() as worker:
        said = await worker.stopped()
    assert said.startswith(
        f"{output}/1 offset 1 belongs by its key in {output}/0 (source.repartition.partitions: {N}), so it does"
        f" not come from {stage.middle}"
    )
    assert said.endswith(REMEDY)
    assert key.decode() not in said


@pytest.mark.rule(24)
@pytest.mark.parametrize("named", [False, True])
@over(Stage)
async def test_letters_name_the_event_by_its_place_in_the_input(
    stage: Stage, tmp_path: Path, named: bool
) -> None:
    """Dead letters and those of blocked events, from whatever topic of the input. Duplicates do so if asked to."""
    stage.config["sink"]["duplicates_headers"] = named
    for leaf in ("dead_letter_topic", "blocked_topic", "duplicates_topic"):
        stage.side_topic(leaf)
    stage.config["key"]["on_malformed"] = "dead_letter"
    blocked, twice = keys_in(1, 2)
    there = str(list_file(tmp_path / "block.list", [blocked]))
    stage.config["blocklist"] = {"file": there, "on_positive": "drop"}
    group = stage.deployment.group.encode()
    events = [
        (None, b"clicks/4/17/"),
        (blocked, b"views/0/9223372036854775807/"),
        (None, b"views/2147483647/0/"),
        (twice, b"clicks/4/18/"),
        (twice, b"clicks/4/19/"),
    ]
    for key, place in events:
        stage.append(stage.middle, 1, key, b"v", (("h", b"1"), (ORIGIN, place + group)))
    async with stage.start() as worker:
        await stage.until_judged(worker)
        (line,) = worker.lines("malformed")
    assert (line["topic"], line["partition"], line["offset"]) == ("clicks", 4, 17)
    placed = ("topic", "partition", "offset")
    for topic, wanted in (
        ("dead_letter_topic", [(b"clicks", b"4", b"17"), (b"views", b"2147483647", b"0")]),
        ("blocked_topic", [(b"views", b"0", b"9223372036854775807")]),
    ):
        letters = [dict(letter.headers) for letter in stage.broker.read_all(topic)[1]]
        assert [tuple(h[f"streamdedup.{n}"] for n in placed) for h in letters] == wanted
        assert all(h["h"] == b"1" and ORIGIN not in h for h in letters)
        assert all((h["streamdedup.timestamp"] or b"").isdigit() for h in letters)
        assert all(int(h["streamdedup.timestamp"] or b"") > 0 for h in letters)
    assert "streamdedup.reason" in dict(stage.broker.read_all("dead_letter_topic")[1][0].headers)
    (again,) = stage.broker.read_all("duplicates_topic")[1]
    headers = dict(again.headers)
    assert (again.key, headers.pop("h")) == (twice, b"1")
    assert (headers.pop("streamdedup.timestamp", b"1") or b"").isdigit()
    at = zip(placed, (b"clicks", b"4", b"19"), strict=True)
    assert headers == {f"streamdedup.{name}": value for name, value in at if named}
    assert stage.emitted()[1] == [twice]


@pytest.mark.finding("headers-exceeded")
@over(Stage)
async def test_a_rejected_event_is_named_by_its_place_in_the_input(stage: Stage) -> None:
    """And the limits hold for the headers of the event itself: ours is no longer there."""
    stage.config["source"]["headers_max"] = 2
    stage.copy(keys_in(0, 1)[0], own=(("a", b""), ("b", b"")))
    stage.copy(keys_in(1, 1)[0], own=(("a", b""), ("b", b""), ("c", b"")))
    async with stage.start() as worker:
        said = await worker.stopped()
        await worker.until(lambda: stage.emitted()[0], "event of two headers")
    assert said.startswith(f"{stage.source}/7 offset 1001 is above source.headers_max")


@over(Stage)
async def test_nothing_of_the_middle_topic_is_skipped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `source.on_damaged` says of the input: what is damaged here are copies of ours."""
    damaged = Damaged(monkeypatch, goes_on=False)
    stage.config["source"]["on_damaged"] = "skip"
    (key,) = keys_in(0, 1)
    for _ in range(4):
        stage.copy(key)
    damaged.add(2, 2)
    async with stage.start() as worker:
        said = await worker.stopped()
        assert len(worker.lines("doubt")) == UNREADABLE_TRIES + 1
        assert worker.lines("batch_skipped") == []
    assert said == (
        f"{stage.middle}/0 offset 2 cannot be read: {REASON}; {stage.middle} holds this deployment's own copies, of"
        f" which none is skipped: {REMEDY}"
    )
    assert stage.places()[0] == 2
