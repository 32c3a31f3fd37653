"""Claims about what the consumer of the input asks a broker for at once."""

from typing import Any

import pytest

from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.records.decoding import CHUNK_BYTES
from streamdedup.kafka.source import KafkaMember

MIB = 1 << 20


class Made(Exception):  # noqa: N818 - no error
    """A consumer was made."""


@pytest.mark.parametrize(
    ("given", "of_a_partition", "in_all"),
    [({}, 4 * MIB, 16 * MIB), ({"fetch_max_bytes": 8 * MIB}, 4 * MIB, 8 * MIB)],
)
async def test_a_fetch_has_bounds(given: dict[str, int], of_a_partition: int, in_all: int) -> None:
    """As much of a partition as is decided at once, of few partitions; `kafka.consumer` sets others."""
    asked = dict[str, Any]()

    def make(**arguments: object) -> None:
        asked.update(arguments)
        raise Made

    consumer: Any = make
    options = KafkaOptions(bootstrap_servers="broker:9092", group_id="group", consumer=given)
    with pytest.raises(Made):
        await KafkaMember(options, ["in"], Patience(), consumer, "a-meaning").start()
    assert (asked["max_partition_fetch_bytes"], asked["fetch_max_bytes"]) == (
        of_a_partition,
        in_all,
    )
    assert of_a_partition == CHUNK_BYTES
