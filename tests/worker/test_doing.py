"""Claims about what a worker does when it is asked over HTTP, on a broker in memory."""

import asyncio
from pathlib import Path

import pytest

from streamdedup.errors import StreamdedupError
from streamdedup.server.doing import Doing
from tests.deployment import keyed
from tests.lists.numbered import build_lists
from tests.local import LocalWorker, Start, on_virtual_clock
from tests.memory_deployment import MemoryDeployment


@pytest.fixture
def deployment(tmp_path: Path) -> MemoryDeployment:
    """Two partitions, and both lists; snapshots are due in an hour."""
    made = MemoryDeployment(tmp_path, partitions=2).create()
    made.config["key"] = {"from": "key", "normalize": "email"}
    made.config |= build_lists(tmp_path)
    return made


def doing(worker: LocalWorker) -> Doing:
    """What it offers."""
    return worker.worker.doing


def test_a_snapshot_is_saved_when_it_is_asked_for(deployment: MemoryDeployment) -> None:
    """Of each shard with something new, at once; again, nothing is left to save."""
    deployment.feed(keyed([1, 2, 3], 2))

    async def scene(start: Start) -> None:
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.live()
            await worker.consumed(3)
            began = asyncio.get_running_loop().time()
            done = await doing(worker).snapshot()
            assert done.more == {"saving": 2, "waiting": 0}
            await worker.logged("snapshot_saved", 2)
            assert asyncio.get_running_loop().time() - began < 10
            again = await doing(worker).snapshot()
            assert again.more == {"saving": 0, "waiting": 0}
            assert "2 shards of which all is saved" in again.sentence

    on_virtual_clock(scene)


def test_before_it_has_shards_nothing_is_saved(deployment: MemoryDeployment) -> None:
    """A worker that has no partition says so; so does one without a filter."""

    async def scene(start: Start) -> None:
        worker = start(deployment, connect=deployment.connect)
        assert "no partition is assigned" in (await doing(worker).snapshot()).sentence
        assert (await doing(worker).reload()).sentence == "this process has no lists in force yet"
        await worker.live()
        await worker.stop()
        deployment.config["filter"] = {"kind": "none"}
        del deployment.config["snapshot"]
        worker = start(deployment, connect=deployment.connect)
        assert "no filter" in (await doing(worker).snapshot()).sentence

    on_virtual_clock(scene)


def test_lists_are_loaded_when_it_is_asked_for(
    deployment: MemoryDeployment, tmp_path: Path
) -> None:
    """The answer comes once they are: what is in force, and why a file is not; the next one is taken again."""
    path = tmp_path / "block.list"
    whole = path.read_bytes()

    async def scene(start: Start) -> None:
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.live()
            first = await doing(worker).reload()
            assert [each["refused"] for each in first.more["lists"]] == [None, None]
            path.write_bytes(b"no list")
            second = await doing(worker).reload()
            _, blocked = second.more["lists"]
            assert blocked["version"] == first.more["lists"][1]["version"]
            assert str(path) in blocked["refused"]
            assert "stays in force" in second.sentence
            assert len(worker.lines("list_refused")) == 1
            path.write_bytes(whole)
            assert (await doing(worker).reload()).more == first.more

    on_virtual_clock(scene)


def test_keys_are_checked_against_what_is_in_force(
    deployment: MemoryDeployment, tmp_path: Path
) -> None:
    """Not against the files: one that is refused since changes nothing."""
    keys = [b"User5@example.com", b"a@junk.org", b"user15@junk.org", b"new@x.org", b"none"]

    async def scene(start: Start) -> None:
        worker = start(deployment, connect=deployment.connect)
        with pytest.raises(StreamdedupError, match="no lists in force"):
            doing(worker).check(keys)
        await worker.live()
        before = doing(worker).check(keys)
        (tmp_path / "block.list").write_bytes(b"no list")
        await doing(worker).reload()
        assert doing(worker).check(keys) == before
        verdicts = [line.split(b"\t")[:3] for line in before.splitlines()]
        assert verdicts[:4] == [
            [b"blocked", b"address", b"file"],
            [b"blocked", b"domain", b"file"],
            [b"pass", b"allowlist", b"file"],
            [b"pass", b"-", b"-"],
        ]
        await worker.stop()

    on_virtual_clock(scene)


def test_a_drain_ends_the_worker(deployment: MemoryDeployment) -> None:
    """A moment later, so that who asked has the answer; asked twice, it ends once."""

    async def scene(start: Start) -> None:
        worker = start(deployment, connect=deployment.connect)
        await worker.live()
        for _ in range(2):
            done = await doing(worker).drain()
            assert "as at SIGTERM" in done.sentence
        assert not worker.task.done()
        await worker.task
        assert len(worker.lines("stopped")) == 1

    on_virtual_clock(scene)
