"""Records from before Kafka 0.11, of a broker that still writes them: named, at the start and when met, never read."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.broker.base import DEADLINE_S, Unavailable, wait_until
from tests.broker.plugin import do_without
from tests.broker.process import ProcessBroker
from tests.broker.topics import (
    alter_topic,
    create_topic,
    delete_records,
    read_all,
    unique_name,
)
from tests.broker.versions import Kafka
from tests.deployment import Deployment, keyed
from tests.local import Start

WRITES_IT = Kafka("2.5.1")  # Kafka 3 takes message.format.version, too, and ignores it
FORMATS = ["0.9.0", "0.10.2"]  # magic 0 and 1


@pytest.fixture(scope="module")
def old_broker() -> Iterator[ProcessBroker]:
    """One that writes records in the format that a topic is set to."""
    try:
        made = ProcessBroker(WRITES_IT)
    except Unavailable as unavailable:
        do_without(f"no Kafka {WRITES_IT}: {unavailable}")
    with closing(made):
        made.format()
        made.start()
        yield made


def write_in(broker: ProcessBroker, deployment: Deployment, version: str) -> None:
    """Have the broker write what comes to the input in the format of that version.

    It reports the setting at once, but heeds it later: from ZooKeeper, one topic after the other. So another topic is
    set after the input; when the broker has begun with that one, it is done with the input.
    """
    after = unique_name("after")
    create_topic(deployment.bootstrap, after)
    for topic in (deployment.source, after):
        alter_topic(deployment.bootstrap, topic, message_format_version=version)
    wait_until(
        lambda: broker.has_logged(f"Processing override for entityPath: topics/{after} "),
        DEADLINE_S,
        lambda: f"the broker does not heed the settings of {after}",
    )


def said_of(deployment: Deployment, offset: int) -> str:
    """How the refusal begins."""
    return (
        f"{deployment.source}/0 has records of a format from before Kafka 0.11 at offset {offset},"
        " which cannot be read"
    )


@pytest.mark.broker
@pytest.mark.parametrize("version", FORMATS)
async def test_they_stop_their_partition_behind_what_can_be_read(
    old_broker: ProcessBroker, tmp_path: Path, start: Start, version: str
) -> None:
    """Also if damage is skipped: what lies before them is emitted; once retention has removed them, the rest is."""
    deployment = Deployment(old_broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.config["source"]["on_damaged"] = "skip"
    deployment.feed(keyed(range(20), 1))
    write_in(old_broker, deployment, version)
    deployment.feed(keyed(range(20, 30), 1))
    write_in(old_broker, deployment, str(WRITES_IT)[:3])
    deployment.feed(keyed(range(30, 40), 1))
    async with start(deployment) as worker:
        assert (await worker.stopped()).startswith(said_of(deployment, 20))
        assert not worker.lines("batch_skipped")
    values = [value for _, _, value, *_ in keyed(range(40), 1)]
    emitted = [record.value for record in read_all(deployment.bootstrap, deployment.sink)]
    assert emitted == values[:20]
    await asyncio.to_thread(delete_records, deployment.bootstrap, deployment.source, {0: 30})
    deployment.config["source"]["on_gap"] = "skip"
    async with start(deployment) as worker:
        await worker.committed(40)
    emitted = [record.value for record in read_all(deployment.bootstrap, deployment.sink)]
    assert emitted == [*values[:20], *values[30:]]


@pytest.mark.broker
@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("command", [["config", "check", "--connect"], ["run", "-c"]])
def test_a_start_is_refused_if_they_are_next(
    old_broker: ProcessBroker, tmp_path: Path, version: str, command: list[str]
) -> None:
    """By a check, too: status 2, with topic, partition, offset and remedy."""
    deployment = Deployment(old_broker.bootstrap_servers, tmp_path, partitions=1).create()
    write_in(old_broker, deployment, version)
    deployment.feed(keyed(range(10), 1))
    program = [sys.executable, "-m", "streamdedup", *command, str(deployment.write_config())]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 2, done.stderr
    assert said_of(deployment, 0) in done.stdout + done.stderr
