"""What happens to a deployment in one seed: it is fed, harmed, healed, and judged by the oracle."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from random import Random

from aiokafka.errors import ProducerFenced

from proof.simulation.oracle import BreachError, Oracle
from proof.simulation.plan import RETENTION_MS
from proof.simulation.stream import AHEAD_MS, FOREIGN, MARKS, REJECTED
from proof.simulation.world import EPOCH_MS, Machine, World
from streamdedup.events import NO_TIMESTAMP
from streamdedup.kafka.options import MARK
from streamdedup.kafka.records.records import Record

HEAL_S_MAX = 240.0
SESSION_S = 0.7  # a little more than `session_timeout_ms` of the plans
FEEDS = 20


class Driver:
    """Feeds, harms, heals; is no process of the world."""

    def __init__(self, world: World) -> None:
        self._world, self._plan, self._chance = world, world.plan, world.chance
        self._oracle = Oracle(world)
        self._numbers = count()
        self._event_ms = EPOCH_MS
        self._untimed = Random(0)  # its own, so that it changes nothing else of a seed's history
        self._faults: dict[str, Callable[[], Awaitable[None] | None]] = {
            "kill": lambda: self._some().kill(),
            "pause": self._pause,
            "drain": lambda: self._some().stop(),
            "power": lambda: self._some().lose_power(),
            "away": lambda: self._for_a_while("away"),
            "loading": lambda: self._for_a_while("loading"),
            "disk error": self._disk_error,
            "disk crash": self._disk_crash,
            "offsets back": self._offsets_back,
            "group deleted": self._group_deleted,
            "snapshots deleted": lambda: self._some().forget(),
            "output trimmed": self._output_trimmed,
            "input made again": self._input_made_again,
            "foreign": self._foreign,
        }

    async def run(self) -> None:
        """All of it."""
        world, plan, chance = self._world, self._plan, self._chance
        self._create_topics()
        self._feed(plan.events // 3)
        self._start_some()
        feeding = asyncio.create_task(self._keep_feeding())
        if chance.random() < 0.8:
            await self._work_begins()
        for _ in range(plan.steps if plan.faults else 0):
            await asyncio.sleep(chance.random() * plan.step_s_max)
            fault = chance.choice(plan.faults)
            world.note(f"{world.loop.time():.6f} fault: {fault}")
            if waits := self._faults[fault]():
                await waits
            self._start_some()
            self._check()
        await feeding
        await self._heal()
        self._check_end()
        await self._end()

    async def _work_begins(self) -> None:
        """Faults before anything is decided are not what most seeds are to try."""
        until = self._world.loop.time() + 3.0
        while not self._world.broker.log("out", 0).end and self._world.loop.time() < until:
            await asyncio.sleep(0.05)

    async def _keep_feeding(self) -> None:
        """So that at any moment some transaction is open."""
        plan = self._plan
        left, pause_s = plan.events - plan.events // 3, plan.feed_s / FEEDS
        for _ in range(FEEDS):
            await asyncio.sleep(self._chance.random() * 2 * pause_s)
            self._feed(-(-left // FEEDS))

    async def _heal(self) -> None:
        """Nothing goes wrong any more, and who ended is started again; until all is read."""
        world = self._world
        world.network.away = world.network.loading = False
        chances = world.network.chances
        chances.slow = chances.request_lost = chances.answer_lost = chances.repeated = 0.0
        world.note(f"{world.loop.time():.6f} heals")
        for machine in world.machines:
            machine.calls_to_error = machine.calls_to_crash = -1
            if machine.process is not None:
                world.loop.resume(machine.process)
        until = world.loop.time() + HEAL_S_MAX
        while not self._is_done():
            for machine in world.machines:
                if machine.stopped:  # its operator has settled what it stopped for
                    machine.stop()
            if world.loop.time() > until:
                raise BreachError("it does not heal")
            await asyncio.sleep(0.1)
            self._check()

    async def _end(self) -> None:
        for machine in self._world.machines:
            machine.stop()
        for machine in self._world.machines:
            await machine.ended()

    def _is_done(self) -> bool:
        """Whether all is read; somebody has to work until then."""
        machines = self._world.machines
        if self._oracle.caught_up():
            return True
        if not any(machine.runs for machine in machines):
            self._chance.choice(machines).start()
        return False

    def _check(self) -> None:
        self._oracle.check_now()
        self._refuse_stops()

    def _check_end(self) -> None:
        self._oracle.check_end()

    def _refuse_stops(self) -> None:
        if self._world.stops:
            raise BreachError(f"it stopped: {self._world.stops[0]}")

    def _create_topics(self) -> None:
        self._create_input()
        plan, world = self._plan, self._world
        names = ["duplicates", "dead", *(["blocked"] if plan.listed else [])]
        for name in ("out", *(names if plan.sides else ())):
            world.broker.create_topic(name, world.partitions)

    def _partition_of(self, number: int) -> int:
        """Where the next event of that key goes: all in one partition."""
        return number % self._world.partitions

    def _create_input(self) -> None:
        self._world.broker.create_topic(
            "in", self._world.partitions, message_timestamp_after_max_ms=2 * AHEAD_MS
        )

    def _feed(self, events: int) -> None:
        """Keys of which some come again; a few without a value; with side topics also what cannot pass.

        Now and then one that is aborted.
        """
        chance, world = self._chance, self._world
        for _ in range(events):
            number = chance.randrange(self._plan.keys)
            partition, key = self._partition_of(number), b"key-%d" % number
            made: list[tuple[bytes | None, bytes | None]] = [
                (key, b"value-%d" % next(self._numbers))
            ]
            if chance.random() < self._plan.unjudged:
                made.append((b"tombstone-%d" % next(self._numbers), None))
            if self._plan.sides and chance.random() < 0.2:
                made.append((None, b"malformed-%d" % next(self._numbers)))
            if self._plan.sides and chance.random() < 0.2:
                made.insert(0, (key, REJECTED + b"-%d" % next(self._numbers)))
            marked = self._plan.shadowed and chance.random() < 0.3
            headers = ((MARK, chance.choice(MARKS)),) if marked else ()
            records: list[Record] = [
                Record.of(self._time_ms(value), key, value, headers) for key, value in made
            ]
            world.broker.append("in", partition, records, None)
            self._oracle.fed[partition].update(key for key, _ in made if key is not None)
        if chance.random() < 0.1:
            world.broker.produce("in", [(0, b"aborted", b"value")], abort=True)

    def _time_ms(self, value: bytes | None) -> int:
        """Of a window's events the time goes its own way, and some come late."""
        if value is not None and value.startswith(REJECTED):
            return self._world.now_ms() + AHEAD_MS
        if not self._plan.windowed:
            return self._world.now_ms()
        self._event_ms += self._chance.randrange(RETENTION_MS // 8)
        late = self._chance.random() < 0.3
        if self._plan.untimed and self._untimed.random() < 0.25:
            return NO_TIMESTAMP
        return self._event_ms - (self._chance.randrange(RETENTION_MS * 3 // 2) if late else 0)

    def _start_some(self) -> None:
        for machine in self._world.machines:
            if not machine.runs and self._chance.random() < 0.7:
                machine.start()

    def _some(self) -> Machine:
        machines = self._world.machines
        return self._chance.choice([machine for machine in machines if machine.runs] or machines)

    def _pause(self) -> None:
        process, loop = self._some().process, self._world.loop
        if process is not None and not process.dead:
            loop.pause(process)
            loop.call_later(self._chance.uniform(0.05, 3 * SESSION_S), loop.resume, process)

    def _for_a_while(self, trouble: str) -> None:
        network, loop = self._world.network, self._world.loop
        setattr(network, trouble, True)
        loop.call_later(self._chance.uniform(0.05, 1.5), setattr, network, trouble, False)

    def _disk_error(self) -> None:
        self._some().calls_to_error = self._chance.randint(1, 60)

    def _disk_crash(self) -> None:
        self._some().calls_to_crash = self._chance.randint(1, 60)

    async def _offsets_back(self) -> None:
        await self._empty_group()
        self._oracle.again = True
        broker = self._world.broker
        at = self._oracle.committed_offsets()
        broker.move_offsets("group", "in", {p: self._chance.randint(0, o) for p, o in at.items()})

    async def _group_deleted(self) -> None:
        await self._empty_group()
        self._oracle.again = True
        self._world.broker.delete_group("group")

    async def _empty_group(self) -> None:
        """An operator stops all workers, one way or the other, and waits until the group is empty."""
        for machine in self._world.machines:
            if machine.process is not None and self._chance.random() < 0.5:
                machine.kill()
            machine.stop()
            if machine.process is not None:
                self._world.loop.resume(machine.process)
        for machine in self._world.machines:
            await machine.ended()
        while self._world.broker.members("group"):
            await asyncio.sleep(0.1)

    def _output_trimmed(self) -> None:
        self._oracle.strict = False
        log = self._world.broker.log("out", self._chance.randrange(self._world.partitions))
        log.trim(self._chance.randint(log.start, log.stable))

    def _input_made_again(self) -> None:
        broker, chance = self._world.broker, self._chance
        self._oracle.again = True
        offsets = broker.group("group").offsets
        moved = [where for where, (_offset, note) in offsets.items() if not note]
        for where in moved:  # nothing tells such an offset from one of the new topic
            del offsets[where]
        broker.delete_topic("in", with_offsets=chance.random() < 0.5)
        self._create_input()
        self._feed(self._plan.events // 2)
        for machine in self._world.machines:
            if chance.random() < 0.7:
                machine.kill()

    def _foreign(self) -> None:
        """Somebody else writes to the output: by itself, or in a transaction that ends sooner or later."""
        broker, chance, loop = self._world.broker, self._chance, self._world.loop
        partition = chance.randrange(self._world.partitions)
        keys = [b"key-%d" % chance.randrange(self._plan.keys) for _ in range(chance.randint(1, 3))]
        records: list[Record] = [
            Record.of(self._time_ms(FOREIGN), key, FOREIGN + b"-%d" % next(self._numbers))
            for key in keys
        ]
        self._oracle.fed[partition].update(keys)
        self._oracle.foreign.add(partition)
        self._oracle.strict = False
        if chance.random() < 0.3:
            broker.append("out", partition, records, None)
            return
        transaction = broker.transaction(f"foreign-{next(self._numbers)}")
        epoch = transaction.fence(chance.uniform(0.5, 10.0))
        transaction.add(epoch, broker.log("out", partition), loop.time())
        broker.append("out", partition, records, (transaction.transactional_id, epoch))

        def end(commit: bool) -> None:
            with suppress(ProducerFenced):  # it took too long
                transaction.end(epoch, commit=commit)

        loop.call_later(chance.uniform(0.0, 5.0), end, chance.random() < 0.6)
