"""The lists of a running worker: loaded before it joins its group, then replaced and changed between two batches.

A file that was replaced is loaded again, automatically or at SIGHUP. If it is damaged or does not fit, it is refused,
and the list before it stays in force. A refused file is tried again now and then: its exact store may arrive later.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from streamdedup.delivery.lists import ALLOW, BLOCK, Loaded, load_list
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.errors import StreamdedupError
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.client.connection import describe_error
from streamdedup.kafka.client.patience import Backoff
from streamdedup.lists.changed_list import ChangedList
from streamdedup.lists.verified_list import VerifiedList
from streamdedup.metrics.counts import Meters
from streamdedup.rules.lists import Lists, ListsInForce, Matcher
from streamdedup.threads import THE_WORKER, Lane, Threads
from streamdedup.worker.list_changes import ControlTopic

LOOK_EVERY_S = 1.0
AGAIN_S = 2.0  # after a refusal, then twice that, and so on
AGAIN_S_MAX = 60.0

log = structlog.get_logger(__name__)

# Device, inode, size and time of writing of a file; None if it is missing.
Stamp = tuple[int, ...] | None


@dataclass
class _File:
    """The file of a list as it was last looked at, and the list that was last loaded from it.

    `refusal` is the reason why the file as it is now is not in force; None if it is. A refused file is tried again at
    the loop's time `again_at`.
    """

    which: str
    path: Path
    stamp: Stamp = None
    loaded: Loaded | None = None
    refusal: str | None = None
    again_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(AGAIN_S, AGAIN_S_MAX))

    def due(self, now_s: float) -> bool:
        """Return whether it is time to try a refused file again."""
        return self.refusal is not None and now_s >= self.again_at


async def load_once(recipe: Recipe, cluster: Cluster, threads: Threads | None = None) -> Lists:
    """Return the lists as a worker that starts now has them: their files, and the changes of the control topic.

    Raises as `ListLoader.begin` does.
    """
    found = ListsInForce()
    await ListLoader(recipe, cluster, found, meters=Meters(), threads=threads or Threads()).begin()
    return found.now


class ListLoader:
    """Keeps `in_force` up to date with the files of the lists and the control topic."""

    def __init__(
        self,
        recipe: Recipe,
        cluster: Cluster,
        in_force: ListsInForce,
        *,
        meters: Meters,
        threads: Threads,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        settings, self._recipe, self._in_force = recipe.settings, recipe, in_force
        self._meters, self._threads = meters, threads
        paths = {ALLOW: settings.allowlist.file, BLOCK: settings.blocklist.file}
        self._files = {which: _File(which, path) for which, path in paths.items() if path}
        topic = settings.blocklist.control_topic
        self._control = (
            ControlTopic(recipe, cluster, topic, meters=meters, keys=threads.keys, now_ms=now_ms)
            if topic
            else None
        )
        self._asked = asyncio.Event()
        self._asking = list[asyncio.Future[None]]()  # those who wait until the files were looked at

    async def begin(self) -> None:
        """Load the lists and all changes so far, and put them in force. Raises the error if a list is refused."""
        for file in self._files.values():
            file.stamp = await self._stamp(file)
            file.loaded = await self._load(file)
        if self._control:
            await self._control.catch_up()
            self._control.log_state()
        self._put_in_force()

    def reload(self) -> None:
        """Load the files again now, even if they look unchanged."""
        self._asked.set()

    async def reloaded(self) -> None:
        """Have `run` load the files again, and wait until it has."""
        looked_at: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asking.append(looked_at)
        self._asked.set()
        await looked_at

    async def run(self) -> None:
        """Keep the lists up to date with their files, until cancelled."""
        while True:
            # Not by wait_for: before Python 3.12 it swallows a cancellation that comes right after the event is set.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._asked.wait()
            asked, waiting, self._asking = self._asked.is_set(), self._asking, []
            self._asked.clear()
            for file in self._files.values():
                stamp = await self._stamp(file)
                is_new = asked or stamp != file.stamp
                if is_new or file.due(asyncio.get_running_loop().time()):
                    await self._replace(file, is_new=is_new)
                    file.stamp = stamp
            for looked_at in waiting:
                if not looked_at.done():
                    looked_at.set_result(None)

    async def _replace(self, file: _File, *, is_new: bool) -> None:
        try:
            file.loaded = await self._load(file)
        except StreamdedupError as error:
            self._refuse(file, str(error), is_new=is_new)
        except Exception as error:  # no file of a list ends a worker
            self._refuse(file, describe_error(error)["error"], is_new=is_new)
        else:
            file.refusal = None
            self._note_refusals()
            self._put_in_force()

    def _refuse(self, file: _File, reason: str, *, is_new: bool) -> None:
        """Refuse the file; the list in force stays. The same file is logged again only if the reason has changed."""
        if is_new:
            self._meters.list_refusals[file.which] += 1
            file.backoff.reset()
        if is_new or reason != file.refusal:
            stays = file.loaded.listed.version if file.loaded else None
            log.error("list_refused", list=file.which, reason=reason, stays_in_force=stays)
        file.refusal = reason
        self._note_refusals()
        file.again_at = asyncio.get_running_loop().time() + file.backoff.next_s()

    def _note_refusals(self) -> None:
        refusals = ((which, file.refusal) for which, file in self._files.items())
        self._in_force.refused = {which: reason for which, reason in refusals if reason}

    async def _stamp(self, file: _File) -> Stamp:
        run = self._lane(file).run
        return await run(THE_WORKER, f"a look at {file.which}.file", _stamp, file.path)

    async def _load(self, file: _File) -> Loaded:
        run, which = self._lane(file).run, file.which
        return await run(
            THE_WORKER,
            f"{which}.file",
            load_list,
            self._recipe,
            which,
            file.path,
            remedy=f"check whether the disk of {file.path} responds; a first start also compiles the loops that look"
            " lists up, which on a busy machine takes minutes",
        )

    def _lane(self, file: _File) -> Lane:
        return self._threads.allowlist if file.which == ALLOW else self._threads.blocklist

    async def follow(self) -> None:
        """Keep the block list up to date with the control topic, until cancelled; return if there is no such topic."""
        if self._control is None:
            return
        async for _ in self._control.news():
            self._put_in_force()
            self._control.log_state()

    def _put_in_force(self) -> None:
        """Replace the lists in force. A batch reads `in_force.now` once, so one version of each list decides it."""
        allow, block = (self._loaded(which) for which in (ALLOW, BLOCK))
        self._in_force.now = Lists(
            allow and allow.listed, block and self._changed(block), self._recipe.common_hash
        )

    def _changed(self, block: Loaded) -> Matcher:
        """Return the block list with the changes of the control topic and the exact store, as they are now."""
        listed, control = block.listed, self._control
        changed = ChangedList(listed, control.overlay, control.position) if control else listed
        return changed if block.store is None else VerifiedList(changed, block.store)

    def _loaded(self, which: str) -> Loaded | None:
        file = self._files.get(which)
        return file.loaded if file else None


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
