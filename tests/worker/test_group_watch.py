"""Claims about the words for a group that refuses a worker: at once, once a minute, and by the name last seen."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from streamdedup.kafka.groups import SHARE_REMEDY, InForce
from streamdedup.metrics.counts import Meters
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.server.status import Status
from streamdedup.settings.meaning import whose
from streamdedup.worker.group_watch import (
    LOOK_EVERY_S,
    REMEDY,
    UNSERVED_S_MAX,
    GroupWatch,
)
from tests.worker.beside import lines_beside

OURS, THEIRS = "streamdedup-00", "streamdedup-01"
REBALANCING = InForce(None, ("a at /h",))
STABLE = InForce(THEIRS, ("a at /h", "b at /h"))


class Group:
    """A group that refuses, or not, and what it says when it is asked."""

    def __init__(self) -> None:
        self.refused_since: float | None = None
        self.answer: InForce | Exception = REBALANCING
        self.status = Status("topic", {}, Meters())
        self.partitions, self.is_static, self.asked = {"topic": 3}, True, 0
        self.epoch, self.assigned = -1, frozenset[int]()
        this: Any = self
        self.status.source = this
        self.watch = GroupWatch(this, this, "group", OURS, self.status)

    def refuse(self) -> None:
        """From now on."""
        self.refused_since = asyncio.get_running_loop().time()

    @property
    def says(self) -> str:
        """What is said of the refusal; an empty text without one."""
        return refusal.text if (refusal := self.status.refusal) else ""

    def topics(self) -> dict[str, int]:
        """As a member."""
        return self.partitions

    def assign_anew(self) -> bool:
        """As a member."""
        self.asked += self.is_static
        return self.is_static

    async def in_force(self, group: str) -> InForce:
        """As a cluster."""
        assert group == "group"
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def watched(scene: Callable[[Group], Coroutine[Any, Any, None]]) -> list[Any]:
    """Run `scene` beside the watch, on a virtual clock; the lines."""
    return lines_beside(Group, scene)


def test_members_of_the_new_protocol_are_said_while_the_group_takes_us() -> None:
    """Once a minute, as long as they are there; a broker that does not answer changes nothing."""

    async def scene(group: Group) -> None:
        group.answer = InForce(None, ("ours at /h",), ("theirs at /i",))
        await asyncio.sleep(65)
        assert group.status.refusal is None
        assert group.status.group_shared_with == 1
        group.answer = ConnectionError()
        await asyncio.sleep(30)
        assert group.status.group_shared_with == 1
        group.answer = STABLE
        await asyncio.sleep(100)
        assert group.status.group_shared_with == 0

    lines = watched(scene)
    assert [line["event"] for line in lines] == ["group_of_another_protocol"] * 2
    assert (lines[0]["members"], lines[0]["among_them"]) == (1, ["theirs at /i"])
    assert lines[0]["log_level"] == "warning"


@pytest.mark.finding("partitions-unserved")
def test_partitions_that_no_member_has_are_reported_and_assigned_anew() -> None:
    """Not before some seconds, in which a leader assigns them. Only static members ask."""
    some = InForce(OURS, ("a",), assigned=frozenset({("topic", 1), ("other", 0)}))

    async def scene(group: Group) -> None:
        group.answer = InForce(OURS, ("a",), assigned=frozenset(("topic", n) for n in range(3)))
        await asyncio.sleep(100)
        group.answer = some
        await asyncio.sleep(UNSERVED_S_MAX - 1)
        assert group.asked == 0 and not group.status.unserved
        await asyncio.sleep(LOOK_EVERY_S + 40)
        assert group.status.unserved == {("topic", 0), ("topic", 2)}
        page = pages(group.status, Pulse())["/readyz"]()
        assert "no member of the group has 2 partitions" in page.text and "topic/0" in page.text
        assert group.asked == 2
        group.answer = REBALANCING
        await asyncio.sleep(LOOK_EVERY_S)
        assert not group.status.unserved

    (line,) = watched(scene)
    assert (line["event"], line["log_level"]) == ("partitions_unserved", "warning")
    assert (line["partitions"], line["among_them"]) == (2, ["topic/0", "topic/2"])
    assert "asked to assign" in line["remedy"]

    async def led(group: Group) -> None:
        group.is_static, group.answer = False, some
        await asyncio.sleep(90)
        assert group.asked == 0

    assert ["restart a worker" in line["remedy"] for line in watched(led)] == [True, True]


def test_a_share_group_is_named_with_what_ends_the_wait() -> None:
    """It refuses us with members or without, until it is deleted; no word says that it ends by itself."""
    remedy = SHARE_REMEDY.format(group="group")

    async def scene(group: Group) -> None:
        group.answer = InForce(None, ("theirs at /i",), share=True)
        group.refuse()
        await asyncio.sleep(55)
        assert "joined by 1 member as share (a share group (KIP-932)" in group.says
        group.answer = InForce(None, (), share=True)
        await asyncio.sleep(50)
        assert "joined by 0 members as share" in group.says
        assert remedy in group.says

    lines = watched(scene)
    assert [(line["in_force"], line["members"]) for line in lines] == [("share", 1), ("share", 0)]
    assert lines[0]["among_them"] == ["theirs at /i"]
    assert {line["remedy"] for line in lines} == {remedy}
    assert "--delete --group group" in remedy
    assert REMEDY not in str(lines)


def test_a_refusal_by_members_of_the_new_protocol_is_named() -> None:
    """Brokers may keep both protocols apart; such a group has no assignor to name."""

    async def scene(group: Group) -> None:
        group.answer = InForce(None, (), ("theirs at /i",))
        group.refuse()
        await asyncio.sleep(5)
        assert "the protocol of KIP-848" in group.says

    (line,) = watched(scene)
    assert (line["event"], line["in_force"]) == ("group_of_another_configuration", "consumer")
    assert line["among_them"] == ["theirs at /i"]


@pytest.mark.parametrize(
    ("assignor", "said"),
    [
        ("sticky", "a worker of an older version or another aiokafka program"),
        (THEIRS, "workers with another key"),
        ("range", "another program"),
        ("cooperative-sticky", "another program"),
    ],
)
def test_the_name_says_who_is_there(assignor: str, said: str) -> None:
    """Ours begin with our name; those of before were called as aiokafka's own."""
    assert said in whose(assignor)
