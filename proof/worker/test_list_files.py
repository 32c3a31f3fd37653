"""More claims about the files of lists: pipes, disks that hang, and a stop at once."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streamdedup.rules.lists import ListsInForce
from tests.broker.base import DEADLINE_S
from tests.delivery.test_recipe import lists_of, recipe
from tests.worker.test_list_files import built


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_stop_right_after_a_reload_is_heard(tmp_path: Path, turns: int) -> None:
    """SIGTERM may come with SIGHUP: what watches the lists ends, whatever the event loop does first."""
    made = recipe(tmp_path, built(tmp_path / "block.list", "a"))

    async def scene() -> None:
        await (lists := lists_of(made, ListsInForce())).begin()
        watching = asyncio.create_task(lists.run())
        await asyncio.sleep(0.01)
        lists.reload()
        for _ in range(turns):
            await asyncio.sleep(0)
        watching.cancel()
        await asyncio.wait([watching], timeout=5)
        assert watching.cancelled()

    asyncio.run(scene())


@pytest.mark.parametrize("which", ["allowlist", "blocklist"])
async def test_a_pipe_in_the_place_of_a_list_does_not_end_reloading(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused, by the name of its option; the list before stays, and the file that takes its place is taken."""
    monkeypatch.setattr("streamdedup.worker.lists.LOOK_EVERY_S", 0.01)
    block = built(tmp_path / "block.list", "a")
    allow = built(tmp_path / "allow.list", "b", options=("--kind", "exact"))
    made = recipe(tmp_path, block, allow.replace("blocklist", "allowlist"))
    path = tmp_path / f"{which.removesuffix('list')}.list"
    lists = lists_of(made, in_force := ListsInForce())
    await lists.begin()
    before = in_force.now
    with capture_logs() as lines:
        watching = asyncio.create_task(lists.run())
        again = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        await until(lambda: any(line["event"] == "list_refused" for line in lines))
        [refused] = [line for line in lines if line["event"] == "list_refused"]
        assert refused["reason"].startswith(f"{which}.file: cannot use {path}: it is no regular")
        assert refused["reason"].endswith(
            "but a pipe (FIFO); name a regular file, or a link to one"
        )
        assert in_force.now is before
        fresh = path.with_suffix(".new")
        fresh.write_bytes(again)
        fresh.replace(path)
        await until(lambda: in_force.now is not before)
        watching.cancel()
        await asyncio.wait([watching])


async def test_a_list_whose_disk_does_not_answer_is_reported_by_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remedy does not send anybody to the directory of snapshots, which may be fine."""
    answers = threading.Event()
    monkeypatch.setattr("streamdedup.threads.TELL_EVERY_S", 0.01)
    monkeypatch.setattr("streamdedup.worker.lists._stamp", lambda _path: answers.wait(30) and None)
    lists = lists_of(recipe(tmp_path, built(tmp_path / "block.list", "a")), ListsInForce())
    with capture_logs() as lines:
        begun = asyncio.create_task(lists.begin())
        await until(lambda: any(line["event"] == "still_waiting" for line in lines))
        answers.set()
        await begun
    line = next(line for line in lines if line["event"] == "still_waiting")
    assert "a look at blocklist.file" in line["detail"]
    assert "the disk under blocklist.file, or under blocklist.exact, responds" in line["remedy"]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.01)
