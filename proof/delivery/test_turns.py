"""More claims about work that takes long: each key and each shard has a turn of the loop."""

import asyncio
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import pytest

from streamdedup.delivery import turns
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.turns import KEYS_A_TURN
from streamdedup.keys.extract import Extractor
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.text import TextNormalizer
from streamdedup.threads import Lane
from tests.keys.test_extract import batch_of
from tests.memory import Stage, over


async def test_keys_in_other_alphabets_leave_the_loop_its_turns() -> None:
    """No lane reads them, since each takes little; so others have a turn after so many of them."""
    lower, turn, read_in = normalizer("lowercase"), 0, list[int]()
    assert isinstance(lower, TextNormalizer)

    def noted(text: str) -> str:
        read_in.append(turn)
        return lower.of_text(text)

    extractor = Extractor("key", normalizer=replace(lower, of_text=noted))
    cells: list[bytes | None] = [f"MÜLLER{n}".encode() for n in range(3 * KEYS_A_TURN + 1)]
    batch = batch_of([b"{}"] * len(cells), cells, [[]] * len(cells))
    keys = asyncio.create_task(turns.keys_of(batch, extractor, Lane(1)))
    while not keys.done():
        turn += 1
        await asyncio.sleep(0)
    assert (await keys).keys[7] == "müller7".encode()
    assert [len([*each]) for _, each in groupby(read_in)] == [KEYS_A_TURN] * 3 + [1]


@over(partial(Stage, partitions=4))
async def test_shards_decide_in_turns(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of four partitions come at once; no two of their shards decide in the same turn of the loop."""
    seen, decide = list[str](), Shard.decide

    def noted(shard: Shard, *arguments: Any, **named: Any) -> Any:
        seen.append("decides")
        asyncio.get_running_loop().call_soon(seen.append, "turn")
        return decide(shard, *arguments, **named)

    monkeypatch.setattr(Shard, "decide", noted)
    worker = await stage.started()
    stage.broker.produce(stage.source, [(n % 4, b"%d" % n, b"{}") for n in range(8_000)])
    await worker.until(lambda: len(stage.output) == 8_000, "all")
    assert seen.count("decides") >= 4
    assert seen[::2] == ["decides"] * (len(seen) // 2)
