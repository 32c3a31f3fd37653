"""Finds the schemas of ids: in memory, on disk, at the registry. The caller waits until they are known or given up.

An id that the registry does not have is asked for again for a while, because its followers lag (`unknown`); then it is
given up, and asked for once more now and then. A registry that is away is waited for without limit. At a start, and
once it is back, the newest ids on disk are compared with it: a registry that was restored gives them to other schemas.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID
from weakref import WeakSet

import structlog
from typing_extensions import override

from streamdedup.errors import DeliveryError
from streamdedup.kafka.client.patience import (
    BACKOFF_S,
    BACKOFF_S_MAX,
    LOG_EVERY_S,
    Backoff,
    Patience,
    start_patiently,
)
from streamdedup.kafka.registry_options import SchemaRegistryOptions
from streamdedup.keys.formats.schema import Schema
from streamdedup.keys.formats.schema_registry import NUMBER_MAX
from streamdedup.keys.formats.schemas import Schemas
from streamdedup.registry.cache import Cache
from streamdedup.registry.client import Client, RegistryAwayError, UnknownSchemaError
from streamdedup.registry.unknown import Unknown

log = structlog.get_logger(__name__)

ASK_AGAIN_S = 60.0  # for what was given up
ASKED_MAX = 4  # at a time
# Schemas on disk that are compared with the registry's, and for how long.
COMPARED_MAX, COMPARE_S_MAX = 100, 20.0


class RegistryPatience(Patience):
    """Records who waits for the registry, and since when."""

    awaited = "registry"
    remedy = (
        "still trying, and nothing is judged meanwhile; if it is up, look at kafka.schema_registry"
    )

    @override
    def _log_away(self, **fields: Any) -> None:
        log.warning("registry_away", remedy=self.remedy, **fields)

    @override
    def _log_back(self, **fields: Any) -> None:
        log.info("registry_back", **fields)


class Registry:
    """One registry, for all `Schemas` of a worker."""

    def __init__(
        self,
        options: SchemaRegistryOptions,
        cache: Cache,
        patience: Patience,
        client: Client | None = None,
    ) -> None:
        self._client, self._cache = client or Client(options), cache
        self.patience = patience
        self.why_away = ""
        """Why the registry did not answer the last check, for the operator."""
        self._places = asyncio.Semaphore(ASKED_MAX)
        self._under_way: dict[int | str, asyncio.Task[Schema | None]] = {}
        self._unknown = Unknown()
        self._unsaid, self._said_at = 0, float("-inf")  # ids that were given up since the last line
        self._timed = set[Schemas]()  # that have a timer
        self._was_away = False
        self._others = dict[int, str]()  # ids that have another schema now, and what is wrong
        self._users = WeakSet[Schemas]()
        self._placing = asyncio.Lock()  # programs are added to those before, in a thread

    async def check(self) -> None:
        """Wait until the registry answers.

        ConfigError if it refuses us, or is none; DeliveryError after the time limit of its patience, or if it gives an
        id to another schema than the disk.
        """

        def ask() -> None:
            try:
                self._client.check()
            except RegistryAwayError as error:
                self.why_away = str(error)
                raise

        await start_patiently(lambda: asyncio.to_thread(ask), "the schema registry", self.patience)
        await self._compare()
        if self._others:
            raise DeliveryError(next(iter(self._others.values())))

    async def resolve(self, schemas: Schemas, ids: Sequence[int]) -> None:
        """Have `schemas` take the schemas of `ids`, or give those up that nobody knows.

        DeliveryError if the registry refuses us, or another schema is kept by a snapshot. It waits as long as the
        registry is away.
        """
        self._users.add(schemas)
        names = [schemas.guids.get(number, number) for number in ids]
        found = await asyncio.gather(*(asyncio.shield(self._asked(name)) for name in names))
        if None in found:
            schemas.give_up(id_ for id_, schema in zip(ids, found, strict=True) if schema is None)
            self._ask_later(schemas)
        for asked, name, schema in zip(ids, names, found, strict=True):
            # Meanwhile another number may stand for a GUID.
            number = asked if isinstance(name, int) else schemas.number_of(UUID(name).bytes)
            if schema is not None and not schemas.knows(number):
                # If the caller is cancelled, its thread still writes: nobody else may take a schema meanwhile.
                await asyncio.shield(self._taken(schemas, number, schema))

    async def _taken(self, schemas: Schemas, number: int, schema: Schema) -> None:
        """Have `schemas` take a schema; what takes long, a thread does."""
        compiled = await asyncio.to_thread(schemas.compiled, schema)
        async with self._placing:
            while not schemas.knows(number):
                try:
                    programs = await asyncio.to_thread(schemas.placed, compiled)
                except LookupError:  # dropped since it was compiled
                    compiled = await asyncio.to_thread(schemas.compiled, schema)
                    continue
                schemas.take(number, compiled, programs)
                self._log_taken(schemas.guids.get(number, number), schema, compiled.why_not)

    def _ask_later(self, schemas: Schemas) -> None:
        """Have `schemas` ask again for what was given up, after a time; one timer at most."""

        def ask_again() -> None:
            self._timed.discard(schemas)
            schemas.ask_again()

        if schemas not in self._timed:
            self._timed.add(schemas)
            asyncio.get_running_loop().call_later(ASK_AGAIN_S, ask_again)

    def _log_taken(self, number: int | str, schema: Schema, why_not: str) -> None:
        if why_not:
            log.warning(
                "schema_unreadable",
                schema_id=number,
                reason=why_not,
                remedy="events of this schema have no key; look at key.format, and at the schema",
            )
        else:
            log.info("schema_taken", schema_id=number, digest=schema.digest)

    def _asked(self, number: int | str) -> asyncio.Task[Schema | None]:
        """Return the task that asks for an id or a GUID. All callers share it; it goes on if they are cancelled."""
        task = self._under_way.get(number)
        if task is None:
            task = self._under_way[number] = asyncio.create_task(self._found(number))
            task.add_done_callback(lambda done: self._ended(number, done))
        return task

    def _ended(self, number: int | str, task: asyncio.Task[Schema | None]) -> None:
        del self._under_way[number]
        if not task.cancelled():
            task.exception()  # retrieved here, since those who waited may have been cancelled

    async def _found(self, number: int | str) -> Schema | None:
        """Return the schema of an id; None if the registry does not have it, for as long as events may wait."""
        if isinstance(number, int) and not 0 < number <= NUMBER_MAX:
            self._give_up(number)
            return None
        self._refuse_other(number)
        if schema := await asyncio.to_thread(self._cache.read, number):
            return schema
        name, clock, until = f"schema {number}", asyncio.get_running_loop().time, None
        backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX)
        try:
            while True:
                wait_s = backoff.next_s()
                try:
                    async with self._places:
                        schema = await asyncio.to_thread(self._client.schema, number)
                except UnknownSchemaError:
                    self.patience.back(name)
                    if until is None and not self._unknown.is_given_up(number):
                        until = self._unknown.begin(clock())
                    if until is None or clock() >= until:
                        self._give_up(number)
                        return None
                    wait_s = min(wait_s, until - clock())
                    log.info("schema_unknown", schema_id=number, waits_s=round(until - clock()))
                except RegistryAwayError as error:
                    self.patience.away(name, error)
                    self._was_away = True
                else:
                    self.patience.back(name)
                    if self._was_away:
                        await self._compare()
                        self._refuse_other(number)
                    self._unknown.found(number)
                    await asyncio.to_thread(self._cache.write, number, schema)
                    return schema
                await asyncio.sleep(wait_s)
        finally:
            self.patience.forget(name)
            if until is not None:
                self._unknown.end(clock())

    async def _compare(self) -> None:
        """Compare the newest ids on disk with the registry's, and note those that have another schema there.

        What it does not answer soon is not compared; that it is away is noticed again.
        """
        self._was_away = False
        numbers = await asyncio.to_thread(self._cache.newest, COMPARED_MAX)
        with suppress(TimeoutError):
            async with asyncio.timeout(COMPARE_S_MAX):
                await asyncio.gather(*map(self._compare_one, numbers))
        others = (number for number in numbers if number in self._others)
        self._others = {number: self._others[number] for number in others} | self._others
        for schemas in self._users:
            schemas.forget(self._others)

    async def _compare_one(self, number: int) -> None:
        async with self._places:
            ours = await asyncio.to_thread(self._cache.read, number)
            try:
                theirs = await asyncio.to_thread(self._client.schema, number)
            except (RegistryAwayError, UnknownSchemaError):
                return  # it may have lost the id, and gives it to another schema later
        if ours is None or not theirs.digest or theirs.digest == ours.digest:
            return
        remedy = (
            "restore the registry's later schemas under their ids; or, if it is another registry, begin with a new"
            f" sink.topic and delete the files of the old one, {self._cache.place}"
        )
        self._others[number] = (
            f"the registry gives schema {number} to another schema than before ({theirs.digest}, and {ours.digest} on"
            f" disk), as one does that was restored from an older backup: events of both have this id; {remedy}"
        )
        log.error(
            "schema_changed",
            schema_id=number,
            digest=theirs.digest,
            on_disk=ours.digest,
            remedy=remedy,
        )

    def _refuse_other(self, number: int | str) -> None:
        if isinstance(number, int) and (reason := self._others.get(number)):
            raise DeliveryError(reason, finding="schema-changed")

    def _give_up(self, number: int | str) -> None:
        """Give up an id; say so, once a minute at most."""
        if self._unknown.is_given_up(number):
            return
        self._unknown.give_up(number)
        self._unsaid += 1
        now = asyncio.get_running_loop().time()
        if now - self._said_at < LOG_EVERY_S:
            return
        log.warning(
            "schema_given_up",
            schema_id=number,
            given_up=self._unsaid,
            reason="the registry has no schema of this id: events of it are rejected, or stop the partition if they are"
            " in the output",
            remedy="register it, or set kafka.schema_registry to the registry, or the context, that its producer uses;"
            " if its values name their schemas otherwise, set key.framing",
        )
        self._said_at, self._unsaid = now, 0
