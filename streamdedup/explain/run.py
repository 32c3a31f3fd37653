"""The questions of `explain`, for a connected cluster: about keys, or about one event of the input.

Nothing is written, joined or fenced. A worker asks so beside its work (`beside`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import registry_answering
from streamdedup.delivery.services import MemoryServices
from streamdedup.errors import ConfigError
from streamdedup.explain.event_report import EventReport
from streamdedup.explain.known import Question
from streamdedup.explain.of_event import explain_event
from streamdedup.explain.of_keys import KeysReport, explain_keys
from streamdedup.explain.search import Reader
from streamdedup.explain.stages import Stage
from streamdedup.explain.wanted import Wanted
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.topics import refuse_missing, sink_topics
from streamdedup.keys.placement import partitions_of
from streamdedup.repartition.inputs import topics_of
from streamdedup.repartition.offsets import partitions_of as input_partitions
from streamdedup.rules.lists import Lists
from streamdedup.settings import Settings
from streamdedup.settings.stages import deduplicating
from streamdedup.threads import Threads

ListsOf = Callable[[Recipe], Awaitable[Lists]]
OnProgress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How far to search: from `since_ms` (ms since 1970) on, in `partitions` of the output alone.

    `quick` does not search the output if there is a snapshot; `every` reads on after the first hit.
    """

    since_ms: int | None = None
    partitions: Sequence[int] = ()
    quick: bool = False
    every: bool = False


async def ask_keys(
    settings: Settings,
    cluster: Cluster,
    lists_of: ListsOf,
    keys: Iterable[bytes],
    *,
    scope: Scope,
    on_progress: OnProgress = lambda _: None,
    threads: Threads | None = None,
) -> KeysReport:
    """Return what is known of `keys`, each as an event has it. Close the report.

    `on_progress` is called for each batch of events that is read. Files are read by `threads`, those of the question
    unless given.

    ConfigError if a topic is missing, or there are too many keys. DeliveryError if the broker refuses us or does not
    answer.
    """
    question, stage = await _question(
        settings, cluster, lists_of, scope, on_progress=on_progress, threads=threads
    )
    count = stage.partitions
    for partition in scope.partitions:
        if not 0 <= partition < count:
            raise ConfigError(
                f"--partition {partition} is not there: {settings.sink.topic} is judged in {count} partitions, from 0"
            )
    wanted = Wanted(keys, question.recipe.extractor())
    numbers = list(scope.partitions or range(count))
    if len(wanted) == 1:
        column, _ = next(iter(wanted.blocks()))
        home = int(partitions_of(column, count)[0])
        if settings.source.repartition is not None and not scope.partitions:
            numbers = [home]  # no other partition has its events
        numbers.sort(key=lambda number: number != home)
    return await explain_keys(question, wanted, numbers, quick=scope.quick, every=scope.every)


async def ask_event(
    settings: Settings,
    cluster: Cluster,
    lists_of: ListsOf,
    at: InputPartition,
    offset: int,
    *,
    scope: Scope,
    on_progress: OnProgress = lambda _: None,
    threads: Threads | None = None,
    show_key: bool = False,
) -> EventReport:
    """Return what became of the event at `offset` of `at`, a partition of an input. See `ask_keys`.

    ConfigError if a topic is missing, or there is no such event. DeliveryError if the broker refuses us or does not
    answer.
    """
    question, stage = await _question(
        settings, cluster, lists_of, scope, on_progress=on_progress, threads=threads
    )
    inputs = question.inputs or [
        InputPartition(settings.source.topic, number) for number in range(stage.partitions)
    ]
    topics = dict.fromkeys(each.topic for each in inputs)
    if at.topic not in topics:
        raise ConfigError(
            f"--at {at}: {at.topic} is no input of this configuration; name a partition of {', '.join(topics)}"
        )
    if at not in inputs:
        last = max(each.number for each in inputs if each.topic == at.topic)
        raise ConfigError(
            f"--at {at} is not there: the partitions of {at.topic} are 0 to {last}; name one of them"
        )
    return await explain_event(question, stage, at, offset, quick=scope.quick, show_key=show_key)


async def _question(
    settings: Settings,
    cluster: Cluster,
    lists_of: ListsOf,
    scope: Scope,
    *,
    on_progress: OnProgress,
    threads: Threads | None,
) -> tuple[Question, Stage]:
    staged = settings.source.repartition
    judging = settings if staged is None else deduplicating(settings)
    source, written = judging.source.topic, sink_topics(settings.sink)
    inputs: Sequence[InputPartition] = ()
    async with asyncio.timeout(ANSWER_S_MAX):
        named = () if staged is None else await topics_of(settings, cluster)
        topology = await cluster.describe([source, *written, *named])
    refuse_missing(topology, source, [source, *written])
    if staged is not None:
        inputs = input_partitions(topology, named)
    partitions = topology[source].partitions
    recipe = Recipe(judging, partitions)
    await registry_answering(recipe)
    read = 0

    def on_read(topic: str, partition: int, events: int) -> None:
        nonlocal read
        read += events
        on_progress(f"{read:,} events read, now {topic}/{partition}")

    question = Question(
        settings=judging,
        cluster=cluster,
        topology=topology,
        recipe=recipe,
        lists=await lists_of(recipe),
        reader=Reader(cluster, on_read),
        services=MemoryServices(cluster=cluster, threads=threads or Threads()),
        inputs=inputs,
        since_ms=scope.since_ms,
    )
    return question, Stage(settings, partitions)
