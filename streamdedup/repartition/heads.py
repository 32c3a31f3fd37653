"""How far each partition of the inputs stands in event time, over all members. The rule in `skew` decides by it.

Other members copy partitions, too, so each look reads the group's notes and the ends of the inputs. Between two looks,
the commits of this process are added.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress

import structlog

from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.partitions import InputPartition
from streamdedup.repartition.offsets import committed_on, of_each
from streamdedup.repartition.skew import Standing, Standings, Wait, must_publish
from streamdedup.units import counted

log = structlog.get_logger(__name__)

SHOWN_MAX = 10  # partitions in one line
STANDS_S = 60.0  # how long partitions of ours wait before that is a warning


class Heads:
    """Watches partitions on behalf of `group`; `max_skew_ms` is how far one may be ahead of another.

    Events of an open transaction count as unread for `open_s` seconds.
    """

    TURN_S, HELD_TURN_S = 0.5, 0.1  # between two looks, and while a partition of ours waits
    WAKE_S = 0.0001  # for each partition that waits: so long, at least, none of them looks again

    def __init__(self, cluster: Cluster, group: str, max_skew_ms: int, open_s: float) -> None:
        self._cluster, self._group, self._open_s = cluster, group, open_s
        self.max_skew_ms = max_skew_ms
        # By partition: its last stable offset, and the loop's time at which an open transaction began to hold it.
        self._open: dict[InputPartition, tuple[int, float]] = {}
        self._partitions: Collection[InputPartition] = ()
        self._stopped: Collection[InputPartition] = ()
        self._standings = Standings({})
        self._commits: dict[InputPartition, Standing] = {}  # of ours, since `_standings` was made
        # Our partitions that wait, each with one that it waits for.
        self._held: dict[InputPartition, InputPartition] = {}
        self._held_since, self._reported = 0.0, False
        self._moved, self._wakes, self._woke_at = asyncio.Event(), False, 0.0

    async def begin(
        self, partitions: Collection[InputPartition], stopped: Collection[InputPartition]
    ) -> None:
        """Watch these partitions from now on; `stopped` holds, at any moment, those of ours that are stopped.

        The caller sets a time-out.
        """
        self._partitions, self._stopped = partitions, stopped
        self._standings, self._commits, self._held = Standings({}), {}, {}
        await self.look()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            if self._partitions:
                with suppress(TimeoutError):  # the next round asks again
                    async with asyncio.timeout(ANSWER_S_MAX):
                        await self.look()
            self._report()
            await asyncio.sleep(self.HELD_TURN_S if self._held else self.TURN_S)

    async def refresh(self) -> None:
        """Look once more, before the first events after a pause: other partitions may have got events meanwhile.

        If that fails, the last standings stay in use; `run` looks again, and its error is reported.
        """
        with suppress(Exception):
            async with asyncio.timeout(ANSWER_S_MAX):
                await self.look()

    async def look(self) -> None:
        """Look once. A partition whose leader does not answer keeps the end that was known."""
        partitions = self._partitions
        ends = await self._ends(partitions)
        committed = await committed_on(self._cluster, self._group, partitions, stable=False)
        if partitions is not self._partitions:
            return
        found, before = {}, self.standings.of
        for partition in partitions:
            known = before.get(partition)
            end = ends.get(partition, known.end if known else 0)
            at = committed.get(partition)
            if at is None:
                found[partition] = Standing(0, end, None)
            elif known is not None and known.offset > at.offset:
                # We have committed since we asked.
                found[partition] = Standing(known.offset, end, known.head)
            else:
                found[partition] = Standing(at.offset, end, at.note.head if at.note else None)
        self._standings, self._commits = Standings(found), {}
        self._wake()

    async def _ends(self, partitions: Collection[InputPartition]) -> dict[InputPartition, int]:
        """Return up to which offset each partition has events, of those whose leaders answer."""
        stable, high = await asyncio.gather(
            of_each(partitions, self._cluster.stable_offsets),
            of_each(partitions, self._cluster.end_offsets),
        )
        now, known, self._open = asyncio.get_running_loop().time(), self._open, {}
        ends = {}
        for partition, offset in stable.items():
            ends[partition] = offset
            if offset < high.get(partition, offset):
                before = known.get(partition)
                since = before[1] if before and before[0] == offset else now
                self._open[partition] = offset, since
                if now - since < self._open_s:
                    ends[partition] = high[partition]
        return ends

    def committed(self, partition: InputPartition, offset: int, head: int | None) -> None:
        """Note a commit of ours."""
        if known := self.standings_of(partition):
            self._commits[partition] = Standing(offset, max(known.end, offset), head)
            self._wake()

    def standings_of(self, partition: InputPartition) -> Standing | None:
        """Return how far a partition stands; None if that is not known."""
        return self._commits.get(partition) or self._standings.of.get(partition)

    @property
    def standings(self) -> Standings:
        """How far all partitions stand, as of the last look and our commits since."""
        if self._commits:
            self._standings = Standings({**self._standings.of, **self._commits})
            self._commits = {}
        return self._standings

    async def moved(self, within_s: float) -> None:
        """Wait until a partition has moved, for at most `within_s` seconds.

        If many partitions wait, some moves are taken together: each costs time for each that waits.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._moved.wait()

    def _wake(self) -> None:
        if not self._wakes:
            self._wakes, loop = True, asyncio.get_running_loop()
            self._woke_at = max(loop.time(), self._woke_at + self.WAKE_S * len(self._held))
            loop.call_at(self._woke_at, self._wake_now)

    def _wake_now(self) -> None:
        moved, self._moved, self._wakes = self._moved, asyncio.Event(), False
        moved.set()

    def events(self, wait: Wait) -> int:
        """Return how many events of `wait` may be copied now."""
        slow = wait.waits_for(self.standings)
        if slow is None:
            self.let_go(wait.partition)
            return wait.events(self.standings)
        if not self._held:
            self._held_since = asyncio.get_running_loop().time()
        self._held[wait.partition] = slow
        return 0

    def let_go(self, partition: InputPartition) -> None:
        """Note that `partition` no longer waits."""
        self._held.pop(partition, None)

    def must_publish(self, wait: Wait) -> bool:
        """Return whether the partition that waits must commit its head."""
        return must_publish(wait.partition, wait.head, self.standings)

    @property
    def held(self) -> int:
        """How many of our partitions wait for slower ones."""
        return len(self._held)

    @property
    def reason(self) -> str | None:
        """Which partitions ours wait for, as text; None if none waits."""
        held = dict(self._held)
        slow = list(dict.fromkeys(held.values()))
        if not slow:
            return None
        ahead = ", ".join(map(str, sorted(held)[:SHOWN_MAX]))
        first = "; ".join(map(self._shown, slow[:SHOWN_MAX]))
        return (
            f"{counted(len(held), 'partition')} of the input ({ahead}) would be more than source.repartition.max_skew"
            f" ahead in event time, and {'waits' if len(held) == 1 else 'wait'} for {first}"
        )

    def _shown(self, partition: InputPartition) -> str:
        standing = self.standings_of(partition)
        at = f" at offset {standing.offset} of {standing.end}" if standing else ""
        why = " (stopped)" if partition in self._stopped else ""
        if partition in self._open:
            why = f" (a transaction is open at offset {self._open[partition][0]})"
        return f"{partition}{at}{why}"

    def _report(self) -> None:
        """Log once that partitions of ours have waited for a minute, and once that none waits any more."""
        reason, now = self.reason, asyncio.get_running_loop().time()
        if reason is None:
            if self._reported:
                log.info("repartition_held_ended")
            self._reported = False
        elif not self._reported and now - self._held_since >= STANDS_S:
            self._reported = True
            log.warning(
                "repartition_held",
                partitions=[str(partition) for partition in sorted(self._held)[:SHOWN_MAX]],
                reason=reason,
                remedy="none while the slow partitions move (a backfill); if one does not, it is stopped, or no worker"
                " copies it: its /readyz and log name the reason",
            )
