"""Claims about workers whose values have schemas; over a broker in memory, and a registry that is played."""

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from streamdedup.commands.doctor import doctor
from streamdedup.commands.trial import tried
from streamdedup.doctor.lines import Status
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.keys.formats.schema import Schema
from streamdedup.registry import registry
from streamdedup.registry.client import RegistryAwayError
from streamdedup.registry.registry import ASK_AGAIN_S
from streamdedup.registry.unknown import UNKNOWN_S
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load
from streamdedup.testing import connected_to
from tests import memory
from tests.keys.avro import framed, record, written
from tests.local import Start
from tests.memory import over
from tests.registry.stand_ins import PlayedClient, avro

VERSIONS: Mapping[int, list[tuple[str, Any]]] = {
    1: [("id", "string")],
    2: [("added", "long"), ("id", "string")],
    3: [("id", ["null", "string"]), ("added", "long")],
}


class Played:
    """The client that workers and commands ask: that of the stage."""

    client: PlayedClient | None = None


PLAYED = Played()


def value(number: int, key: str) -> bytes:
    """Return an event of that version of the schema."""
    key_of = (lambda: ("string", key)) if number == 3 else (lambda: key)
    fields = record(*VERSIONS[number], name="Event")
    return framed(number, written(fields, {"id": key_of(), "added": 5}))


class Stage(memory.Stage):
    """A broker in memory with one partition, a played registry, and workers."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start)
        self.config["key"] = {"format": "avro", "field": "id"}
        self.config["kafka"]["schema_registry"] = {"url": "http://registry.example"}
        self.letters = self.side_topic("dead_letter_topic")
        self.client = PlayedClient({each: avro(*fields) for each, fields in VERSIONS.items()})
        PLAYED.client = self.client

    def write(self, *values: bytes | None) -> None:
        """Append events to the input."""
        self.broker.produce(self.source, [(0, None, each) for each in values])

    def emit(self, *values: bytes | None) -> None:
        """Append events to the output, as a worker of long ago."""
        self.broker.produce(self.sink, [(0, None, each) for each in values])

    @property
    def values(self) -> list[bytes | None]:
        """The values of the output."""
        return [event.value for event in self.output]

    def reasons(self) -> list[str]:
        """The reasons of the dead letters."""
        letters = self.broker.read_all(self.letters)[0]
        return [(dict(each.headers)["streamdedup.reason"] or b"").decode() for each in letters]

    def forget_cache(self) -> None:
        """Delete the schemas on disk."""
        for file in self.deployment.directory.glob("snapshots/%schemas/*/*"):
            file.unlink()


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers and commands ask the client of the stage, of which none is left after the test."""
    monkeypatch.setattr(PLAYED, "client", None)
    monkeypatch.setattr(registry, "Client", lambda _: PLAYED.client)


def events_of(keys: Iterable[str]) -> list[bytes]:
    """Return an event of each version, and one in JSON, for each key."""
    return [
        each
        for key in keys
        for each in (*(value(number, key) for number in VERSIONS), json.dumps({"id": key}).encode())
    ]


@over(Stage)
async def test_a_wrong_field_is_answered_with_those_of_the_schema(stage: Stage) -> None:
    """Each counts for the events of those versions that have it."""
    stage.config["key"]["field"] = "idd"
    stage.write(*(value(number, "a") for number in (1, 2, 2, 1, 1) * 3))
    found = await tried(load(stage.deployment.write_config()), 100, connected_to(stage.broker))
    assert found.fields == (["id", "added"], 0)
    assert "fields that a tenth of the events have: id, added\n" in found.as_text()


@over(Stage)
async def test_versions_and_json_are_one_key(stage: Stage) -> None:
    """Of all ways to write an event, the first passes; a fold of the output takes the same keys."""
    stage.write(*events_of("abc"))
    await stage.ended(12)
    assert stage.values == events_of("abc")[::4]
    assert sorted(stage.client.asked) == [1, 2, 3]
    stage.write(*reversed(events_of("abcd")))
    worker = await stage.ended(16)  # from the snapshot
    assert stage.values[3:] == [events_of("d")[3]]
    stage.deployment.delete_snapshots()
    stage.write(*events_of("abcd"))
    worker = await stage.ended(16)
    assert worker.lines("output_folded")[-1]["events"] == 4
    assert len(stage.values) == 4
    # At each start they are compared with those on disk, from which all else comes.
    assert sorted(stage.client.asked) == sorted([1, 2, 3] * 3)


RESTORED: Mapping[int, list[tuple[str, Any]]] = {
    1: [("added", "long"), ("id", "string")],
    2: [("id", "string")],
    3: [("id", "string"), ("added", "long"), ("more", "int")],
}


@pytest.mark.parametrize("numbers", [[1], [1, 2, 3]])
@over(Stage)
async def test_a_registry_that_gives_an_id_to_another_schema_stops_a_start(
    stage: Stage, numbers: list[int]
) -> None:
    """By name, although the disk has the schema: the events that come now are written by the other."""
    stage.write(*(value(number, "a") for number in numbers))
    await stage.ended(len(numbers))
    stage.client.schemas |= {each: avro(*RESTORED[each]) for each in numbers}
    stage.write(*(framed(number, b"\2\2b\2") for number in numbers))
    worker = stage.start()
    with pytest.raises(DeliveryError, match=f"the registry gives schema {numbers[-1]} to another"):
        await worker.live()
    assert len(stage.values) == 1


@pytest.mark.parametrize("lost", [{1}, {1, 2, 3}])
@over(Stage)
async def test_a_registry_that_lost_ids_or_spaces_them_otherwise_stops_nothing(
    stage: Stage, lost: set[int]
) -> None:
    """Nor does one that changed the white space. What it no longer has, the disk has."""
    stage.write(*events_of("a"))
    await stage.ended(4)
    for number, each in tuple(stage.client.schemas.items()):
        stage.client.schemas[number] = Schema("AVRO", each.text.replace(", ", ",\n  "))
    for number in lost:
        del stage.client.schemas[number]
    stage.write(*events_of("b"))
    await stage.ended(4)
    assert stage.values[1:] == events_of("b")[:1]


@over(Stage)
async def test_a_topic_that_moves_from_json_keeps_its_memory(stage: Stage) -> None:
    """The format is in the meaning, and in no identity: the snapshot is used, and nothing is warned of."""
    key, kafka = stage.config["key"], dict(stage.config["kafka"])
    stage.config["key"] = {"field": "id"}
    del stage.config["kafka"]["schema_registry"]
    stage.write(b'{"id":"a"}', b'{"id":"b"}')
    first = await stage.ended(2)
    stage.config["key"], stage.config["kafka"] = key, kafka
    stage.write(value(2, "b"), value(1, "c"))
    second = await stage.ended(2)
    assert stage.values[2:] == [value(1, "c")]
    assert second.lines("snapshot_loaded")
    assert second.lines("keys_changed") == second.lines("snapshot_refused") == []
    names = [each.lines("worker_starts")[0]["meaning"] for each in (first, second)]
    assert names[0] != names[1]


@over(Stage)
async def test_an_unknown_id_is_asked_for_again_then_rejected(stage: Stage) -> None:
    """For a minute; what came before it is committed meanwhile, and what comes after it passes later."""
    stage.write(value(1, "a"))
    async with stage.start() as worker:
        await worker.consumed(1)
        began_s = worker.task.get_loop().time()
        stage.write(value(1, "b"), framed(99, b"\2x"), value(1, "c"))
        await worker.consumed(4)
        assert UNKNOWN_S <= worker.task.get_loop().time() - began_s <= UNKNOWN_S + 30
        asked = stage.client.asked.count(99)
        assert asked > 5
        assert stage.values == [value(1, key) for key in "abc"]
        assert stage.reasons() == ["of schema 99, which the registry does not have"]
        stage.write(framed(99, b"\2x"))
        await worker.consumed(5)
        assert stage.client.asked.count(99) == asked  # not again so soon
        stage.client.schemas[99] = stage.client.schemas[1]
        assert len(worker.lines("schema_given_up")) == 1
        await asyncio.sleep(ASK_AGAIN_S)
        stage.write(framed(99, b"\2x"))
        await worker.consumed(6)
        assert stage.values[-1] == framed(99, b"\2x")


@over(Stage)
async def test_an_id_that_a_follower_has_later_is_waited_for(stage: Stage) -> None:
    """So nothing is rejected that was registered just before."""
    schema = stage.client.schemas.pop(1)
    stage.write(value(1, "a"))
    async with stage.start() as worker:
        await worker.logged("schema_unknown", 3)
        stage.client.schemas[1] = schema
        await worker.consumed(1)
    assert stage.values == [value(1, "a")]


OF_NOBODY = "offset 0 is of schema 99, which the registry does not have"
LOST = [None, value(1, "a"), framed(1, b"wrong")]


@pytest.mark.parametrize(
    ("on_malformed", "output", "said"),
    [
        ("dead_letter", [framed(99, b"\2x")], OF_NOBODY),
        pytest.param(
            "pass",
            [framed(99, b"\2x")],
            OF_NOBODY,
            marks=pytest.mark.finding("schema-unknown"),
        ),
        pytest.param(
            "dead_letter",
            LOST,
            "offset 2 has no key: the value does not fit schema 1",
            marks=pytest.mark.finding("output-without-key"),
        ),
        ("pass", LOST, None),
    ],
)
@over(Stage)
async def test_an_event_of_the_output_whose_key_is_not_found_stops_the_shard(
    stage: Stage, on_malformed: str, output: list[bytes | None], said: str | None
) -> None:
    """Duplicates of it would pass. Unless events pass without a key; tombstones always may."""
    stage.config["key"]["on_malformed"] = on_malformed
    stage.emit(*output)
    if said is None:
        await stage.started()
    else:
        assert said in await stage.start().stopped()


@pytest.mark.finding("schema-changed")
@over(Stage)
async def test_another_schema_under_an_id_stops_the_shard(stage: Stage) -> None:
    """It is another registry, whose ids mean something else; the snapshot remembers."""
    stage.write(value(1, "a"))
    await stage.ended(1)
    stage.forget_cache()
    stage.client.schemas[1] = avro(("other", "string"), ("id", "string"))
    stage.write(value(1, "b"))
    error = await stage.start().stopped()
    assert "schema 1 is another than it was when the snapshot was saved" in error
    assert len(stage.values) == 1


@pytest.mark.finding("registry-away")
@over(Stage)
async def test_a_registry_that_is_away_is_waited_for(stage: Stage) -> None:
    """Nothing is judged meanwhile, /readyz reports it, and nothing becomes a dead letter."""
    async with stage.start() as worker:
        await worker.live()
        stage.client.error = RegistryAwayError("status 503")
        stage.write(value(1, "a"))
        await asyncio.sleep(200)
        assert 1 < len(worker.lines("registry_away")) < 6
        found = pages(worker.worker.status, Pulse())["/readyz"]()
        assert found.status is HTTPStatus.SERVICE_UNAVAILABLE
        assert "the schema registry has been away for" in found.text
        metrics = pages(worker.worker.status, Pulse())["/metrics"]().text
        assert "\nstreamdedup_registry_away_seconds 0.0" not in metrics
        stage.client.error = None
        await worker.consumed(1)
        assert len(worker.lines("registry_back")) == 1
    assert (stage.values, stage.reasons()) == ([value(1, "a")], [])


@over(Stage)
async def test_a_registry_that_refuses_us_stops(stage: Stage) -> None:
    """The worker at its start, later the shard."""
    worker = stage.start()
    await worker.live()
    stage.client.error = DeliveryError("refuses us")
    stage.write(value(1, "a"))
    assert "refuses us" in await worker.stopped()
    await worker.stop()
    with pytest.raises(DeliveryError, match="refuses us"):
        await stage.start().task


@over(Stage)
async def test_json_schema_needs_no_registry(stage: Stage) -> None:
    """Its values are JSON behind five bytes, or JSON alone."""
    stage.config["key"]["format"] = "json_schema"
    del stage.config["kafka"]["schema_registry"]
    stage.write(b"\0\0\0\0\1" + b'{"id":"a"}', b'{"id":"a"}', b"\0\0\0\0\2" + b'{"id":"b"}')
    await stage.ended(3)
    assert len(stage.values) == 2


FRAMED = [(framed(7, b"\6key%d" % n), framed(8, b"\2v")) for n in range(3)]
NUMBERED = [(number.to_bytes(8), b"{}") for number in range(3)]  # as a LongSerializer's keys


@pytest.mark.parametrize(
    ("key", "events", "warned"),
    [
        ({"from": "key"}, FRAMED, "schema id 7"),
        ({"from": "value"}, FRAMED, "schema id 8"),
        ({"from": "header", "field": "id"}, FRAMED, None),
        ({"from": "key"}, NUMBERED, None),
    ],
    ids=["key", "value", "header", "numbers"],
)
@over(Stage)
async def test_framed_keys_without_a_format_are_warned_of(
    stage: Stage, key: dict[str, str], events: list[tuple[bytes, bytes]], warned: str | None
) -> None:
    """Their bytes change with the id of the schema. Plain numbers begin with zero bytes, too."""
    stage.config["key"] = key
    del stage.config["kafka"]["schema_registry"]
    stage.broker.produce(stage.source, [(0, *event) for event in events])
    reasons = [line["reason"] for line in (await stage.ended(3)).lines("keys_framed")]
    assert [warned in reason for reason in reasons] == [True] * (warned is not None)


@over(Stage)
async def test_a_command_says_that_the_registry_does_not_answer(stage: Stage) -> None:
    """`doctor` and `try` wait for it as long as for a broker."""
    settings, connect = load(stage.deployment.write_config()), connected_to(stage.broker)
    lines = (await doctor(settings, 10, connect)).lines
    assert [line.status for line in lines if line.check == "registry"] == [Status.OK]
    for error, why in (
        (RegistryAwayError("status 503"), "schema_registry.url: status 503; check it"),
        (ConfigError("it refuses us"), "it refuses us"),
    ):
        stage.client.error = error
        lines = (await doctor(settings, 10, connect)).lines
        (line,) = [line for line in lines if line.check == "registry"]
        assert line.status is Status.FAILURE
        assert why in f"{line.sentence}; {line.remedy}"
        with pytest.raises((DeliveryError, ConfigError), match=why):
            await tried(settings, 10, connect)


@over(Stage)
async def test_a_missing_parser_stops_the_shard_with_the_remedy(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of texts of Protobuf, which is an extra; its events are not malformed, since another worker can read them."""
    monkeypatch.setitem(sys.modules, "proto_schema_parser.parser", None)
    stage.config["key"]["format"] = "protobuf"
    stage.client.schemas[5] = Schema("PROTOBUF", 'syntax = "proto3"; message E { string id = 1; }')
    stage.write(framed(5, b"\0\x0a\1a"))
    with pytest.raises(ConfigError, match=r"pip install '\.\[protobuf\]'"):
        await tried(load(stage.deployment.write_config()), 10, connected_to(stage.broker))
    assert "pip install '.[protobuf]'" in await stage.start().stopped()
    assert stage.values == []
    assert stage.reasons() == []


@over(Stage)
async def test_a_schema_that_cannot_be_read_makes_events_malformed(stage: Stage) -> None:
    """The reason says what is wrong with it."""
    stage.client.schemas[5] = Schema("PROTOBUF", "syntax")
    stage.write(framed(5, b"\0"))
    worker = await stage.ended(1)
    why = "it is of type PROTOBUF, and key.format is avro"
    assert stage.reasons() == [f"no key can be found by schema 5: {why}"]
    assert worker.lines("schema_unreadable")[0]["reason"] == why
