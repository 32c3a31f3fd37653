"""How the invariants are broken, and what `reset` promises."""

from tests.mutants.mutant import Mutant
from tests.mutants.text import TextMutant

MUTANTS: tuple[Mutant | TextMutant, ...] = (
    TextMutant(
        "admit-before-commit",
        "a key enters the filter only when its event is committed (invariant 2)",
        "committing.py",
        """            await self._commit(topology, transaction)
        if end is not None and self.output_end is not None:
            self.output_end = end + self._context.exactly_once
        if transaction.events:
            self._context.meters.transactions.observe(loop.time() - begun_at)
        async with self._folding.turn:
            await in_turns(shard.admit(shard.label if end is None else end))
""",
        """            await in_turns(shard.admit(shard.label if end is None else end))
            await self._commit(topology, transaction)
            self.output_end = self.ours_end + 1
""",
        ("tests/test_members.py::test_the_next_is_decided_while_one_commits",),
    ),
    TextMutant(
        "pending-not-consulted",
        "a duplicate of an event in flight is seen (invariant 2)",
        "filters/waiting.py",
        "_put_new(*newest, end,",
        "_put_new(newest.slots.copy(), newest.ring, newest.state, end,",
        ("tests/test_shard.py::test_a_duplicate_is_seen_before_its_first_is_committed",),
    ),
    TextMutant(
        "twice-in-a-batch",
        "a key passes once within what is judged together (invariant 2)",
        "filters/waiting.py",
        """        if slots[at] != _0:
            continue
""",
        """        if slots[at] != _0 and (slots[at] & _LOW) - _1 < state[FIRST] + end - np.uint64(rows):
            continue
""",
        ("tests/test_shard.py::test_a_duplicate_is_seen_before_its_first_is_committed",),
    ),
    TextMutant(
        "label-ahead",
        "a label is never ahead of what is folded (invariant 3)",
        "committing.py",
        "return await self._writer.settle(self.output_end)",
        "return ((await self._writer.settle(self.output_end)) or shard.label) + 3",
        ("tests/test_rules_1_to_3.py::test_the_label_is_behind_our_last_event[exactly_once]",),
    ),
    TextMutant(
        "label-behind-the-marker",
        "what a second writer puts before our marker is folded (invariant 3, rule 3)",
        "committing.py",
        "return await self._writer.settle(self.output_end)",
        "return ((await self._writer.settle(self.output_end)) or shard.label - 1) + 1",
        ("tests/test_rules_1_to_3.py::test_the_label_is_behind_our_last_event[exactly_once]",),
    ),
    TextMutant(
        "snapshot-ahead-of-the-output",
        "a snapshot beyond the output's end is refused (invariant 3)",
        "snapshot/store.py",
        "    if label > end:",
        "    if False:",
        ("tests/test_snapshot.py::test_what_is_ahead_of_the_output_is_refused_and_left",),
    ),
    TextMutant(
        "snapshot-of-two-states",
        "a snapshot holds one state (invariant 3)",
        "shard_snapshots.py",
        "if live and _structure(seen) != structure:",
        "if False:",
        ("tests/test_windowed_shard.py::test_a_copy_that_spans_a_change_is_void",),
    ),
    TextMutant(
        "snapshot-of-other-settings",
        "a snapshot of another log or of other settings is refused (invariant 3)",
        "snapshot/store.py",
        "if differences := identity.differences(log.identity):",
        "if (differences := identity.differences(log.identity)) and not header:",
        ("tests/test_snapshot.py::test_another_log_or_other_settings_are_refused_and_left",),
    ),
    TextMutant(
        "rejected-not-counted",
        "every event has one outcome, and dead letters are counted (invariant 4)",
        "shard.py",
        "np.bincount(verdicts, minlength=len(Verdict))",
        "np.bincount(verdicts[verdicts != Verdict.REJECTED], minlength=len(Verdict))",
        ("tests/test_shard.py::test_what_is_rejected_never_waits",),
    ),
    TextMutant(
        "dropped-unasked",
        "nothing is dropped that nobody asked to drop (invariant 4)",
        "emission.py",
        'if reasons and sink.on_rejected == "stop":',
        "if False:",
        (
            "tests/test_side_topics.py::test_a_rejected_event_without_a_dead_letter_topic_stops_the_shard",
        ),
    ),
    TextMutant(
        "taken-back-not-counted",
        "what is read again in doubt is not counted twice (invariant 4)",
        "meters.py",
        """        self.take_back(cause)
""",
        "",
        ("tests/test_metrics.py::test_a_doubt_takes_back_all_that_is_in_hand",),
    ),
    TextMutant(
        "time-not-in-the-note",
        "a window's time is committed with the offset (invariant 5)",
        "committing.py",
        "transaction.watermark,",
        "None,",
        ("tests/test_window_delivery.py::test_the_time_of_a_trimmed_output_stands_in_the_commit",),
    ),
    TextMutant(
        "budget-not-kept",
        "no filter goes past its error budget unasked (invariant 7)",
        "shard.py",
        "within_budget=self._stop_when_full",
        "within_budget=False",
        ("tests/test_shard.py::test_a_batch_is_cut_before_the_first_key_too_many",),
    ),
    TextMutant(
        "fsync-left-out",
        "a snapshot survives a loss of power whole, or not at all",
        "snapshot/files.py",
        "                fs.fsync(fd)\n",
        "                pass\n",
        (
            "tests/test_snapshot.py::test_power_may_fail_after_any_call_and_the_old_or_the_new_is_loaded",
        ),
    ),
    TextMutant(
        "name-not-synced",
        "a snapshot that was saved outlives a loss of power (invariant 9)",
        "snapshot/files.py",
        """        sync_directory(fs, path.parent)
""",
        """        pass
""",
        (
            "tests/test_snapshot.py::test_power_may_fail_after_any_call_and_the_old_or_the_new_is_loaded",
        ),
    ),
    TextMutant(
        "damaged-byte-trusted",
        "a damaged byte is found (invariant 9)",
        "snapshot/reading.py",
        "if (wrong := np.flatnonzero(written != sums)).size:",
        "if (wrong := np.flatnonzero(written != sums)).size < 0:",
        (
            "tests/test_snapshot.py::test_a_damaged_generation_is_set_aside_and_the_one_before_used[5000]",
        ),
    ),
    TextMutant(
        "files-for-all",
        "snapshots are private (invariant 10)",
        "snapshot/files.py",
        "fd = fs.open(temporary, flags, 0o600)",
        "fd = fs.open(temporary, flags, 0o644)",
        ("tests/test_snapshot.py::test_files_are_private",),
    ),
    TextMutant(
        "floor-not-set",
        "`reset --forget` sets a floor",
        "reset.py",
        "floor, since = found.output_end, to",
        "pass",
        ("tests/test_reset.py::test_forgetting_sets_a_floor_and_the_time_back",),
    ),
    TextMutant(
        "floor-not-carried-on",
        "every commit carries the floor of `reset --forget` on",
        "committing.py",
        "floor=self.floor,",
        "floor=None,",
        ("tests/test_reset.py::test_forgetting_emits_every_first_again_once",),
    ),
    TextMutant(
        "floor-folded-over",
        "what stands below the floor of `reset --forget` is forgotten",
        "folding.py",
        "shard.label = shard.end_label = found.floor or 0",
        "shard.label = shard.end_label = 0",
        ("tests/test_reset.py::test_forgetting_what_comes_later_only",),
    ),
    TextMutant(
        "reset-fences-nobody",
        "a reset shuts out a worker that sleeps",
        "reset.py",
        """                await self._fence(step.partition)
""",
        "",
        ("tests/test_reset.py::test_a_sleeping_worker_wakes_up_fenced",),
    ),
)
