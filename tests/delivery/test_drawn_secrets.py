"""Claims about filters whose hash has a secret that was drawn: of workers, over a broker in memory."""

import asyncio
import json
import random
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import streamdedup
from streamdedup.commands.audit import audit
from streamdedup.commands.trial import tried
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.kafka.records.records import Record
from streamdedup.keys.hashing import MURMUR3 as MURMUR3_HASH
from streamdedup.keys.hashing import Hash
from streamdedup.server.listener import Page
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load as load_settings
from streamdedup.snapshot.files import load, reading
from streamdedup.snapshot.format import pieces
from streamdedup.snapshot.header import Header
from streamdedup.testing import MemoryBroker, connected_to
from tests.chosen import murmur3_key
from tests.deployment import Deployment
from tests.lists.files import list_file
from tests.local import LocalWorker, Start, on_virtual_clock

NOW_MS = 1_790_000_000_000
DIGITS = "00112233445566778899aabbccddeeff"
MURMUR3 = {"hash": "murmur3"}
GIVEN = {"hash": "siphash", "hash_key": DIGITS}
DRAWN: dict[str, str] = {}


class Stage:
    """A broker in memory with some partitions, and a deployment on it."""

    def __init__(self, directory: Path, start: Start, partitions: int = 1) -> None:
        self.deployment = Deployment("memory:1", directory, partitions=partitions)
        self.deployment.config["key"] = {"from": "json", "field": "id"}
        self.broker = MemoryBroker(now_ms=lambda: NOW_MS)
        self.broker.create_topic(
            self.deployment.source, partitions, message_timestamp_after_max_ms=2**62
        )
        self.broker.create_topic(
            self.deployment.sink, partitions, message_timestamp_after_max_ms=2**62, retention_ms=-1
        )
        self._start = start

    def hashed_by(self, options: dict[str, str]) -> None:
        """Configure the hash from now on."""
        filter_ = self.deployment.config["filter"]
        for name in ("hash", "hash_key", "hash_key_file"):
            filter_.pop(name, None)
        filter_ |= {name: value for name, value in options.items() if name != "hash_key"}
        if "hash_key" in options:
            key = self.deployment.directory / "hash-key"
            key.write_text(options["hash_key"])
            filter_["hash_key_file"] = str(key)

    async def start(self) -> LocalWorker:
        """A worker that decides."""
        worker = self._start(
            self.deployment, connect=connected_to(self.broker), now_ms=lambda: NOW_MS
        )
        await worker.live()
        return worker

    def feed(self, numbers: range, partition: int = 0) -> None:
        """Append an event for each number to the input."""
        events: list[Record] = [(NOW_MS, None, b'{"id": "k%d"}' % n, ()) for n in numbers]
        self.broker.append(self.deployment.source, partition, events, None)

    async def through(self, numbers: range, partition: int = 0) -> LocalWorker:
        """Feed these, have a worker consume them, and drain it."""
        self.feed(numbers, partition)
        worker = await self.start()
        end = self.broker.topics[self.deployment.source].logs[partition].end
        while self.broker.committed(self.deployment.group, self.deployment.source)[partition] < end:
            await asyncio.sleep(0.1)
        await worker.stop()
        return worker

    async def through_with_page(self, numbers: range) -> tuple[LocalWorker, Page]:
        """As `through`; also return /readyz, as it was while the worker ran."""
        self.feed(numbers)
        worker = await self.start()
        page = pages(worker.worker.status, Pulse())["/readyz"]()
        end = self.broker.topics[self.deployment.source].logs[0].end
        while self.broker.committed(self.deployment.group, self.deployment.source)[0] < end:
            await asyncio.sleep(0.1)
        await worker.stop()
        return worker, page

    def emitted(self, partition: int = 0) -> list[int]:
        """The numbers in the output."""
        events = self.broker.read_all(self.deployment.sink)[partition]
        return [int(json.loads(event.value or b"")["id"][1:]) for event in events]

    def snapshots(self) -> list[Path]:
        """All of them, newest last."""
        return sorted((self.deployment.directory / "snapshots").rglob("*.snapshot"))

    def headers(self) -> list[Header]:
        """Of all snapshots."""
        return [header_of(path) for path in self.snapshots()]

    def forget_snapshots(self) -> None:
        """As if the disk were lost."""
        shutil.rmtree(self.deployment.directory / "snapshots")


def header_of(path: Path) -> Header:
    """What a file begins with."""
    with reading(path, mmap=False) as reader:
        return reader.header


def play(
    directory: Path, scene: Callable[[Stage], Coroutine[Any, Any, None]], partitions: int = 1
) -> None:
    """Run `scene` on a virtual clock."""
    on_virtual_clock(lambda start: scene(Stage(directory, start, partitions)))


def test_empty_shards_draw_different_secrets(tmp_path: Path) -> None:
    """Each partition has its own; the header holds it, and the filter comes back without a key."""

    async def scene(stage: Stage) -> None:
        stage.feed(range(10), 0)
        await stage.through(range(10, 20), 1)
        first, second = stage.headers()
        assert len(first.secret) == len(second.secret) == 16
        assert first.secret != second.secret
        held = [load(path) for path in stage.snapshots()]
        assert [header.secret for header in stage.headers()] == [seen.hash.key for seen in held]
        assert all(f"k{n}" in held[n // 10] for n in range(20))

    play(tmp_path, scene, partitions=2)


def test_a_restart_keeps_the_secret_of_its_snapshot(tmp_path: Path) -> None:
    """Over any number of restarts, and nothing passes twice."""

    async def scene(stage: Stage) -> None:
        for start in (0, 50, 100):
            worker = await stage.through(range(start, start + 100))
            assert len(worker.lines("snapshot_loaded")) == (start > 0)
        assert len({header.secret for header in stage.headers()}) == 1
        assert stage.emitted() == list(range(200))

    play(tmp_path, scene)


def test_without_a_snapshot_another_secret_is_drawn_and_the_output_folded(tmp_path: Path) -> None:
    """Nothing passes twice, although no digest of before is worth anything."""

    async def scene(stage: Stage) -> None:
        secrets = set()
        for start in (0, 50, 100):
            worker = await stage.through(range(start, start + 100))
            assert worker.lines("output_folded")[0]["events"] == len(range(start and start + 50))
            secrets.add(stage.headers()[-1].secret)
            stage.forget_snapshots()
        assert len(secrets) == 3
        assert stage.emitted() == list(range(200))

    play(tmp_path, scene)


def test_the_library_loads_such_a_snapshot_without_a_key(tmp_path: Path) -> None:
    """So it does a copy that `save` made of it; a key that is given is refused, and so is a secret that is wrong."""

    async def scene(stage: Stage) -> None:
        await stage.through(range(100))
        (path,) = stage.snapshots()
        copy = tmp_path / "copy.filter"
        streamdedup.save(streamdedup.load(path, mmap=True), copy)
        assert header_of(copy).secret == header_of(path).secret
        for file in (path, copy):
            loaded = streamdedup.load(file)
            assert all(f"k{n}" in loaded for n in range(100))
            with pytest.raises(
                ConfigError, match="was drawn, and is in the file; leave hash_key out"
            ):
                streamdedup.load(file, hash_key=bytes(16))
        forge(path, "secret", header_of(path))
        with pytest.raises(SnapshotError, match="another hash than the given siphash") as refused:
            streamdedup.load(path)
        assert header_of(copy).secret.hex() not in str(refused.value)

    play(tmp_path, scene)


PAIRS = [(a, b) for a in (MURMUR3, GIVEN, DRAWN) for b in (MURMUR3, GIVEN, DRAWN) if a != b]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_snapshot_of_another_hash_is_refused_by_name_and_folded(
    tmp_path: Path, before: dict[str, str], after: dict[str, str]
) -> None:
    """Drawn, given, and murmur3: in each order."""

    async def scene(stage: Stage) -> None:
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
        assert bool(stage.headers()[-1].secret) == (after == DRAWN)

    play(tmp_path, scene)


def test_a_configured_secret_is_in_no_snapshot(tmp_path: Path) -> None:
    """Nor is a field for it."""

    async def scene(stage: Stage) -> None:
        stage.hashed_by(GIVEN)
        await stage.through(range(10))
        (path,) = stage.snapshots()
        assert b"secret" not in path.read_bytes()
        assert DIGITS.encode() not in path.read_bytes()

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "named", [pytest.param(DRAWN, id="default"), pytest.param({"hash": "siphash"}, id="by name")]
)
def test_without_the_log_a_snapshot_of_murmur3_is_kept_if_the_hash_was_left_to_the_default(
    tmp_path: Path, named: dict[str, str]
) -> None:
    """What the output no longer holds is not given up for a secret; the log warns. By name, the gap stops the shard."""

    async def scene(stage: Stage) -> None:
        stage.hashed_by(MURMUR3)
        await stage.through(range(100))
        stage.broker.topics[stage.deployment.sink].logs[0].trim(50)
        stage.hashed_by(named)
        if named:
            stage.feed(range(90, 150))
            worker = stage._start(
                stage.deployment, connect=connected_to(stage.broker), now_ms=lambda: NOW_MS
            )
            assert "begins at offset 50" in await worker.stopped()
            return
        for end in (150, 200):
            worker, page = await stage.through_with_page(range(end))
            (warned,) = worker.lines("hash_not_secret")
            assert "murmur3" in warned["reason"]
            assert worker.lines("snapshot_refused") == []
            assert page.status == 200
            assert "events/0: its filter has no secret" in page.text.replace(
                stage.deployment.source, "events"
            )
            assert stage.headers()[-1].secret == b""
        assert stage.emitted() == list(
            range(50, 200)
        )  # 0 to 49 were deleted, and not emitted again

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("options", "secret"), [(DRAWN, "drawn"), (GIVEN, "configured"), (MURMUR3, "none")]
)
def test_the_start_and_a_trial_name_the_hash(
    tmp_path: Path, options: dict[str, str], secret: str
) -> None:
    """Under murmur3 the promise has a condition, and a trial does not test that hash."""

    async def scene(stage: Stage) -> None:
        stage.hashed_by(options)
        worker = await stage.through(range(10))
        (line,) = worker.lines("worker_starts")
        is_murmur3 = options is MURMUR3
        assert (line["hash"], line["secret"]) == ("murmur3" if is_murmur3 else "siphash", secret)
        assert ("unless somebody chooses keys" in line["promise"]) == is_murmur3
        settings = load_settings(stage.deployment.write_config())
        trial = await tried(settings, 100, connected_to(stage.broker))
        assert ("not tested" in trial.as_text()) == is_murmur3
        assert trial.as_json()["notes"] == trial.notes

    play(tmp_path, scene)


@pytest.mark.parametrize("options", [DRAWN, GIVEN])
@pytest.mark.parametrize("mode", [0o600, 0o660, 0o644])
def test_a_secret_that_every_user_may_read_is_warned_of(
    tmp_path: Path, options: dict[str, str], mode: int
) -> None:
    """By the file and its mode, at each load. A group may read it (fsGroup of a pod); a given one is not there."""

    async def scene(stage: Stage) -> None:
        stage.hashed_by(options)
        await stage.through(range(10))
        (path,) = stage.snapshots()
        path.chmod(mode)
        worker = await stage.through(range(20))
        lines = worker.lines("snapshot_exposed")
        assert len(lines) == (mode == 0o644 and options is DRAWN)
        for line in lines:
            assert (line["path"], line["mode"]) == (str(path), "0644")
            assert line["remedy"].startswith(f"chmod 600 {path}; ")

    play(tmp_path, scene)


WAYS = {
    "murmur3": "set filter.hash: murmur3, without a secret",
    "given": "set filter.hash_key_file to the secret of then",
    "drawn": "unset filter.hash_key_file, with filter.hash: siphash",
}


@pytest.mark.parametrize(
    ("before", "after"),
    [("murmur3", "given"), ("given", "murmur3"), ("given", "drawn"), ("drawn", "given")],
)
@pytest.mark.parametrize("on_gap", ["stop", "accept"])
def test_over_a_trimmed_output_the_way_back_to_the_hash_is_named(
    tmp_path: Path, before: str, after: str, on_gap: str
) -> None:
    """The snapshot that was refused holds what is gone: the message names it and the option, and that cures it."""
    hashes = {"murmur3": MURMUR3, "given": GIVEN, "drawn": DRAWN}

    async def scene(stage: Stage) -> None:
        stage.hashed_by(hashes[before])
        await stage.through(range(100))
        (held,) = stage.snapshots()
        stage.broker.topics[stage.deployment.sink].logs[0].trim(50)
        stage.hashed_by(hashes[after])
        stage.deployment.config["sink"]["on_gap"] = on_gap
        if on_gap == "accept":
            worker = await stage.through(range(150))
            (accepted,) = worker.lines("output_gap_accepted")
            said = accepted["detail"]
            assert "duplicates would pass" in said
            assert stage.emitted() == [*range(50, 100), *range(50), *range(100, 150)]
        else:
            stage.feed(range(150))
            worker = stage._start(
                stage.deployment, connect=connected_to(stage.broker), now_ms=lambda: NOW_MS
            )
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

    play(tmp_path, scene)


def test_without_the_log_a_key_of_ones_own_is_not_to_be_removed(tmp_path: Path) -> None:
    """The partition stops by name, and goes on with the key, nothing lost; `accept` forgets what is gone."""

    async def scene(stage: Stage) -> None:
        stage.hashed_by(GIVEN)
        await stage.through(range(100))
        stage.broker.topics[stage.deployment.sink].logs[0].trim(50)
        stage.hashed_by(DRAWN)
        stage.feed(range(150))
        worker = stage._start(
            stage.deployment, connect=connected_to(stage.broker), now_ms=lambda: NOW_MS
        )
        assert "begins at offset 50" in await worker.stopped()
        (refused,) = worker.lines("snapshot_refused")
        assert "hash_check" in refused["reason"]
        await worker.stop()

        stage.hashed_by(GIVEN)
        await stage.through(range(160))
        assert stage.emitted() == list(range(50, 160))

        stage.hashed_by(DRAWN)
        stage.deployment.config["sink"]["on_gap"] = "accept"
        await stage.through(range(160))
        assert stage.emitted() == [*range(50, 160), *range(50)]

    play(tmp_path, scene)


def test_snapshots_serve_on_another_machine(tmp_path: Path) -> None:
    """A copy of the directory brings the secret with it, so nothing is folded again, though the output is trimmed."""

    async def scene(stage: Stage) -> None:
        await stage.through(range(100))
        (before,) = stage.headers()
        stage.broker.topics[stage.deployment.sink].logs[0].trim(50)
        copy = tmp_path / "another machine"
        (tmp_path / "snapshots").rename(copy)
        stage.deployment.config["snapshot"]["directory"] = str(copy)
        worker = await stage.through(range(150))
        assert worker.lines("snapshot_loaded")
        assert worker.lines("output_folded")[0]["events"] == 0
        assert stage.emitted() == list(range(50, 150))
        newest = sorted(copy.rglob("*.snapshot"))[-1]
        assert header_of(newest).secret == before.secret

    play(tmp_path, scene)


def test_a_newer_snapshot_of_murmur3_goes_before_one_with_a_secret_that_leaves_a_gap(
    tmp_path: Path,
) -> None:
    """An upgrade that was rolled back and made again, while the output was trimmed: the newest snapshot has all."""

    async def scene(stage: Stage) -> None:
        await stage.through(range(100))
        stage.hashed_by(MURMUR3)
        await stage.through(range(200))
        log = stage.broker.topics[stage.deployment.sink].logs[0]
        log.trim(log.end - 20)
        stage.hashed_by(DRAWN)
        worker = await stage.through(range(250))
        assert worker.lines("hash_not_secret")
        assert not worker.lines("shard_stopped")
        assert len(stage.emitted()) == len({*stage.emitted()})
        assert {*range(200, 250)} <= {*stage.emitted()} <= {*range(150, 250)}

    play(tmp_path, scene)


def test_a_kept_snapshot_of_murmur3_outdoes_a_filter_in_memory(tmp_path: Path) -> None:
    """Another worker has saved it, and the output was trimmed before the partition came back."""

    async def scene(stage: Stage) -> None:
        stage.hashed_by(MURMUR3)
        stage.feed(range(100), 0)
        await stage.through(range(100), 1)
        logs = stage.broker.topics[stage.deployment.sink].logs
        for log in logs:
            log.trim(50)
        stage.hashed_by(DRAWN)
        first = await stage.start()
        second = stage._start(
            stage.deployment, connect=connected_to(stage.broker), now_ms=lambda: NOW_MS
        )
        await second.live(1)
        (moved,) = second.worker.deliveries
        stage.feed(range(100, 150), moved)
        await second.consumed(50)
        await second.stop()
        logs[moved].trim(logs[moved].end)
        stage.feed(range(160), moved)
        await first.consumed(160)
        assert first.lines("memory_outdone")
        assert stage.emitted(moved) == list(range(150, 160))
        await first.stop()

    play(tmp_path, scene, partitions=2)


def test_a_list_of_murmur3_stands_over_filters_with_secrets(tmp_path: Path) -> None:
    """Its keys are digested twice: by the common hash for the list, by the shard's own for the filter."""

    async def scene(stage: Stage) -> None:
        listed = list_file(tmp_path / "block.list", [b"k3", b"k7"])
        stage.deployment.config["blocklist"] = {"file": str(listed), "on_positive": "drop"}
        stage.feed(range(5))
        await stage.through(range(10))
        assert stage.emitted() == [n for n in range(10) if n not in (3, 7)]

    play(tmp_path, scene)


def test_a_key_is_digested_once_by_its_filter_and_once_for_what_partitions_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch for keys in several partitions digests what it does not know; lists digest every key."""
    rows: list[tuple[bool, int]] = []
    of_column = Hash.of_column

    def counting(self: Hash, keys: Any) -> Any:
        rows.append((self.drawn, len(keys)))
        return of_column(self, keys)

    monkeypatch.setattr(Hash, "of_column", counting)

    async def scene(stage: Stage) -> None:
        await stage.through(range(3000))
        assert sum(count for drawn, count in rows if drawn) == 3000
        assert 3000 <= sum(count for drawn, count in rows if not drawn) < 3030
        rows.clear()
        listed = list_file(tmp_path / "block.list", [b"k3"])
        stage.deployment.config["blocklist"] = {"file": str(listed), "on_positive": "drop"}
        await stage.through(range(3000, 5000))
        assert sum(count for drawn, count in rows if not drawn) >= 2000

    play(tmp_path, scene)


def test_a_key_in_two_partitions_is_seen_across_their_secrets(tmp_path: Path) -> None:
    """The evidence uses one hash for all shards of a worker."""

    async def scene(stage: Stage) -> None:
        stage.feed(range(50_000), 0)
        worker = await stage.through(range(50_000), 1)
        assert worker.worker.status.watch.unseen == 50_000
        first, second = stage.headers()
        assert first.secret != second.secret

    play(tmp_path, scene, partitions=2)


@pytest.mark.parametrize("tampered", ["secret", "check", "identity"])
def test_a_header_that_contradicts_its_secret_is_refused(tmp_path: Path, tampered: str) -> None:
    """Another secret, another check, or an identity that knows of none: folded instead, nothing passes twice."""

    async def scene(stage: Stage) -> None:
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

    play(tmp_path, scene)


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


def test_a_drawn_secret_leaves_by_no_other_door(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not by a log line, a page, a note, an error, a repr, or a file that is no snapshot: the bytes are searched."""

    async def scene(stage: Stage) -> None:
        stage.feed(range(100))
        worker = await stage.start()
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

    play(tmp_path, scene)


def twins(count: int) -> tuple[list[bytes], list[bytes]]:
    """Keys, and for each another key with the same digest under murmur3."""
    keys = [b"victim %d" % n for n in range(count)]
    return keys, [murmur3_key(*MURMUR3_HASH.digest(key)) for key in keys]


@pytest.mark.parametrize("options", [MURMUR3, DRAWN])
def test_a_twin_under_murmur3_takes_nothing_from_another(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Sent before them, twins have 1,000 of 1,000 events of others dropped under murmur3, and none under a secret."""
    keys, crafted = twins(1000)

    async def scene(stage: Stage) -> None:
        stage.hashed_by(options)
        stage.deployment.config["key"] = {"from": "value"}
        for sent in (crafted, keys):
            values: list[Record] = [(NOW_MS, None, value, ()) for value in sent]
            stage.broker.append(stage.deployment.source, 0, values, None)
        worker = await stage.start()
        await worker.consumed(2000)
        emitted = {event.value for event in stage.broker.read_all(stage.deployment.sink)[0]}
        assert len(emitted & {*keys}) == (1000 if options == DRAWN else 0)
        await worker.stop()

    play(tmp_path, scene)


def test_an_audit_sees_what_collisions_cost(tmp_path: Path) -> None:
    """An audit draws a secret of its own: what a worker with murmur3 lost to twins is missing, and `try` counts it."""
    keys, crafted = twins(20)

    async def scene(stage: Stage) -> None:
        stage.hashed_by(MURMUR3)
        stage.deployment.config["key"] = {"from": "value"}
        stage.deployment.config["filter"]["error_rate"] = 1e-9
        for sent in (crafted, keys):
            values: list[Record] = [(NOW_MS, None, value, ()) for value in sent]
            stage.broker.append(stage.deployment.source, 0, values, None)
        worker = await stage.start()
        await worker.consumed(40)
        await worker.stop()
        settings = load_settings(stage.deployment.write_config())
        report = await audit(settings, connected_to(stage.broker))
        assert (report.total.missing, report.fine) == (20, False)
        assert (await tried(settings, 100, connected_to(stage.broker))).distinct == 40

    play(tmp_path, scene)


def assert_in_snapshots_only(secret: bytes, directory: Path) -> None:
    """Every snapshot holds the secret, as hex, for its owner alone; no other file does."""
    for path in (path for path in directory.rglob("*") if path.is_file()):
        held = path.read_bytes()
        assert (secret.hex().encode() in held) == (path.suffix == ".snapshot")
        assert secret not in held
        assert path.suffix != ".snapshot" or path.stat().st_mode & 0o777 == 0o600


def test_restarts_and_moved_offsets_lose_and_double_nothing(tmp_path: Path) -> None:
    """With the snapshot, without it, and with offsets moved back: the filter is the fold under whatever secret."""
    chance = random.Random(7)

    async def scene(stage: Stage) -> None:
        end, fed = 0, set[int]()
        for _ in range(12):
            end += chance.randrange(1, 80)
            numbers = range(chance.randrange(end), end)
            fed.update(numbers)
            await stage.through(numbers)
            if chance.random() < 0.5:
                stage.forget_snapshots()
            if chance.random() < 0.5:
                back = chance.randrange(5)
                group, source = stage.deployment.group, stage.deployment.source
                at = stage.broker.committed(group, source)[0]
                stage.broker.move_offsets(group, source, {0: max(0, at - back)})
        assert sorted(stage.emitted()) == sorted(fed)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("mode", "where"),
    [
        (0o602, "file"),
        (0o666, "file"),
        (0o660, "file"),
        (0o777, "folder"),
        (0o770, "folder"),
        (0o777, "root"),
    ],
)
def test_a_snapshot_that_others_may_write_is_warned_of(
    tmp_path: Path, mode: int, where: str
) -> None:
    """A group of the worker's own may, as the fsGroup of a pod does. A start looks at the directory of all."""

    async def scene(stage: Stage) -> None:
        stage.hashed_by(DRAWN)
        worker = await stage.through(range(10))
        assert worker.lines("snapshot_writable") == []
        (path,) = stage.snapshots()
        changed = {"file": path, "folder": path.parent, "root": path.parents[3]}[where]
        changed.chmod(mode)
        worker = await stage.through(range(20))
        lines = worker.lines("snapshot_writable")
        assert len(lines) == (mode & 0o002 != 0)
        for line in lines:
            assert line["path"] == str(path if where != "root" else changed)
            assert f"every user, since {changed} has mode {mode:04o}" in line["reason"]
            assert "remove the snapshots" in line["remedy"]

    play(tmp_path, scene)
