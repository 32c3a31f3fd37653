"""How rules 1 to 7 of delivery are broken: the fence, the label, the note, births, gaps, retention, fingerprints."""

from tests.mutants.mutant import Mutant
from tests.mutants.text import TextMutant

MUTANTS: tuple[Mutant | TextMutant, ...] = (
    TextMutant(
        "id-by-process",
        "the fence is named after the output partition (rule 1)",
        "kafka/sink.py",
        'return f"{self._sink.topic}/{self._partition}"',
        'return f"{id(self)}"',
        ("tests/test_members.py::test_a_member_that_was_thrown_out_shuts_nobody_out",),
    ),
    TextMutant(
        "folded-to-the-last-stable-offset",
        "a shard waits until all of the output is decided (rule 2)",
        "fencing.py",
        "output_end = await cluster.end_offset(output, partition)",
        "output_end = await cluster.stable_offset(output, partition)",
        ("tests/test_fencing.py::test_what_is_undecided_in_the_output_is_waited_for",),
    ),
    TextMutant(
        "offset-read-first",
        "the committed offset is read behind the fence (rule 2)",
        "fencing.py",
        """    async with asyncio.timeout(FENCE_S_MAX):
        await writer.fence()
    async with asyncio.timeout(ANSWER_S_MAX):
        topology = await cluster.describe([source, *sink_topics(settings.sink)])
        remembers, by_event_time = settings.filter.remembers, settings.filter.by_event_time
        check(topology, source, settings.sink, remembers=remembers, by_event_time=by_event_time)
        # Before the end: at least once, others may write and commit meanwhile, and an offset that was committed with
        # more than we see of the output would look like a log that lost its end.
        own = await committed_offset(settings, cluster, partition)
""",
        """    async with asyncio.timeout(ANSWER_S_MAX):
        topology = await cluster.describe([source, *sink_topics(settings.sink)])
        remembers, by_event_time = settings.filter.remembers, settings.filter.by_event_time
        check(topology, source, settings.sink, remembers=remembers, by_event_time=by_event_time)
        # Before the end: at least once, others may write and commit meanwhile, and an offset that was committed with
        # more than we see of the output would look like a log that lost its end.
        own = await committed_offset(settings, cluster, partition)
        await writer.fence()
""",
        ("tests/test_rules_1_to_3.py::test_the_offset_is_read_behind_the_fence",),
    ),
    TextMutant(
        "offset-read-undecided",
        "exactly once, the committed offset is asked for when no transaction on it is open (rules 2, 19)",
        "fencing.py",
        "group, stable = settings.kafka.group_id, settings.delivery.exactly_once",
        "group, stable = settings.kafka.group_id, False",
        ("tests/test_rules_1_to_3.py::test_the_offset_is_read_behind_the_fence",),
    ),
    TextMutant(
        "gap-between-ours-not-noticed",
        "what comes between our events is noticed before the commit (rule 3)",
        "kafka/sink.py",
        "    if label is not None and base != label:",
        "    if False:",
        ("tests/test_rules_1_to_3.py::test_foreign_markers_alone_stop_nobody",),
    ),
    TextMutant(
        "second-writer-folded",
        "a second writer stops the shard (rule 3)",
        "folding.py",
        "        if high > low:",
        "        if False:",
        ("tests/test_rules_1_to_3.py::test_a_second_writers_event_stops_before_the_commit",),
    ),
    TextMutant(
        "note-names-no-output",
        "the commit's note names the logs that its offset belongs to (rule 4)",
        "committing.py",
        "topology[settings.sink.topic].topic_id,",
        "None,",
        ("tests/test_rules_4_and_5.py::test_the_note_tells_the_logs_and_the_label",),
    ),
    TextMutant(
        "offset-of-another-input",
        "an offset of another input is void (rule 4)",
        "resume.py",
        "if _differs(note.input_id, found.input_id):",
        "if False:",
        ("tests/test_resume.py::test_an_offset_of_another_log_is_void",),
    ),
    TextMutant(
        "output-made-again-not-noticed",
        "an output that was made again stops the shard (rule 4)",
        "resume.py",
        "    if _differs(note.output_id, found.output_id):",
        "    if False:",
        ("tests/test_resume.py::test_an_output_that_was_made_again_stops",),
    ),
    TextMutant(
        "lost-end-not-noticed",
        "an output that lost its end stops the shard (rule 4)",
        "resume.py",
        "if found.output_end < note.label:",
        "if False:",
        ("tests/test_resume.py::test_an_output_that_lost_its_end_stops",),
    ),
    TextMutant(
        "lost-offset-is-a-birth",
        "a lost offset is no birth where the output is not empty (rule 4)",
        "resume.py",
        "if remembers and (found.output_end > 0 or found.has_memory):",
        "if remembers and found.has_memory:",
        ("tests/test_resume.py::test_a_lost_offset_is_no_birth",),
    ),
    TextMutant(
        "birth-not-committed",
        "`source.start` is resolved once: a crash cannot move it (rule 4)",
        "delivery.py",
        "if resume.birth:",
        "if False:",
        ("tests/test_worker.py::test_a_birth_that_fails_is_still_a_birth",),
    ),
    TextMutant(
        "gap-passed-over",
        "an output that was trimmed beyond the snapshots stops the shard (rule 5)",
        "resume.py",
        'if sink.on_gap == "stop":',
        "if False:",
        ("tests/test_resume.py::test_an_output_that_was_trimmed_beyond_the_label_stops",),
    ),
    TextMutant(
        "trimmed-under-a-fold",
        "what is deleted under a fold is a gap like any other (rule 5)",
        "folding.py",
        "raise DoubtError(str(error)) from error  # the next fencing sees the new start",
        'self._log.info("trimmed", error=str(error))',
        ("tests/test_rules_4_and_5.py::test_an_output_trimmed_while_it_is_folded",),
    ),
    TextMutant(
        "unread-passed-over",
        "what the input deleted unread stops the shard (rule 5)",
        "resume.py",
        'if source.on_gap == "stop":',
        "if False:",
        ("tests/test_resume.py::test_an_offset_outside_of_the_input_stops_or_skips",),
    ),
    TextMutant(
        "deleted-at-once",
        "what the output would delete at once is rejected (rule 6)",
        "kafka/limits.py",
        "kept_ms = min(kept_ms, topic.retention_ms)",
        "pass",
        ("tests/test_limits.py::test_the_narrower_of_retention_and_distance_counts",),
    ),
    TextMutant(
        "snapshot-never-due",
        "a snapshot is due before retention takes the last but one (rule 6)",
        "shard_snapshots.py",
        "return spare < min(label, log_start)",
        "return False",
        ("tests/test_retention.py::test_a_snapshot_is_due_while_one_alone_can_be_used",),
    ),
    TextMutant(
        "retention-not-watched",
        "where the output begins is watched while a worker runs (rule 6)",
        "worker.py",
        """            await self._shards.outrun_retention(context)
""",
        "",
        (
            "tests/test_retention.py::test_a_snapshot_is_taken_before_retention_takes_the_last_but_one",
        ),
    ),
    TextMutant(
        "retention-taken-for-outlived",
        "only what is older than the window may be missing (rules 5, 6)",
        "resume.py",
        "return now_ms - output.retention_ms <= watermark - window_ms",
        "return True",
        ("tests/test_resume.py::test_what_retention_deletes_may_be_older_than_the_window",),
    ),
    TextMutant(
        "fingerprint-not-compared",
        "another record batch in the place of ours is another log (rule 7)",
        "fingerprint.py",
        "if folded is None or held is None or folded == held:",
        "if True:",
        ("tests/test_fingerprint.py::test_another_batch_in_the_place_of_ours_contradicts",),
    ),
    TextMutant(
        "memory-of-another-log",
        "a filter in memory is dropped where the log was replaced (rule 7)",
        "folding.py",
        "if reason := contradiction(self._fingerprint, held):",
        "if (reason := contradiction(self._fingerprint, held)) and not held:",
        ("tests/test_fingerprint.py::test_a_memory_of_another_log_is_dropped",),
    ),
)
