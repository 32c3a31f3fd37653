"""What becomes of a shard if somebody chooses keys that make its filter slow: a warning, then it stops by name."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np

from streamdedup.delivery.lifecycle import State
from streamdedup.testing import MemoryBroker, connected_to
from tests.chosen import for_one_slot, murmur3_key
from tests.deployment import Deployment
from tests.filters.cases import HASH_KEY
from tests.local import LocalWorker, Start, on_virtual_clock

CHOSEN = [murmur3_key(*digest) for digest in for_one_slot(400).tolist()]
OTHERS = [b"key %d" % number for number in np.arange(200)]


class Stage:
    """A worker over one partition, under murmur3, which the operator names."""

    def __init__(self, directory: Path, start: Start) -> None:
        self.deployment = Deployment("memory:1", directory, partitions=1)
        self.deployment.config["key"] = {"from": "value"}
        self.deployment.config["filter"] |= {
            "kind": "exact",
            "capacity": 5000,
            "hash": "murmur3",
        }
        self.broker = MemoryBroker()
        for name in (self.deployment.source, self.deployment.sink):
            self.broker.create_topic(name, 1)
        self._start = start

    def start(self) -> LocalWorker:
        """Start a worker."""
        return self._start(self.deployment, connect=connected_to(self.broker))

    async def to_the_end(self) -> LocalWorker:
        """Start a worker, let it commit the end of the input, and drain it."""
        group, source = self.deployment.config["kafka"]["group_id"], self.deployment.source
        end = self.broker.log(source, 0).end
        async with self.start() as worker:
            await worker.until(lambda: self.broker.committed(group, source).get(0) == end, "end")
        return worker

    def feed(self, keys: list[bytes]) -> None:
        """Append events of these keys to the input."""
        self.broker.produce(self.deployment.source, [(0, None, key) for key in keys])

    @property
    def emitted(self) -> list[bytes | None]:
        """The keys in the output."""
        return [event.value for event in self.broker.read_all(self.deployment.sink)[0]]


def play(directory: Path, scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Run `scene` on a virtual clock."""
    on_virtual_clock(lambda start: scene(Stage(directory, start)))


def test_a_refused_key_stops_the_shard_by_name(tmp_path: Path) -> None:
    """Not a doubt, which every fold would meet again; under another hash all goes on: no loss, no double."""

    async def scene(stage: Stage) -> None:
        stage.feed([*OTHERS[:100], *CHOSEN[:200]])
        async with stage.start() as worker:
            (warning,) = await worker.logged("filter_strained")
            assert (warning["hash"], warning["partition"]) == ("murmur3", 0)
            assert "siphash" in warning["remedy"]
            stage.feed([*CHOSEN, *OTHERS])
            said = await worker.stopped()
            assert "filter.hash murmur3" in said
            assert "set filter.hash: siphash" in said
            await asyncio.sleep(60)
            assert worker.worker.deliveries[0].state is State.STOPPED
            assert not worker.lines("doubt")
        async with stage.start() as again:  # it folds what was committed, and meets the key there
            assert await again.stopped() == said
            assert not again.lines("shard_live")
            assert not again.lines("doubt")
        secret = tmp_path / "secret"
        secret.write_text(HASH_KEY.hex())
        secret.chmod(0o600)
        stage.deployment.config["filter"] |= {"hash": "siphash", "hash_key_file": str(secret)}
        last = await stage.to_the_end()
        assert not last.lines("filter_strained")
        assert sorted(filter(None, stage.emitted)) == sorted([*OTHERS, *CHOSEN])

    play(tmp_path, scene)


def test_half_of_that_is_said_once(tmp_path: Path) -> None:
    """The shard goes on; a restart without its snapshots says it again, from the fold."""

    async def scene(stage: Stage) -> None:
        stage.feed([*CHOSEN[-190:], *OTHERS])
        first = await stage.to_the_end()
        stage.feed([b"one more"])
        stage.deployment.delete_snapshots()
        second = await stage.to_the_end()
        for worker in (first, second):
            assert len(worker.lines("filter_strained")) == 1
            assert not worker.lines("shard_stopped")
        assert len(stage.emitted) == 391

    play(tmp_path, scene)


def test_random_keys_strain_nothing(tmp_path: Path) -> None:
    """Up to the capacity, and no line is written."""

    async def scene(stage: Stage) -> None:
        stage.feed([b"%d" % number for number in range(5000)])
        worker = await stage.to_the_end()
        assert not worker.lines("filter_strained")

    play(tmp_path, scene)
