"""`streamdedup lists add`, `remove` and `undo`: single changes of a blocklist, written to its control topic."""

import asyncio
from collections.abc import Sequence

from streamdedup.errors import ConfigError, DeliveryError, MalformedError
from streamdedup.kafka.append import append
from streamdedup.kafka.base import ANSWER_S_MAX
from streamdedup.kafka.client.patience import is_away
from streamdedup.kafka.cluster import kafka_cluster, soon
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.lists.control import Op, control_key, control_topic, message
from streamdedup.settings import Settings

WRITE_S_MAX = 60.0
RECORDS_AT_ONCE = 10_000
UNANSWERED = "the broker does not answer, and nothing was written; check it, and try again"


async def write(
    settings: Settings, op: Op, entries: Sequence[bytes], reason: str, actor: str
) -> int:
    """Write the change of each of `entries` to the control topic; return their number.

    What undoes a change is written to each partition: before partitions were added, an entry may have been in another.

    On every worker, the blocklist then blocks them, lets them pass, or decides by its file again. ConfigError if there
    is no control topic, or if an entry is not one. DeliveryError if the broker refuses.
    """
    topic = settings.blocklist.control_topic
    if topic is None:
        raise ConfigError(
            "blocklist.control_topic is not set, so no worker would read the change; set it, or build the list again"
        )
    normal = normalizer(settings.key.normalize, settings.key.rules)
    value = message(op, reason, actor)
    records = [(_record_key(n, entry, normal), value) for n, entry in enumerate(entries, 1)]
    async with soon(kafka_cluster, settings.kafka, UNANSWERED) as cluster:
        async with asyncio.timeout(ANSWER_S_MAX):
            found = await control_topic(cluster, topic)
        partitions = range(found.partitions) if op == "undo" else (None,)
        try:
            for at in range(0, len(records), RECORDS_AT_ONCE):
                async with asyncio.timeout(WRITE_S_MAX):
                    part = records[at : at + RECORDS_AT_ONCE]
                    await append(settings.kafka, topic, part, partitions)
        except Exception as error:
            if not is_away(error):
                raise
            raise DeliveryError(
                f"{topic} did not take all changes ({type(error).__name__}); check the brokers, then write all of them"
                " again, which does no harm"
            ) from error
    return len(records)


def _record_key(number: int, entry: bytes, normal: Normalizer | None) -> bytes:
    try:
        return control_key(entry, normal)
    except MalformedError as reason:
        raise ConfigError(f"entry {number} is not valid: {reason}; nothing was written") from None
