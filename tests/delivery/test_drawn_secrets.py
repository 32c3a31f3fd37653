"""Claims about filters whose hash has a secret that was drawn: of workers, over a broker in memory."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import streamdedup
from streamdedup.commands.audit import audit
from streamdedup.commands.trial import tried
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.kafka.records.records import Record
from streamdedup.keys.hashing import MURMUR3 as MURMUR3_HASH
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load as load_settings
from streamdedup.snapshot.files import load, reading
from streamdedup.snapshot.format import pieces
from streamdedup.snapshot.header import Header
from streamdedup.testing import MemoryBroker, connected_to
from tests import memory
from tests.chosen import murmur3_key
from tests.lists.files import list_file
from tests.local import LocalWorker, Start
from tests.memory import over

NOW_MS = 1_790_000_000_000
DIGITS = "00112233445566778899aabbccddeeff"
MURMUR3 = {"hash": "murmur3"}
GIVEN = {"hash": "siphash", "hash_key": DIGITS}
DRAWN: dict[str, str] = {}


class Stage(memory.Stage):
    """Some partitions whose events are JSON with an id; all clocks stand still."""

    def __init__(self, directory: Path, start: Start, partitions: int = 1) -> None:
        super().__init__(directory, start, partitions)
        self.config["key"] = {"from": "json", "field": "id"}
        self.broker = MemoryBroker(now_ms=lambda: NOW_MS)
        for topic in (self.source, self.sink):
            self.broker.create_topic(
                topic, partitions, message_timestamp_after_max_ms=2**62, retention_ms=-1
            )

    def hashed_by(self, options: dict[str, str]) -> None:
        """Configure the hash from now on."""
        filter_ = self.config["filter"]
        for name in ("hash", "hash_key", "hash_key_file"):
            filter_.pop(name, None)
        filter_ |= {name: value for name, value in options.items() if name != "hash_key"}
        if "hash_key" in options:
            key = self.deployment.directory / "hash-key"
            key.write_text(options["hash_key"])
            filter_["hash_key_file"] = str(key)

    @override
    def start(self, **options: Any) -> LocalWorker:
        """Start one more worker."""
        return super().start(now_ms=lambda: NOW_MS, **options)

    def send(self, values: Iterable[bytes], partition: int = 0) -> None:
        """Append events of these values to the input."""
        events = [Record.of(NOW_MS, None, value) for value in values]
        self.broker.append(self.source, partition, events, None)

    @override
    def feed(self, numbers: Iterable[int], partition: int = 0) -> None:
        """Append an event for each number to the input."""
        self.send((b'{"id": "k%d"}' % n for n in numbers), partition)

    async def through(self, numbers: range, partition: int = 0) -> LocalWorker:
        """Append these, have a worker consume them, and drain it."""
        self.feed(numbers, partition)
        worker = await self.started()
        end = self.broker.log(self.source, partition).end
        offsets = self.deployment.group, self.source
        while self.broker.committed(*offsets)[partition] < end:
            await asyncio.sleep(0.1)
        await worker.stop()
        return worker

    def emitted(self, partition: int = 0) -> list[int]:
        """The numbers in the output."""
        events = self.broker.read_all(self.sink)[partition]
        return [int(json.loads(event.value or b"")["id"][1:]) for event in events]

    def trim(self, offset: int) -> None:
        """Delete what the output has below `offset`."""
        self.broker.log(self.sink, 0).trim(offset)

    def snapshots(self) -> list[Path]:
        """All of them, newest last."""
        return sorted((self.deployment.directory / "snapshots").rglob("*.snapshot"))

    def headers(self) -> list[Header]:
        """Of all snapshots."""
        return [header_of(path) for path in self.snapshots()]


def header_of(path: Path) -> Header:
    """What a file begins with."""
    with reading(path, mmap=False) as reader:
        return reader.header


@over(partial(Stage, partitions=2))
async def test_empty_shards_draw_different_secrets(stage: Stage) -> None:
    """Each partition has its own; the header holds it, and the filter comes back without a key."""
    stage.feed(range(10), 0)
    await stage.through(range(10, 20), 1)
    first, second = stage.headers()
    assert len(first.secret) == len(second.secret) == 16
    assert first.secret != second.secret
    held = [load(path) for path in stage.snapshots()]
    assert [header.secret for header in stage.headers()] == [seen.hash.key for seen in held]
    assert all(f"k{n}" in held[n // 10] for n in range(20))


@over(Stage)
async def test_a_restart_keeps_the_secret_of_its_snapshot(stage: Stage) -> None:
    """Over any number of restarts, and nothing passes twice."""
    for start in (0, 50, 100):
        worker = await stage.through(range(start, start + 100))
        assert len(worker.lines("snapshot_loaded")) == (start > 0)
    assert len({header.secret for header in stage.headers()}) == 1
    assert stage.emitted() == list(range(200))


@over(Stage)
async def test_without_a_snapshot_another_secret_is_drawn_and_the_output_folded(
    stage: Stage,
) -> None:
    """Nothing passes twice, although no digest of before is worth anything."""
    secrets = set()
    for start in (0, 50, 100):
        worker = await stage.through(range(start, start + 100))
        assert worker.lines("output_folded")[0]["events"] == len(range(start and start + 50))
        secrets.add(stage.headers()[-1].secret)
        stage.deployment.delete_snapshots()
    assert len(secrets) == 3
    assert stage.emitted() == list(range(200))


@over(Stage)
async def test_the_library_loads_such_a_snapshot_without_a_key(
    stage: Stage, tmp_path: Path
) -> None:
    """So it does a copy that `save` made of it; a key that is given is refused, and so is a secret that is wrong."""
    await stage.through(range(100))
    (path,) = stage.snapshots()
    copy = tmp_path / "copy.filter"
    streamdedup.save(streamdedup.load(path, mmap=True), copy)
    assert header_of(copy).secret == header_of(path).secret
    for file in (path, copy):
        loaded = streamdedup.load(file)
        assert all(f"k{n}" in loaded for n in range(100))
        with pytest.raises(ConfigError, match="was drawn, and is in the file; leave hash_key out"):
            streamdedup.load(file, hash_key=bytes(16))
    forge(path, "secret", header_of(path))
    with pytest.raises(SnapshotError, match="another hash than the given siphash") as refused:
        streamdedup.load(path)
    assert header_of(copy).secret.hex() not in str(refused.value)


PAIRS = [(a, b) for a in (MURMUR3, GIVEN, DRAWN) for b in (MURMUR3, GIVEN, DRAWN) if a != b]


@pytest.mark.parametrize(("before", "after"), PAIRS)
@over(Stage)
async def test_a_snapshot_of_another_hash_is_refused_by_name_and_folded(
    stage: Stage, before: dict[str, str], after: dict[str, str]
) -> None:
    """Drawn, given, and murmur3: in each order. A configured secret is in no snapshot, nor a field for it."""
    stage.hashed_by(before)
    await stage.through(range(100))
    stage.hashed_by(after)
    worker = await stage.through(range(50, 150))
    (refused,) = worker.lines("snapshot_refused")
    assert "hash_check" in refused["reason"]
    assert DIGITS not in refused["reason"]
    assert ("hash " in refused["reason"]) == (MURMUR3 in (before, after))
    assert worker.lines("output_folded")[0]["events"] == 100
    assert stage.emitted() == list(range(150))
    newest = stage.snapshots()[-1].read_bytes()
    assert (b"secret" in newest) == bool(stage.headers()[-1].secret) == (after == DRAWN)
    assert DIGITS.encode() not in newest


@pytest.mark.parametrize(
    ("event", "where", "mode", "is_said"),
    [
        ("snapshot_exposed", "file", 0o600, False),
        ("snapshot_exposed", "file", 0o660, False),
        ("snapshot_exposed", "file", 0o644, True),
        ("snapshot_writable", "file", 0o602, True),
        ("snapshot_writable", "file", 0o666, True),
        ("snapshot_writable", "file", 0o660, False),
        ("snapshot_writable", "folder", 0o777, True),
        ("snapshot_writable", "folder", 0o770, False),
        ("snapshot_writable", "root", 0o777, True),
    ],
)
@over(Stage)
async def test_a_snapshot_that_others_may_read_or_write_is_warned_of(
    stage: Stage, event: str, where: str, mode: int, *, is_said: bool
) -> None:
    """By the path and its mode, at each load. A group may, as the fsGroup of a pod does; a given secret is not there.

    A start looks at the directory of all.
    """
    for options in (DRAWN, GIVEN):
        stage.hashed_by(options)
        worker = await stage.through(range(10))
        assert not worker.lines(event)
        path = stage.snapshots()[-1]
        changed = {"file": path, "folder": path.parent, "root": path.parents[3]}[where]
        before = changed.stat().st_mode
        changed.chmod(mode)
        lines = (await stage.through(range(20))).lines(event)
        changed.chmod(before)
        assert len(lines) == (is_said and (options is DRAWN or event == "snapshot_writable"))
        for line in lines:
            assert line["path"] == str(changed if where == "root" else path)
            if event == "snapshot_exposed":
                assert line["mode"] == f"{mode:04o}"
                assert line["remedy"].startswith(f"chmod 600 {path}; ")
            else:
                assert f"every user, since {changed} has mode {mode:04o}" in line["reason"]
                assert "remove the snapshots" in line["remedy"]


WAYS = {
    "murmur3": "set filter.hash: murmur3, without a secret",
    "given": "set filter.hash_key_file to the secret of then",
    "drawn": "unset filter.hash_key_file, with filter.hash: siphash",
}


@pytest.mark.parametrize(
    ("before", "after"),
    [("murmur3", "given"), ("given", "murmur3"), ("given", "drawn"), ("drawn", "given")],
)
@pytest.mark.parametrize(
    "on_gap",
    [
        pytest.param("stop", marks=pytest.mark.finding("output-trimmed-other-settings")),
        "accept",
    ],
)
@over(Stage)
async def test_over_a_trimmed_output_the_way_back_to_the_hash_is_named(
    stage: Stage, before: str, after: str, on_gap: str
) -> None:
    """The snapshot that was refused holds what is gone: the message names it and the option, and that cures it."""
    hashes = {"murmur3": MURMUR3, "given": GIVEN, "drawn": DRAWN}
    stage.hashed_by(hashes[before])
    await stage.through(range(100))
    (held,) = stage.snapshots()
    stage.trim(50)
    stage.hashed_by(hashes[after])
    stage.config["sink"]["on_gap"] = on_gap
    if on_gap == "accept":
        worker = await stage.through(range(150))
        (accepted,) = worker.lines("output_gap_accepted")
        said = accepted["detail"]
        assert "duplicates would pass" in said
        assert stage.emitted() == [*range(50, 100), *range(50), *range(100, 150)]
    else:
        stage.feed(range(150))
        worker = stage.start()
        said = await worker.stopped()
        await worker.stop()
        stage.hashed_by(hashes[before])
        await stage.through(range(160))
        assert stage.emitted() == list(range(50, 160))
    assert "begins at offset 50" in said
    assert f"only in {held}, which" in said
    assert f": {WAYS[before]}, and nothing is lost" in said
    assert "removed after 3 saves" in said
    assert DIGITS not in said
    (refused,) = worker.lines("snapshot_refused")
    assert "left in place until snapshot.keep (3) newer ones" in refused["reason"]
    assert WAYS[before] in refused["remedy"]


@over(Stage)
async def test_a_list_of_murmur3_stands_over_filters_with_secrets(
    stage: Stage, tmp_path: Path
) -> None:
    """Its keys are digested twice: by the common hash for the list, by the shard's own for the filter."""
    listed = list_file(tmp_path / "block.list", [b"k3", b"k7"])
    stage.config["blocklist"] = {"file": str(listed), "on_positive": "drop"}
    stage.feed(range(5))
    await stage.through(range(10))
    assert stage.emitted() == [n for n in range(10) if n not in (3, 7)]


@over(partial(Stage, partitions=2))
async def test_a_key_in_two_partitions_is_seen_across_their_secrets(stage: Stage) -> None:
    """The evidence uses one hash for all shards of a worker."""
    stage.feed(range(5_000), 0)
    worker = await stage.through(range(5_000), 1)
    assert worker.worker.status.watch.unseen == 5_000
    first, second = stage.headers()
    assert first.secret != second.secret


@pytest.mark.parametrize("tampered", ["secret", "check", "identity"])
@over(Stage)
async def test_a_header_that_contradicts_its_secret_is_refused(stage: Stage, tampered: str) -> None:
    """Another secret, another check, or an identity that knows of none: folded instead, nothing passes twice."""
    await stage.through(range(100))
    (path,) = stage.snapshots()
    header = header_of(path)
    assert header.log is not None
    forge(path, tampered, header)
    worker = await stage.through(range(150))
    (refused,) = worker.lines("snapshot_refused")
    assert header.secret.hex() not in str(refused)
    assert worker.lines("output_folded")[0]["events"] == 100
    assert stage.emitted() == list(range(150))


def forge(path: Path, tampered: str, header: Header) -> None:
    """Write the same snapshot with one field changed, and every checksum right."""
    with reading(path, mmap=False) as reader:
        contents = reader.contents()
    assert header.log is not None
    if tampered == "secret":
        header = replace(header, secret=bytes(16))
    elif tampered == "check":
        header = replace(header, filter={**header.filter, "hash_check": "00" * 16})
        contents = replace(contents, filter={**contents.filter, "hash_check": "00" * 16})
    else:
        header = replace(header, secret=b"")
    closing = (contents.filter, contents.end_label)
    path.write_bytes(b"".join(map(bytes, pieces(header, contents.buffers, lambda: closing))))


@over(Stage)
async def test_a_drawn_secret_leaves_by_no_other_door(
    stage: Stage, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not by a log line, a page, a note, an error, a repr, or a file that is no snapshot: the bytes are searched."""
    stage.feed(range(100))
    worker = await stage.started()
    await worker.consumed(100)
    shard = worker.delivery.shard
    assert shard is not None
    hash_ = shard.filter.hash
    shown = [page().text for page in pages(worker.worker.status, Pulse()).values()]
    shown += [repr(hash_), repr(shard.filter), repr(shard), repr(worker.worker)]
    await worker.stop()
    shown += map(str, worker.lines())
    shown += map(str, stage.broker.group(stage.deployment.group).offsets.items())
    shown += map(repr, stage.headers())
    shown += capfd.readouterr()
    secret = hash_.key
    for told in (secret.hex(), str(secret)[2:-1], secret[::-1].hex()):
        assert not [text for text in shown if told in text]
    assert_in_snapshots_only(secret, tmp_path)


def twins(count: int) -> tuple[list[bytes], list[bytes]]:
    """Keys, and for each another key with the same digest under murmur3."""
    keys = [b"victim %d" % n for n in range(count)]
    return keys, [murmur3_key(*MURMUR3_HASH.digest(key)) for key in keys]


@pytest.mark.parametrize("options", [MURMUR3, DRAWN])
@over(Stage)
async def test_a_twin_under_murmur3_takes_nothing_from_another(
    stage: Stage, options: dict[str, str]
) -> None:
    """Sent before them, twins have 1,000 of 1,000 events of others dropped under murmur3, and none under a secret."""
    keys, crafted = twins(1000)
    stage.hashed_by(options)
    stage.config["key"] = {"from": "value"}
    stage.send([*crafted, *keys])
    await stage.ended(2000)
    emitted = {event.value for event in stage.output}
    assert len(emitted & {*keys}) == (1000 if options == DRAWN else 0)


@over(Stage)
async def test_an_audit_sees_what_collisions_cost(stage: Stage) -> None:
    """An audit draws a secret of its own: what a worker with murmur3 lost to twins is missing, and `try` counts it."""
    keys, crafted = twins(20)
    stage.hashed_by(MURMUR3)
    stage.config["key"] = {"from": "value"}
    stage.config["filter"]["error_rate"] = 1e-9
    stage.send([*crafted, *keys])
    await stage.ended(40)
    settings = load_settings(stage.deployment.write_config())
    report = await audit(settings, connected_to(stage.broker))
    assert (report.total.missing, report.fine) == (20, False)
    assert (await tried(settings, 100, connected_to(stage.broker))).distinct == 40


def assert_in_snapshots_only(secret: bytes, directory: Path) -> None:
    """Every snapshot holds the secret, as hex, for its owner alone; no other file does."""
    for path in (path for path in directory.rglob("*") if path.is_file()):
        held = path.read_bytes()
        assert (secret.hex().encode() in held) == (path.suffix == ".snapshot")
        assert secret not in held
        assert path.suffix != ".snapshot" or path.stat().st_mode & 0o777 == 0o600
