"""What becomes of a shard if somebody chooses keys that make its filter slow: a warning, then it stops by name."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from streamdedup.delivery.lifecycle import State
from tests import memory
from tests.chosen import for_one_slot, murmur3_key
from tests.filters.cases import HASH_KEY
from tests.local import Start
from tests.memory import over

CHOSEN = [murmur3_key(*digest) for digest in for_one_slot(400).tolist()]
OTHERS = [b"key %d" % number for number in np.arange(200)]


class Stage(memory.Stage):
    """A worker over one partition, under murmur3, which the operator names."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start)
        self.config["key"] = {"from": "value"}
        self.config["filter"] |= {"kind": "exact", "capacity": 5000, "hash": "murmur3"}

    def send(self, keys: list[bytes]) -> None:
        """Append events of these keys to the input."""
        self.broker.produce(self.source, [(0, None, key) for key in keys])


@pytest.mark.finding("keys-chosen")
@over(Stage)
async def test_a_refused_key_stops_the_shard_by_name(stage: Stage, tmp_path: Path) -> None:
    """Not a doubt, which every fold would meet again; under another hash all goes on: no loss, no double."""
    stage.send([*OTHERS[:100], *CHOSEN[:200]])
    async with stage.start() as worker:
        (warning,) = await worker.logged("filter_strained")
        assert (warning["hash"], warning["partition"]) == ("murmur3", 0)
        assert "siphash" in warning["remedy"]
        stage.send([*CHOSEN, *OTHERS])
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
    stage.config["filter"] |= {"hash": "siphash", "hash_key_file": str(secret)}
    last = await stage.to_the_end()
    assert not last.lines("filter_strained")
    assert sorted(event.value or b"" for event in stage.output) == sorted([*OTHERS, *CHOSEN])


@over(Stage)
async def test_half_of_that_is_said_once(stage: Stage) -> None:
    """The shard goes on; a restart without its snapshots says it again, from the fold."""
    stage.send([*CHOSEN[-190:], *OTHERS])
    first = await stage.to_the_end()
    stage.send([b"one more"])
    stage.deployment.delete_snapshots()
    second = await stage.to_the_end()
    for worker in (first, second):
        assert len(worker.lines("filter_strained")) == 1
        assert not worker.lines("shard_stopped")
    assert len(stage.output) == 391


@over(Stage)
async def test_random_keys_strain_nothing(stage: Stage) -> None:
    """Up to the capacity, and no line is written."""
    stage.send([b"%d" % number for number in range(5000)])
    worker = await stage.to_the_end()
    assert not worker.lines("filter_strained")
