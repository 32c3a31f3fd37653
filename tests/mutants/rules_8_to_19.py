"""How rules 8 to 19 of delivery are broken: rejection, doubt, membership, topics, growth, shutdown, at least once."""

from tests.mutants.mutant import Mutant
from tests.mutants.text import TextMutant

MUTANTS: tuple[Mutant | TextMutant, ...] = (
    TextMutant(
        "rejected-waits",
        "what is rejected never enters pending (rule 8)",
        "shard.py",
        """open_ = verdicts == Verdict.PASS
""",
        """open_ = (verdicts == Verdict.PASS) | (verdicts == Verdict.REJECTED)
""",
        ("tests/test_shard.py::test_what_is_rejected_never_waits",),
    ),
    TextMutant(
        "unjudged-waits",
        "what passes unjudged never enters pending (rule 8)",
        "shard.py",
        """    open_[list(keys.unjudged)] = False
""",
        "",
        ("tests/test_shard.py::test_what_has_no_key_never_waits",),
    ),
    TextMutant(
        "limits-read-once",
        "limits are read again at each doubt (rule 8)",
        "delivery.py",
        "self._emission.observe(topology)",
        "self._emission._limits or self._emission.observe(topology)",
        ("tests/test_rules_8_and_9.py::test_limits_are_read_anew_at_a_doubt",),
    ),
    TextMutant(
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
    TextMutant(
        "abort-keeps-what-came-after",
        "an abort takes back all that came after (rule 9)",
        "rules/duplicates.py",
        "        self._sealed.clear()\n        self._waiting.clear()\n",
        "",
        ("tests/test_members.py::test_the_next_is_decided_while_one_commits",),
    ),
    TextMutant(
        "pending-kept-in-doubt",
        "a doubt drops pending (rule 9)",
        "delivery.py",
        """                    self.shard.forget()
""",
        """                    pass
""",
        ("tests/test_members.py::test_the_next_is_decided_while_one_commits",),
    ),
    TextMutant(
        "replaced-connection-trusted",
        "a replaced connection within a transaction is doubt (rule 9)",
        "kafka/sink.py",
        "if any(now.get(name) is not conn for name, conn in self._connections.items()):",
        "if False:",
        (
            "tests/test_rules_8_and_9.py::test_a_late_duplicate_hits_no_later_transaction[replaced connection-end]",
        ),
    ),
    TextMutant(
        "deadline-beyond-the-time-out",
        "a transaction's deadline is shorter than a request's time-out (rule 9)",
        "kafka/sink.py",
        "DEADLINE_SHARE = 0.75",
        "DEADLINE_SHARE = 7.5",
        (
            "tests/test_rules_8_and_9.py::test_a_late_duplicate_hits_no_later_transaction[deadline-end]",
        ),
    ),
    TextMutant(
        "fold-deadline-on-the-total",
        "the deadline of a fold is on its progress (rule 9)",
        "kafka/log.py",
        "position, moved_at = reached, loop.time()",
        "position = reached",
        ("tests/test_rules_8_and_9.py::test_a_fold_may_take_long_as_long_as_it_moves",),
    ),
    TextMutant(
        "not-asked-before-fencing",
        "a worker that lost its place shuts nobody out (rule 10)",
        "delivery.py",
        "if await source.confirms(epoch):",
        "if True:",
        ("tests/test_members.py::test_a_member_that_was_thrown_out_shuts_nobody_out",),
    ),
    TextMutant(
        "stale-assignment-served",
        "events of an assignment that is over are dropped (rule 11)",
        "kafka/source.py",
        "return batch if self.epoch == epoch else None",
        "return batch",
        ("tests/test_rules_11_to_19.py::test_a_stale_assignments_events_are_dropped",),
    ),
    TextMutant(
        "member-not-kept-alive",
        "no state costs the membership (rule 11)",
        "kafka/source.py",
        "await self._poll(NOWHERE, wait_s)",
        "await asyncio.sleep(wait_s)",
        ("tests/test_rules_11_to_19.py::test_no_state_costs_the_membership[stopped]",),
    ),
    TextMutant(
        "any-assignor",
        "partitions stay where their filters are: the sticky assignor (rule 11)",
        "kafka/source.py",
        """            partition_assignment_strategy=(StickyPartitionAssignor,),
""",
        "",
        ("tests/test_rules_11_to_19.py::test_partitions_are_assigned_by_the_sticky_assignor",),
    ),
    TextMutant(
        "offset-chosen-by-the-client",
        "the consumer chooses no offset (rule 12)",
        "kafka/source.py",
        'auto_offset_reset="none",',
        'auto_offset_reset="earliest",',
        ("tests/test_rules_11_to_19.py::test_an_input_trimmed_under_a_running_worker_is_no_jump",),
    ),
    TextMutant(
        "compacted-output-taken",
        "a compacted output is refused (rule 13)",
        "kafka/topics.py",
        "if output is None or not output.compacted:",
        "if output is not None:",
        ("tests/test_topics.py::test_a_compacted_output_is_refused",),
    ),
    TextMutant(
        "checked-at-the-start-only",
        "the topics are checked at every fencing (rule 13)",
        "fencing.py",
        """        check(topology, source, settings.sink, remembers=remembers, by_event_time=by_event_time)
""",
        "",
        (
            "tests/test_rules_11_to_19.py::test_an_output_that_came_to_be_compacted_is_refused_at_the_next_fencing",
        ),
    ),
    TextMutant(
        "growth-not-noticed",
        "growth of the input is refused (rule 14)",
        "resume.py",
        "if before is None or before >= found.partitions:",
        "if True:",
        ("tests/test_resume.py::test_an_input_that_has_grown_is_refused",),
    ),
    TextMutant(
        "younger-partition-skipped",
        "a partition that is younger than the group is read from its start (rule 14)",
        "resume.py",
        "if found.partition >= found.born:",
        "if False:",
        (
            "tests/test_resume.py::test_a_partition_that_is_younger_than_the_group_is_read_from_its_start",
        ),
    ),
    TextMutant(
        "fold-adds-again",
        "a fold makes the table that was alive (rule 15)",
        "rules/duplicates.py",
        "return seen.add_absent if isinstance(seen, Removable) else seen.add_many",
        "return seen.add_many",
        ("tests/test_shard.py::test_folding_again_from_an_earlier_label_does_no_harm",),
    ),
    TextMutant(
        "drain-waits-for-the-disk",
        "a shutdown ends within `drain_s` (rule 17)",
        "worker.py",
        "await asyncio.wait_for(saving, left_s())",
        "await saving",
        ("tests/test_worker.py::test_a_disk_that_hangs_does_not_hold_up_the_shutdown",),
    ),
    TextMutant(
        "drain-waits-for-the-interval",
        "a drain commits what is in hand at once (rule 17)",
        "reading.py",
        """            and not leaving.is_set()
""",
        "",
        ("tests/test_delivery.py::test_a_drain_does_not_wait_for_the_commit_interval",),
    ),
    TextMutant(
        "at-least-once-stopped",
        "at least once, what came between is folded, and delivery goes on (rule 18)",
        "committing.py",
        """            if self._context.exactly_once:
                self.foreign""",
        """            if True:
                self.foreign""",
        ("tests/test_rules_11_to_19.py::test_at_least_once_folds_a_foreign_event_and_goes_on",),
    ),
    TextMutant(
        "at-least-once-not-fenced",
        "at least once, too, a former owner is fenced at the assignment (rule 18)",
        "kafka/sink.py",
        "fencing = await self._started(transactional_id=self.transactional_id)",
        'fencing = await self._started(acks="all")',
        ("tests/test_rules_11_to_19.py::test_at_least_once_fences_once_at_the_assignment",),
    ),
    TextMutant(
        "committed-before-the-output",
        "at least once, the offset is committed behind the output (rule 18)",
        "committing.py",
        """            end = await self._settle(shard, transaction)
            self.ours_end = self.ours_end if end is None else end
            await self._commit(topology, transaction)
""",
        """            if not self._context.exactly_once:
                await self._commit(topology, transaction)
            end = await self._settle(shard, transaction)
            self.ours_end = self.ours_end if end is None else end
            if self._context.exactly_once:
                await self._commit(topology, transaction)
""",
        ("tests/test_fencing.py::test_at_least_once_commits_what_the_output_holds",),
    ),
    TextMutant(
        "old-broker-taken",
        "exactly once needs a broker that tells stable offsets (rule 19)",
        "kafka/offsets.py",
        """        return False
    except KafkaError as error:""",
        """        return True
    except KafkaError as error:""",
        ("tests/test_offsets.py::test_an_old_broker_is_told_from_one_that_is_not_ready",),
    ),
)
