"""Claims about what the consumer of the input asks a broker for at once."""

from typing import Any

import pytest

from streamdedup.kafka import source
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.options import KafkaOptions

MIB = 1 << 20


@pytest.mark.parametrize(
    ("given", "of_a_partition", "in_all"),
    [
        ({}, 4 * MIB, 16 * MIB),
        ({"fetch_max_bytes": 8 * MIB}, 4 * MIB, 8 * MIB),
        ({"max_partition_fetch_bytes": MIB}, MIB, 16 * MIB),
    ],
)
async def test_a_fetch_has_bounds(
    given: dict[str, int], of_a_partition: int, in_all: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch asks for 4 MiB of a partition and 16 MiB in all, unless `kafka.consumer` says otherwise."""
    asked = dict[str, Any]()

    def make(**arguments: object) -> None:
        asked.update(arguments)
        raise LookupError

    monkeypatch.setattr(source, "ColumnarConsumer", make)
    options = KafkaOptions(bootstrap_servers="broker:9092", group_id="group", consumer=given)
    with pytest.raises(LookupError):
        await source.KafkaMember(options, ["in"], Patience(), "a-meaning").start()
    assert (asked["max_partition_fetch_bytes"], asked["fetch_max_bytes"]) == (
        of_a_partition,
        in_all,
    )
