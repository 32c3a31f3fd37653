"""What tests need of a broker that not every version has: `@pytest.mark.needs_broker("topic ids")`.

A feature is known by the version of a request that brokers take since they have it, so a broker that was given is
asked. Where a test starts brokers of its own, their version tells.
"""

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tests.broker.versions import Kafka

API_VERSIONS = 18
WITHIN_S = 10.0


@dataclass(frozen=True)
class Feature:
    """What brokers have from the version `since` on; without ZooKeeper from `with_controllers` on, if that is later."""

    since: str
    request: int
    version: int
    """A broker that has the feature takes the request (its API key) in this version."""
    with_controllers: str | None = None

    def is_in(self, kafka: Kafka) -> bool:
        """Whether brokers of that version, as the tests start them, have it."""
        since = self.with_controllers if kafka.has_controllers else None
        return kafka.is_from(since or self.since)

    def is_served(self, versions: Mapping[int, int]) -> bool:
        """Whether a broker has it that takes these versions of requests at most."""
        return versions.get(self.request, -1) >= self.version

    def __str__(self) -> str:
        later = f" ({self.with_controllers} without ZooKeeper)" if self.with_controllers else ""
        return f"Kafka {self.since}{later}"


AHEAD, TELLS_WRITERS = "message.timestamp.after.max.ms", "descriptions of producers"
FEATURES: Mapping[str, Feature] = {
    "topic ids": Feature("2.8", request=3, version=10),
    TELLS_WRITERS: Feature("2.8", request=61, version=0),
    "PEM trust stores": Feature("2.7", request=22, version=4),
    "SCRAM users over the admin client": Feature(
        "2.7", request=50, version=0, with_controllers="3.5"
    ),
    AHEAD: Feature("3.6", request=24, version=4),
    # Where exactly between 2.8 and 3.3, and between 3.3 and 4.1, was not looked for.
    "topics that are known at the start": Feature("3.3", request=11, version=9),
    "TLS alerts about a certificate that is missing": Feature("3.3", request=11, version=9),
    "clusters without ZooKeeper": Feature("3.3", request=11, version=9),
    "the group protocol of KIP-848": Feature("4.0", request=68, version=1),
    "share groups": Feature("4.2", request=78, version=2),
    "appends of records of negative size": Feature("4.1", request=1, version=18),
}


def served_by(bootstrap: str) -> dict[int, int]:
    """Ask a broker for the requests that it takes: API keys, with the newest version of each."""
    host, port = bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), WITHIN_S) as connection:
        connection.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, -1))
        with connection.makefile("rb") as answer:
            (size,) = struct.unpack(">i", answer.read(4))
            data = answer.read(size)
    _, error, count = struct.unpack_from(">ihi", data)
    if error:
        raise ConnectionError(f"{bootstrap}: ApiVersions was answered with error {error}")
    return {api: newest for api, _, newest in struct.iter_unpack(">hhh", data[10 : 10 + 6 * count])}
