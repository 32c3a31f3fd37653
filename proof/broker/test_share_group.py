"""A share group (KIP-932) under the worker's group id, on a real broker."""

import asyncio
import socket
import struct
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from streamdedup.commands.reset import plan
from streamdedup.commands.reset_plan import Target
from streamdedup.errors import DeliveryError
from streamdedup.settings import load
from streamdedup.worker import group_watch
from tests.broker.base import DEADLINE_S, Broker, admin_client
from tests.broker.topics import committed
from tests.deployment import Deployment
from tests.local import Start
from tests.memory import page

pytestmark = pytest.mark.needs_broker("share groups")

HEARTBEAT = 76
MEMBER = urlsafe_b64encode(UUID(int=7).bytes).decode().rstrip("=")
CLIENT = b"somebody-else"
JOIN, LEAVE = 0, -1
COORDINATOR_LOADS = {14, 15, 16}


def compact(text: str) -> bytes:
    """Return a compact string of the wire, of at most 126 bytes."""
    return bytes([len(text) + 1]) + text.encode()


def beat(deployment: Deployment, epoch: int, topics: Sequence[str] = ()) -> int:
    """Send a ShareGroupHeartbeat; return the code of its answer."""
    host, port = deployment.bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
    names = bytes([len(topics) + 1]) + b"".join(map(compact, topics)) if topics else b"\0"
    head = struct.pack(">hhih", HEARTBEAT, 1, 7, len(CLIENT)) + CLIENT + b"\0"
    body = compact(deployment.group) + compact(MEMBER) + struct.pack(">i", epoch) + b"\0"
    data = head + body + names + b"\0"
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(struct.pack(">i", len(data)) + data)
        with connection.makefile("rb") as answer:
            (size,) = struct.unpack(">i", answer.read(4))
            found: int = struct.unpack_from(">ibih", answer.read(size))[3]
    return found


async def beats(deployment: Deployment, epoch: int) -> None:
    """Join the group as a share consumer, or leave it."""
    topics = [deployment.source] if epoch == JOIN else []
    while (code := await asyncio.to_thread(beat, deployment, epoch, topics)) in COORDINATOR_LOADS:
        await asyncio.sleep(0.1)
    assert code == 0


async def test_a_share_group_is_named_with_what_ends_the_wait(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its members, and also once it is empty, which does not admit the worker; it joins once it is deleted."""
    monkeypatch.setattr(group_watch, "NAMED_S_MAX", 0.0)
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    # To ask for offsets has a new broker make the topic of the groups, which no heartbeat does.
    await asyncio.to_thread(committed, deployment.bootstrap, deployment.group, deployment.source)
    await beats(deployment, JOIN)
    async with start(deployment) as worker:
        lines = await worker.logged("group_of_another_configuration")
        assert (lines[0]["in_force"], lines[0]["members"]) == ("share", 1)
        assert lines[0]["among_them"][0].startswith(f"{CLIENT.decode()} at ")
        assert (
            f"kafka-share-groups.sh --bootstrap-server SERVER --delete --group {deployment.group}"
            in (lines[0]["remedy"])
        )
        await beats(deployment, LEAVE)
        text = "joined by 0 members as share"
        await worker.until(lambda: text in page(worker).text, "empty group")
        await asyncio.sleep(3 * group_watch.TURN_S)
        assert not worker.worker.deliveries
        assert "it takes the group once" not in str(worker.lines())
        with pytest.raises(DeliveryError, match="is a share group"):
            await plan(load(deployment.write_config()), Target("earliest"), forget=False)
        admin = admin_client(deployment.bootstrap)
        deleted = admin.delete_consumer_groups([deployment.group])[deployment.group]
        await asyncio.to_thread(deleted.result, DEADLINE_S)
        await worker.live(2)
