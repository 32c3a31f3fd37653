"""What doctor says of a deployment with `source.repartition`: of both stages."""

from pathlib import Path

import pytest

from streamdedup.doctor.lines import Status
from tests.doctor.stage import KEY, Stage


@pytest.fixture
def staged(tmp_path: Path) -> Stage:
    """One input, a middle topic of two partitions, an output."""
    stage = Stage(tmp_path)
    stage.config["source"]["repartition"] = {"topic": "middle", "partitions": 2}
    return stage


def test_before_the_first_start_the_middle_topic_is_to_be_made(staged: Stage) -> None:
    """Nothing is wrong, and the lines about it say so."""
    staged.feed([KEY] * 3)
    lines = staged.look().lines
    assert not [line for line in lines if line.status in (Status.FAILURE, Status.WARNING)]
    (line,) = [line for line in lines if line.check == "topics"]
    assert "a start makes middle" in line.sentence
    (line,) = [line for line in lines if line.check == "output-resume"]
    assert (line.status, line.place) == (Status.OK, "middle")


def test_the_first_stage_is_looked_at(staged: Stage) -> None:
    """Its group, its rights, what it has not read; and the second stage beside it."""
    staged.feed([KEY] * 3)
    staged.broker.create_topic("middle", 2, retention_ms=-1)
    staged.broker.checks_rights = True
    copying = f"{staged.group}-repartition"
    staged.broker.group_rights[copying] = 0
    staged.broker.move_offsets(copying, staged.source, {0: 1})
    lines = staged.look().lines
    by = {(line.check, line.place): line for line in lines}
    assert by["group-unread", staged.source].status is Status.WARNING
    assert copying in by["group-unread", staged.source].sentence
    assert by["rights-groups", copying].status is Status.FAILURE
    assert {line.place for line in lines if line.check == "group-members"} == {
        staged.group,
        copying,
    }
    told = [line.text for line in lines if line.check == "rights-transactions"]
    assert any("--transactional-id middle/" in text for text in told)
    assert any(f"--transactional-id {staged.sink}/" in text for text in told)
