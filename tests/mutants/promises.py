"""The promises, and how each is broken."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A change to `file` of the package: `before`, which stands there once, becomes `after`."""

    name: str
    promise: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied_to(self, source: str) -> str:
        """The changed source. ValueError where the product has moved on, and the mutant must follow."""
        if source.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: {self.file} holds {source.count(self.before)} times what is to be changed; adapt it"
            )
        return source.replace(self.before, self.after)


MUTANTS = (
    Mutant(
        "admit-before-commit",
        "a key enters the filter only when its event is committed (invariant 2)",
        "committing.py",
        """            await self._end(topology, transaction, label)
        if transaction.events:
            self._context.meters.transactions.observe(loop.time() - begun_at)
        async with self._folding.turn:
            await in_turns(shard.admit(label))
""",
        """            await in_turns(shard.admit(label))
            await self._end(topology, transaction, label)
""",
        ("tests/test_members.py::test_the_next_is_decided_while_one_commits",),
    ),
    Mutant(
        "id-by-process",
        "the fence is named after the output partition (rule 1)",
        "kafka/sink.py",
        'return f"{self._sink.topic}/{self._partition}"',
        'return f"{id(self)}"',
        ("tests/test_members.py::test_a_member_that_was_thrown_out_shuts_nobody_out",),
    ),
    Mutant(
        "send-not-awaited",
        "every send is awaited before the commit (rule 9)",
        "kafka/sink.py",
        "                base = await self._acknowledged(topic, future)\n",
        """                if topic != self._sink.topic or future is batches[-1][0]:
                    label += count * (topic == self._sink.topic)
                    continue
                base = await self._acknowledged(topic, future)
""",
        ("tests/test_members.py::test_what_the_broker_refuses_is_found_and_rejected",),
    ),
    Mutant(
        "label-ahead",
        "a label is never ahead of what is folded (invariant 3)",
        "committing.py",
        "return settled if self._writer.wrote_output else shard.label",
        "return settled + 3",
        ("tests/test_delivery.py::test_a_restart_goes_on_where_it_stopped",),
    ),
    Mutant(
        "fsync-left-out",
        "a snapshot survives a loss of power whole, or not at all",
        "snapshot/files.py",
        "                fs.fsync(fd)\n",
        "                pass\n",
        (
            "tests/test_snapshot.py::test_power_may_fail_after_any_call_and_the_old_or_the_new_is_loaded",
        ),
    ),
    Mutant(
        "pending-not-consulted",
        "a duplicate of an event in flight is seen (invariant 2)",
        "rules/duplicates.py",
        "unseen(self._seen, digests, _joined(self._waiting()))",
        "unseen(self._seen, digests)",
        ("tests/test_shard.py",),
    ),
    Mutant(
        "not-asked-before-fencing",
        "a worker that lost its place shuts nobody out (rule 10)",
        "delivery.py",
        "if await source.confirms(epoch):",
        "if True:",
        ("tests/test_members.py::test_a_member_that_was_thrown_out_shuts_nobody_out",),
    ),
    Mutant(
        "abort-keeps-what-came-after",
        "an abort takes back all that came after (rule 9)",
        "rules/duplicates.py",
        "        self._sealed.clear()\n        self._open = []\n",
        "        self._open = []\n",
        ("tests/test_members.py::test_the_next_is_decided_while_one_commits",),
    ),
    Mutant(
        "offset-read-first",
        "the committed offset is read behind the fence (rule 2)",
        "fencing.py",
        """    async with asyncio.timeout(FENCE_S_MAX):
        await writer.fence()
    async with asyncio.timeout(ANSWER_S_MAX):
        topology = await cluster.describe([source, *sink_topics(settings.sink)])
        check(topology, source, settings.sink, by_event_time=settings.filter.by_event_time)
        # Before the end: at least once, others may write and commit meanwhile, and an offset that was committed with
        # more than we see of the output would look like a log that lost its end.
        own = await committed_offset(settings, cluster, partition)
""",
        """    async with asyncio.timeout(ANSWER_S_MAX):
        topology = await cluster.describe([source, *sink_topics(settings.sink)])
        check(topology, source, settings.sink, by_event_time=settings.filter.by_event_time)
        # Before the end: at least once, others may write and commit meanwhile, and an offset that was committed with
        # more than we see of the output would look like a log that lost its end.
        own = await committed_offset(settings, cluster, partition)
        await writer.fence()
""",
        ("tests/test_rules_1_to_3.py::test_the_offset_is_read_behind_the_fence",),
    ),
    Mutant(
        "stale-assignment-served",
        "events of an assignment that is over are dropped (rule 11)",
        "kafka/source.py",
        "if self.epoch != epoch or not records:",
        "if not records:",
        ("tests/test_rules_11_to_19.py::test_a_stale_assignments_events_are_dropped",),
    ),
    Mutant(
        "growth-not-noticed",
        "growth of the input is refused (rule 14)",
        "resume.py",
        "if before is None or before >= found.partitions:",
        "if True:",
        ("tests/test_resume.py",),
    ),
)
