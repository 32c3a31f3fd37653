"""Finds the schemas of ids: in memory, on disk, at the registry. The caller waits until they are known or given up.

An id that the registry does not have is asked for again for a while, because its followers lag (`unknown`); then it is
given up, and asked for once more now and then. A registry that is away is waited for without limit.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog
from typing_extensions import override

from streamdedup.kafka.client.patience import (
    BACKOFF_S,
    BACKOFF_S_MAX,
    LOG_EVERY_S,
    Backoff,
    Patience,
)
from streamdedup.kafka.registry_options import SchemaRegistryOptions
from streamdedup.keys.formats.schema import Schema
from streamdedup.keys.formats.schemas import Schemas
from streamdedup.registry.cache import Cache
from streamdedup.registry.client import Client, RegistryAwayError, UnknownSchemaError
from streamdedup.registry.unknown import Unknown

log = structlog.get_logger(__name__)

ASK_AGAIN_S = 60.0  # for what was given up
ASKED_MAX = 4  # at a time
NUMBER_MAX = (1 << 31) - 1  # of an id: registries have signed ones, and no larger one has a schema
_REMEDY = (
    "still trying, and nothing is judged meanwhile; if it is up, look at kafka.schema_registry"
)


class RegistryPatience(Patience):
    """Records who waits for the registry, and since when."""

    awaited = "registry"

    @override
    def _log_away(self, **fields: Any) -> None:
        log.warning("registry_away", remedy=_REMEDY, **fields)

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
        self._under_way: dict[int, asyncio.Task[Schema | None]] = {}
        self._unknown = Unknown()
        self._unsaid, self._said_at = 0, float("-inf")  # ids that were given up since the last line
        self._timed = set[Schemas]()  # that have a timer

    async def check(self) -> None:
        """Wait until the registry answers.

        ConfigError if it refuses us, or is none; DeliveryError after the time limit of its patience.
        """
        backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX)
        while True:
            try:
                await asyncio.to_thread(self._client.check)
            except RegistryAwayError as error:
                self.why_away = str(error)
                self.patience.away("the schema registry", error)
            else:
                self.patience.back("the schema registry")
                return
            self.patience.check()
            await asyncio.sleep(backoff.next_s())

    async def resolve(self, schemas: Schemas, ids: Sequence[int]) -> None:
        """Have `schemas` take the schemas of `ids`, or give those up that nobody knows.

        DeliveryError if the registry refuses us, or another schema is kept by a snapshot. It waits as long as the
        registry is away.
        """
        found = await asyncio.gather(*(asyncio.shield(self._asked(number)) for number in ids))
        if None in found:
            schemas.give_up(id_ for id_, schema in zip(ids, found, strict=True) if schema is None)
            self._ask_later(schemas)
        for number, schema in zip(ids, found, strict=True):
            if schema is not None and not schemas.knows(number):
                compiled = await asyncio.to_thread(schemas.compiled, schema)
                if not schemas.knows(number):
                    schemas.take(number, compiled)
                    self._log_taken(number, schema, compiled.why_not)

    def _ask_later(self, schemas: Schemas) -> None:
        """Have `schemas` ask again for what was given up, after a time; one timer at most."""

        def ask_again() -> None:
            self._timed.discard(schemas)
            schemas.ask_again()

        if schemas not in self._timed:
            self._timed.add(schemas)
            asyncio.get_running_loop().call_later(ASK_AGAIN_S, ask_again)

    def _log_taken(self, number: int, schema: Schema, why_not: str) -> None:
        if why_not:
            log.warning(
                "schema_unreadable",
                schema_id=number,
                reason=why_not,
                remedy="events of this schema have no key; look at key.format, and at the schema",
            )
        else:
            log.info("schema_taken", schema_id=number, digest=schema.digest)

    def _asked(self, number: int) -> asyncio.Task[Schema | None]:
        """Return the task that asks for an id. All callers share it, and it goes on if they are cancelled."""
        task = self._under_way.get(number)
        if task is None:
            task = self._under_way[number] = asyncio.create_task(self._found(number))
            task.add_done_callback(lambda done: self._ended(number, done))
        return task

    def _ended(self, number: int, task: asyncio.Task[Schema | None]) -> None:
        del self._under_way[number]
        if not task.cancelled():
            task.exception()  # retrieved here, since those who waited may have been cancelled

    async def _found(self, number: int) -> Schema | None:
        """Return the schema of an id; None if the registry does not have it, for as long as events may wait."""
        if number > NUMBER_MAX:
            self._give_up(number)
            return None
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
                else:
                    self.patience.back(name)
                    self._unknown.found(number)
                    await asyncio.to_thread(self._cache.write, number, schema)
                    return schema
                await asyncio.sleep(wait_s)
        finally:
            self.patience.forget(name)
            if until is not None:
                self._unknown.end(clock())

    def _give_up(self, number: int) -> None:
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
            remedy="register it, or set kafka.schema_registry to the registry, or the context, that its producer uses",
        )
        self._said_at, self._unsaid = now, 0
