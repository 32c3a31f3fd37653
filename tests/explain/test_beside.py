"""Claims about questions that are answered beside a worker: the same answers, in a thread of its own, at a pace."""

import threading
from pathlib import Path
from typing import Any

import pytest

from streamdedup.errors import ConfigError
from streamdedup.explain.beside import Answer, Asked, Explaining, Search
from streamdedup.explain.pace import Pace, Turn
from streamdedup.explain.run import ListsOf, OnProgress, Scope
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.partitions import InputPartition
from streamdedup.rules.lists import NO_LISTS, Lists
from streamdedup.settings import load
from streamdedup.threads import InCaller, Threads
from tests.broker.base import DEADLINE_S
from tests.explain.asking import Asked as Deployed
from tests.explain.asking import deployed, user


def lists_for(_cluster: Cluster, _threads: Threads) -> ListsOf:
    """No lists."""

    async def lists_of(_: object) -> Lists:
        return NO_LISTS

    return lists_of


def searched(answering: Any, asked: Asked) -> Search:
    """A search that has ended."""
    ended = threading.Event()
    search = Search(answering, asked, Pace(), ended.set)
    assert ended.wait(DEADLINE_S)
    return search


def answering(there: Deployed) -> Explaining:
    """What answers about a deployment."""
    return Explaining(load(there.write_config()), there.connect, lists_for)


@pytest.mark.parametrize("kind", ["cuckoo", "bloom", "window"])
@pytest.mark.parametrize("with_snapshots", [True, False], ids=["snapshots", "output"])
def test_the_answers_are_those_of_the_command(
    tmp_path: Path, kind: str, with_snapshots: bool
) -> None:
    """About keys, and about an event, as JSON and with their status."""
    options = {"retention": "30d"} if kind == "window" else {}
    there = deployed(tmp_path, 2, kind=kind, **options)
    there.fill([1, 2, 3, 1])
    if not with_snapshots:
        there.delete_snapshots()
    keys = [user(3), user(9)]
    found = searched(answering(there), Asked(keys=keys)).answer
    assert found is not None
    expected = there.report(
        keys, lambda report: [report.as_json(each) for each in report.answers()]
    )
    assert (found.objects, found.status) == (expected, 4)
    at = InputPartition(there.source, 1)
    of_event = searched(answering(there), Asked(at=at, offset=0)).answer
    assert of_event is not None
    report = there.at(0, 1)
    assert (of_event.objects, of_event.status) == ([report.as_json()], report.status)
    assert user(1).decode() not in str(of_event)
    assert user(3).decode() not in str(found)


def test_each_batch_is_followed_by_a_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the search's own thread, and so is each call that reads a file: all that it costs is counted there."""
    there = deployed(tmp_path)
    there.fill(range(50))
    rests, calls = list[int](), list[int]()
    rest, submit = Turn.rest, InCaller.submit

    def resting(turn: Turn) -> None:
        rests.append(threading.get_ident())
        rest(turn)

    def submitting(self: InCaller, *arguments: Any) -> Any:
        calls.append(threading.get_ident())
        return submit(self, *arguments)

    monkeypatch.setattr(Turn, "rest", resting)
    monkeypatch.setattr(InCaller, "submit", submitting)
    search = searched(answering(there), Asked(keys=[user(3)], scope=Scope(every=True)))
    assert search.answer is not None
    assert search.progress.endswith(f" events read, now {there.source}/0")
    assert len(rests) > 3
    assert calls
    assert {*rests, *calls} == {rests[0]}
    assert rests[0] != threading.get_ident()


def test_batches_that_come_without_waiting_are_rested_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn of a loop may read all of a fetch: a rest follows each batch of it."""
    rests = list[None]()
    monkeypatch.setattr(Turn, "rest", lambda _: rests.append(None))

    async def reading(_asked: Asked, on_progress: OnProgress) -> Answer:
        before = len(rests)
        for number in range(50):
            on_progress(f"{number} events read")
        return Answer([{}], "", [], [], len(rests) - before)

    found = searched(reading, Asked(keys=[b"k"])).answer
    assert found is not None
    assert found.status == 50


def test_a_wrong_question_has_the_commands_error(tmp_path: Path) -> None:
    """And its exit status."""
    there = deployed(tmp_path)
    there.fill([1])
    search = searched(answering(there), Asked(at=InputPartition("elsewhere", 0), offset=0))
    assert search.error is not None
    text, status = search.error
    assert ("elsewhere is no input" in text, status) == (True, ConfigError.exit_status)


async def _forever(_asked: Asked, _on_progress: OnProgress) -> Answer:
    import asyncio

    await asyncio.Event().wait()
    raise AssertionError


def test_a_search_is_given_up_whenever() -> None:
    """Also before its loop runs, and after it has ended."""
    for _ in range(20):
        ended = threading.Event()
        search = Search(_forever, Asked(keys=[b"k"]), Pace(), ended.set)
        search.give_up()
        assert ended.wait(DEADLINE_S)
        search.give_up()
        assert search.error == ("the search was given up; ask again", 1)
