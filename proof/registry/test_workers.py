"""Claims about workers whose values have schemas: many schemas, headers, commands, and stages."""

import os
from uuid import UUID

import pytest

from streamdedup.commands.audit import audit
from streamdedup.commands.trial import tried
from streamdedup.errors import DeliveryError
from streamdedup.kafka.records.records import Record
from streamdedup.keys.formats import programs
from streamdedup.keys.formats.schema_registry import VALUE_HEADER
from streamdedup.registry import registry
from streamdedup.registry.client import RegistryAwayError
from streamdedup.settings import load
from streamdedup.testing import connected_to
from tests.keys.avro import framed
from tests.memory import over
from tests.registry.stand_ins import avro
from tests.registry.test_workers import RESTORED, VERSIONS, Stage, events_of, played, value

__all__ = ["played"]  # a fixture


@over(Stage)
async def test_an_id_that_changed_while_the_registry_was_away_stops_its_events(
    stage: Stage,
) -> None:
    """Once it is back; the worker knew the schema, and read the events of the other by it."""
    stage.write(value(1, "a"))
    async with stage.start() as worker:
        await worker.consumed(1)
        stage.client.error = RegistryAwayError("no answer")
        stage.write(value(2, "b"))
        await worker.logged("registry_away")
        stage.client.error = None
        stage.client.schemas[1] = avro(*RESTORED[1])
        await worker.consumed(2)
        (line,) = await worker.logged("schema_changed")
        assert line["remedy"].startswith("restore the registry's later schemas under their ids")
        stage.write(framed(1, b"\2\2c"))
        stopped = await worker.stopped()
        assert "the registry gives schema 1 to another" in stopped
        assert stopped.endswith(line["remedy"])
    assert len(stage.values) == 2


@over(Stage)
async def test_of_many_ids_the_newest_are_compared(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those are what an older backup lacks."""
    monkeypatch.setattr(registry, "COMPARED_MAX", 2)
    for number in VERSIONS:
        stage.write(value(number, "a"))
    await stage.ended(3)
    for file in stage.deployment.directory.glob("snapshots/%schemas/*/*"):
        os.utime(file, (int(file.name), int(file.name)))
    stage.client.asked.clear()
    await stage.start().live()
    assert sorted(stage.client.asked) == [2, 3]


@over(Stage)
async def test_more_schemas_than_there_is_room_for_find_the_same_keys(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a batch are never known together: it is read in parts, by a worker, a fold, and an audit."""
    monkeypatch.setattr(programs, "TOTAL_MAX", 16)
    stage.write(*events_of("abc"))
    await stage.ended(12)
    assert stage.values == events_of("abc")[::4]
    stage.deployment.delete_snapshots()
    stage.write(*reversed(events_of("abcd")))
    await stage.ended(16)
    assert stage.values[3:] == [events_of("d")[3]]
    report = await audit(load(stage.deployment.write_config()), connected_to(stage.broker))
    assert report.fine, report


@pytest.mark.parametrize("framing", ["auto", "header"])
@over(Stage)
async def test_ids_in_headers_are_read_by_a_worker_and_a_fold(stage: Stage, framing: str) -> None:
    """Also as GUIDs, which the disk keeps; under each, an event has the key that it has in JSON."""
    guid = UUID("00112233-4455-6677-8899-aabbccddeeff")
    stage.config["key"]["framing"] = framing
    stage.client.schemas = {1: avro(*VERSIONS[1]), f"{guid}": avro(*VERSIONS[2])}

    def feed(*keys: str) -> None:
        for key in keys:
            for header, number in ((b"\0\0\0\0\1", 1), (b"\1" + guid.bytes, 2)):
                headers = (("before", b""), (VALUE_HEADER, header))
                event = Record.of(stage.broker.now_ms(), None, value(number, key)[5:], headers)
                stage.broker.log(stage.source, 0).append([event], None)

    feed("a", "b")
    await stage.ended(4)
    assert stage.values == [value(1, key)[5:] for key in "ab"]
    stage.deployment.delete_snapshots()
    stage.client.asked.clear()
    feed("a", "b", "c")
    await stage.ended(6)
    assert stage.values[2:] == [value(1, "c")[5:]]
    assert stage.client.asked == [1]  # compared; a GUID never changes


@over(Stage)
async def test_tombstones_of_the_output_stop_nothing(stage: Stage) -> None:
    """Even where they are judged, and so malformed."""
    stage.config["source"]["tombstones"] = "judge"
    stage.emit(None, value(1, "a"))
    stage.write(value(2, "a"))
    await stage.ended(1)
    assert len(stage.values) == 2


@pytest.mark.parametrize("begins", [True, False])
@over(Stage)
async def test_an_operator_limits_how_long(stage: Stage, begins: bool) -> None:
    """`kafka.give_up_after_s` counts for the registry, too: at a start, and later."""
    stage.config["kafka"]["give_up_after_s"] = 60
    if begins:
        stage.client.error = RegistryAwayError("status 503")
    worker = stage.start()
    if not begins:
        await worker.live()
        stage.client.error = RegistryAwayError("status 503")
        stage.write(value(1, "a"))
    with pytest.raises(DeliveryError, match=r"no registry was there for [6-9]\d s"):
        await worker.task


@over(Stage)
async def test_try_and_audit_read_schemas(stage: Stage) -> None:
    """As the worker does."""
    stage.write(*events_of("ab"), framed(99, b""))
    settings = load(stage.deployment.write_config())
    connect = connected_to(stage.broker)
    found = await tried(settings, 100, connect)
    counts = {verdict.name: count for verdict, count in found.verdicts.items() if count}
    assert counts == {"PASS": 2, "DUPLICATE": 6, "REJECTED": 1}
    await stage.ended(9)
    report = await audit(settings, connect=connect)
    assert report.fine, report


@over(Stage)
async def test_commands_keep_no_schema_on_disk(stage: Stage) -> None:
    """`try` and `audit` write nothing, whoever runs them; they read what the worker keeps."""
    stage.write(*events_of("abc"))
    await stage.ended(12)
    settings, connect = load(stage.deployment.write_config()), connected_to(stage.broker)
    schemas, stage.client.schemas = stage.client.schemas, {}
    for kept in (True, False):
        if not kept:
            stage.client.schemas = schemas
            stage.forget_cache()
        before = sorted(stage.deployment.directory.rglob("*"))
        assert not (await tried(settings, 100, connect)).reasons
        assert (await audit(settings, connect=connect)).fine
        assert sorted(stage.deployment.directory.rglob("*")) == before
