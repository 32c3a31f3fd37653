"""A deployment in memory that is asked by `explain`."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from streamdedup.commands import reset
from streamdedup.commands.explain import explain, explain_at
from streamdedup.commands.reset_plan import Target
from streamdedup.explain.event_report import EventReport
from streamdedup.explain.of_keys import KeyAnswer, KeysReport
from streamdedup.explain.run import Scope
from streamdedup.kafka.partitions import InputPartition
from streamdedup.settings import load
from tests.deployment import keyed
from tests.memory_deployment import MemoryDeployment


class Asked(MemoryDeployment):
    """A deployment with answers. Keys are those of `keyed`."""

    def fill(self, numbers: Iterable[int]) -> None:
        """Append events, and let a worker judge them, which saves snapshots at its end."""
        self.feed(keyed(numbers, self.partitions))
        self.work()

    def forget(self, to: str = "earliest") -> None:
        """Do what `reset --forget` does."""
        settings = load(self.write_config())

        async def moved() -> None:
            planned = await reset.plan(settings, Target(to), self.connect, forget=True)
            await reset.move(settings, planned, self.connect)

        asyncio.run(moved())

    def at(self, offset: int, partition: int = 0, topic: str = "", **options: Any) -> EventReport:
        """What became of an event of the input; `options` are those of the scope, and `show_key`."""
        place = InputPartition(topic or self.source, partition)
        shown = {"show_key": options.pop("show_key", False)}
        scope, settings = Scope(**options), load(self.write_config())
        return asyncio.run(explain_at(settings, place, offset, self.connect, scope=scope, **shown))

    def report(
        self, keys: Iterable[bytes], look: Callable[[KeysReport], Any], **options: Any
    ) -> Any:
        """What `look` finds in the report about keys."""
        settings = load(self.write_config())
        asked = explain(settings, keys, self.connect, scope=Scope(**options))
        with closing(asyncio.run(asked)) as report:
            return look(report)

    def keys(self, *keys: bytes, **options: Any) -> list[KeyAnswer]:
        """The answers about keys."""
        found: list[KeyAnswer] = self.report(keys, lambda report: list(report.answers()), **options)
        return found

    def key(self, key: bytes, **options: Any) -> KeyAnswer:
        """The answer about one key."""
        (answer,) = self.keys(key, **options)
        return answer


def user(number: int) -> bytes:
    """The key of a number."""
    return b"user%d@example.com" % number


def deployed(directory: Path, partitions: int = 1, **filter_: Any) -> Asked:
    """A deployment whose topics are there."""
    asked = Asked(directory, partitions)
    asked.config["filter"] |= filter_
    asked.create(retention_ms=-1)
    return asked
