"""Rules 4 and 5 of delivery, each by a real broker: the commit's note, births, and gaps.

docs/delivery.md tells which test holds which rule.
"""

import struct
import threading
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from streamdedup.kafka.offsets import Note
from streamdedup.settings.meaning import Meaning
from tests.broker.proxy import Action, Api, Frame, Hold, Proxy, Replace
from tests.broker.topics import (
    cluster_id,
    delete_records,
    topic_id,
)
from tests.deployment import Deployment, keyed
from tests.local import Start, until

# --- rule 4: the commit's note, and births ---


@pytest.mark.rule(4)
async def test_the_note_tells_the_logs_and_the_label(deployment: Deployment, start: Start) -> None:
    """With the offset is committed to which input, output, cluster and meaning it belongs, and the output's end."""
    worker = start(deployment)
    deployment.feed(keyed(range(100), 1))
    await worker.consumed(100)
    bootstrap, source = deployment.bootstrap, deployment.source
    assert await committed_note(deployment) == Note(
        cluster_id=cluster_id(bootstrap),
        input_id=topic_id(bootstrap, source),
        output_id=topic_id(bootstrap, deployment.sink),
        label=worker.label,
        partitions=1,
        born=1,
        atomic=True,
        meaning=Meaning.of(worker.worker._settings).check,
    )


async def committed_note(deployment: Deployment) -> Note | None:
    """What was committed beside the offset."""
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=deployment.bootstrap)
    await admin.start()
    try:
        (found,) = (await admin.list_consumer_group_offsets(deployment.group)).values()
    finally:
        await admin.close()
    return Note.decode(found.metadata)


# --- rule 5: gaps ---


@pytest.mark.rule(5)
async def test_an_output_trimmed_while_it_is_folded(deployment: Deployment, start: Start) -> None:
    """What is deleted under a fold is a gap like any other: never folded over, never tried again blindly."""
    first = start(deployment)
    for consumed, events in ((1000, range(1000)), (1100, range(1000, 1100))):
        deployment.feed(keyed(events, 1))
        await first.consumed(consumed)
    await first.stop()
    deployment.config["snapshot"]["directory"] = str(deployment.directory / "elsewhere")
    trimmed, asked = threading.Event(), threading.Event()

    def fold_slowly(frame: Frame) -> Action | None:
        if (
            frame.api != Api.FETCH
            or frame.is_answer
            or deployment.sink.encode() not in frame.message
        ):
            return None
        if read_first.is_set():
            asked.set()
            return Hold(trimmed)
        read_first.set()
        return Replace(frame.message.replace(FOLD_FETCH_BYTES, struct.pack(">i", 1000)))

    read_first = threading.Event()
    with Proxy(deployment.bootstrap, fold_slowly) as proxy:
        second = start(deployment, proxy)
        await until(asked.is_set, second.lines)
        delete_records(deployment.bootstrap, deployment.sink, {0: first.label})
        trimmed.set()
        assert "sink.on_gap" in await second.stopped()
        assert "no longer holds offset" in second.lines("doubt")[0]["error"]
        await second.stop()


FOLD_FETCH_BYTES = struct.pack(">i", 4 << 20)
