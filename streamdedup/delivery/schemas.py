"""Gives what extracts keys the registry of its schemas. A batch's schemas are resolved before its keys are taken."""

import asyncio
from collections.abc import AsyncIterator

from streamdedup.delivery.recipe import Recipe
from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch
from streamdedup.kafka.base import AWAY_S_MAX
from streamdedup.keys.extract import Extractor, Keys
from streamdedup.registry.cache import Cache
from streamdedup.registry.registry import Registry, RegistryPatience
from streamdedup.settings.tree import UNUSED_DIRECTORY

LOOKED_AT = 100  # keys of a batch
ASKED_MAX = 1_000  # ids at a time
LONG_BYTES = 8  # of a plain integer, which may begin with a zero byte, too
FRAMED_REMEDY = (
    "take the key from a field of the value: key.from: json, with key.format (docs/keys.md); if they are no such"
    " data, ignore this"
)


def registry_of(recipe: Recipe, *, reads_only: bool = False) -> Registry | None:
    """Make the registry for what extracts the keys of `recipe`, and return it; None if its format needs none.

    With `reads_only` it keeps no schema on disk.
    """
    kafka, schemas = recipe.settings.kafka, recipe.extractor().schemas
    if kafka.schema_registry is None or schemas is None:
        return None
    directory = recipe.settings.snapshot.directory
    address = kafka.schema_registry.address
    cache = Cache(
        None if directory == UNUSED_DIRECTORY else directory, address, reads_only=reads_only
    )
    patience = RegistryPatience(kafka.give_up_after_s)
    schemas.registry = Registry(kafka.schema_registry, cache, patience)
    return schemas.registry


async def registry_answering(recipe: Recipe) -> None:
    """Do the same for a command, which writes nothing, and ask the registry whether it is there.

    ConfigError if it refuses us, or is none; DeliveryError if it does not answer soon.
    """
    registry = registry_of(recipe, reads_only=True)
    if registry is None:
        return
    try:
        async with asyncio.timeout(AWAY_S_MAX):
            await registry.check()
    except TimeoutError:
        raise DeliveryError(
            f"kafka.schema_registry.url: {registry.why_away or 'no answer'}",
            remedy="check it, and try again",
        ) from None


async def resolved(batch: EventBatch, extractor: Extractor) -> AsyncIterator[EventBatch]:
    """Yield `batch` once its schemas are known, or given up; in parts, if they take too much memory together.

    The caller reads a part by the schemas that are known when it is yielded (`Extractor.steps`).
    """
    if await resolve(batch, extractor) or len(batch) == 1:
        yield batch
        return
    for half in batch.parts((len(batch) + 1) // 2):
        async for part in resolved(half, extractor):
            yield part


async def resolve(batch: EventBatch, extractor: Extractor) -> bool:
    """Wait until the schemas of `batch` are known, or given up. DeliveryError if the registry refuses us.

    Return False if some were dropped again, because they take too much memory together.

    Each id is asked for once, so this ends whatever the ids are. Of very many, the rest count as given up once the
    registry has none of `ASKED_MAX`, the smallest first: registries count upwards.
    """
    schemas = extractor.schemas
    if schemas is None or schemas.registry is None:
        return True
    unresolved = schemas.unresolved(extractor.heads(batch))
    for at in range(0, len(unresolved), ASKED_MAX):
        ids = unresolved[at : at + ASKED_MAX]
        await schemas.registry.resolve(schemas, ids)
        if len(ids) == ASKED_MAX and not any(map(schemas.knows, ids)):
            schemas.give_up_guids(unresolved[at + ASKED_MAX :])
            return True
    return not unresolved or not schemas.unresolved(extractor.heads(batch))


def framed(batch: EventBatch, extractor: Extractor) -> str | None:
    """Return, as a warning, that the bytes taken as keys seem to hold schema ids; None if they do not."""
    if extractor.origin not in ("key", "value"):
        return None
    from streamdedup.keys.formats.framing import ids_of  # imported here: few use its kernels

    column = (batch.keys if extractor.origin == "key" else batch.values).take(slice(LOOKED_AT))
    there = column.take((column.sizes >= 0).nonzero()[0])
    if not len(there) or (ids_of(there) < 0).any() or (there.sizes == LONG_BYTES).all():
        return None
    what = "record keys" if extractor.origin == "key" else "values"
    return (
        f"the {what} of {batch.topic} look like Schema Registry data, schema id {ids_of(there)[0]}: their bytes change"
        " with the id, so under a new version of the schema each key passes again"
    )


def refuse_unknown(batch: EventBatch, keys: Keys, remedy: str) -> None:
    """DeliveryError if the schema of an event of `batch` is not known, and so its key is not."""
    for row, reason in keys.unknown.items():
        topic, partition, offset = batch.place(row)
        raise DeliveryError(
            f"{topic}/{partition} offset {offset} is {reason}",
            remedy=remedy,
            finding="schema-unknown",
        )
