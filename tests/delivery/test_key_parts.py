"""Claims about keys of several parts, and normalized ones: in the input, in the middle topic, and in the output."""

import json
from typing import Any

from streamdedup.events import Headers
from streamdedup.kafka.records.records import Record
from tests.memory import Stage, over
from tests.staged import INPUTS, MemoryStage


@over(MemoryStage)
async def test_all_stages_and_the_fold_find_the_same_key(stage: MemoryStage) -> None:
    """Inserts and deletes of one row are one key for each tenant, in whichever partitions; also after a restart."""
    config = stage.config
    config["key"] = {"parts": [{"header": "tenant"}, {"field": ["after.id", "/before/id"]}]}
    changes: list[tuple[str, dict[str, Any]]] = [
        (tenant, change)
        for tenant in ("acme", "other")
        for number in range(20)
        for change in ({"after": {"id": number}}, {"before": {"id": number}, "after": None})
    ]
    for _ in range(2):  # the second worker has no snapshot, so it folds the output
        for at, (tenant, change) in enumerate(changes):
            headers: Headers = (("tenant", tenant.encode()),)
            value = json.dumps(change).encode()
            log = stage.broker.log(stage.source, at % INPUTS)
            log.append([Record.of(stage.broker.now_ms(), None, value, headers)], None)
        async with stage.start() as worker:
            await worker.consumed(len(changes))
        stage.deployment.delete_snapshots()
    kept = [
        (dict(event.headers)["tenant"], (change.get("after") or change["before"])["id"])
        for events in stage.broker.read_all(config["sink"]["topic"])
        for event in events
        for change in [json.loads(event.value or b"")]
    ]
    assert sorted(kept) == [(tenant, n) for tenant in (b"acme", b"other") for n in range(20)]


@over(Stage)
async def test_keys_are_known_by_what_they_are_normalized_to(stage: Stage) -> None:
    """In the input as in the output, which passed as it came."""
    stage.config["key"]["normalize"] = "lowercase"
    first = [b" Anna", "ÄNNE".encode(), b"anna\t", "änne".encode(), b"BERT", b"\xff"]
    for keys in (first, [b"ANNA", "Änne ".encode(), b"bert", b"Cleo"]):
        stage.broker.produce(stage.source, [(0, key, b"value") for key in keys])
        await stage.to_the_end()
        stage.deployment.delete_snapshots()  # so that the second worker folds the output
    assert [event.key for event in stage.output] == [*first[:2], b"BERT", b"\xff", b"Cleo"]
