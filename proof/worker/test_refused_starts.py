"""More claims about a start that is refused: by the group of the first stage, or halfway."""

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, InvalidSessionTimeoutError

from streamdedup.kafka.topics import RIGHTS_UNKNOWN, Topology
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.testing.source import MemoryMember
from tests.memory import over
from tests.worker.test_refused_starts import RIGHTS_MISSING, Stage


@pytest.mark.parametrize(("topic", "right"), RIGHTS_MISSING)
@over(Stage)
async def test_what_a_refused_start_made_is_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, topic: str, right: str
) -> None:
    """If the broker reports rights only on topics that are there."""
    monkeypatch.setattr(Topology, "rights_on", lambda *_: RIGHTS_UNKNOWN)
    stage.repartition()
    stage.lacks(topic, right)
    before = stage.topics
    said = await stage.refused(f"the right {right} on topic")
    (line,) = [line for line in said.splitlines() if "this start made" in line]
    assert all(name in line for name in stage.topics - before)
    assert "delete them only if" in line


@pytest.mark.parametrize("error", [GroupAuthorizationFailedError, InvalidSessionTimeoutError])
@over(Stage)
async def test_a_first_stage_that_its_group_refuses_makes_no_topic(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The middle topic is made once that group has admitted the worker."""
    enter = MemoryMember._enter

    def refusing(self: MemoryMember, now: float) -> str:
        if self._group_id.endswith("-repartition"):
            raise error
        return enter(self, now)

    monkeypatch.setattr(MemoryMember, "_enter", refusing)
    stage.repartition()
    await stage.refused(error.__name__)
    assert stage.topics == {stage.deployment.source}


@pytest.mark.parametrize("suffix", ["", "-repartition"])
@over(Stage)
async def test_a_group_that_may_not_be_joined_is_named_before_the_middle_is_made(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Of both stages, because the second stage can only join once the middle topic is there."""
    refused = f"{stage.deployment.group}{suffix}"

    async def may_join(_self: MemoryCluster, group: str) -> bool:
        return group != refused

    monkeypatch.setattr(MemoryCluster, "may_join", may_join)
    stage.repartition()
    await stage.refused(f"the right Read on group {refused} is missing")
    assert stage.topics == {stage.deployment.source}


@over(Stage)
async def test_a_first_stage_of_another_configuration_makes_no_topic(stage: Stage) -> None:
    """It waits for its group, and the topic of dead letters that it would write to is not made."""
    stage.repartition()
    first = stage.start()
    await first.live(3)
    made = stage.topics
    stage.set(sink={"dead_letter_topic": "misspelled"}, key={"normalize": "trim"})
    second = stage.start()
    await second.logged("group_of_another_configuration")
    await second.stop()
    assert stage.topics == made
