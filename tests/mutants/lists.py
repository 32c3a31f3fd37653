"""How the rules of lists are broken, and what is promised of a list's exact store."""

from pathlib import Path

import numpy as np

from streamdedup.filters.digest_map import Rows, _0, _1, _is_below, _merge, _put
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.progress import Progress
from streamdedup.lists.storing import Storing
from streamdedup.snapshot import files
from tests.mutants.mutant import Mutant
from tests.mutants.patches import recompiled, replaced
from tests.mutants.text import TextMutant

_publish = Storing.publish


def _kept_at_the_end(newer: Rows, older: Rows, rows: Rows) -> np.uint64:
    i, j, to = _0, _0, _0
    newer_end, older_end = np.uint64(newer.shape[0]), np.uint64(older.shape[0])
    while i < newer_end or j < older_end:
        if i == newer_end or (j < older_end and _is_below(older, j, newer[i, 0], newer[i, 1])):
            _put(rows, to, older, j)
            j += _1
            to += _1
            continue
        if j < older_end and older[j, 0] == newer[i, 0] and older[j, 1] == newer[i, 1]:
            j += _1
        if newer[i, 2] != _0 or j == older_end:
            _put(rows, to, newer, i)
            to += _1
        i += _1
    return to


def _list_first(self: Storing, listed: KeyList, progress: Progress) -> Path:
    files.save(listed, self._output)
    return _publish(self, listed, progress)


MUTANTS: tuple[Mutant | TextMutant, ...] = (
    TextMutant(
        "exemption-not-kept",
        "the allow list exempts from the block list",
        "rules/listed.py",
        "blocked = hits[~allowed]",
        "blocked = hits",
        ("tests/test_lists_rule.py::test_the_allow_list_exempts_from_the_block_list_only",),
    ),
    TextMutant(
        "duplicates-before-lists",
        "what is blocked reaches no rule that follows",
        "shard.py",
        "left = verdicts[rows] == Verdict.PASS",
        "left = verdicts[rows] != Verdict.REJECTED",
        (
            "tests/test_lists_rule.py::test_what_is_blocked_enters_neither_pending_nor_the_filter",
            "tests/test_lists_rule.py::test_what_passed_before_it_was_listed_is_blocked_from_then_on",
        ),
    ),
    TextMutant(
        "file-over-change",
        "a change wins over what the list's file says",
        "lists/changed_list.py",
        "base.addresses.contains_many(digests) & (told != REMOVED) | (told == ADDED)",
        "base.addresses.contains_many(digests) | (told == ADDED)",
        ("tests/test_blacklist.py::test_single_changes_follow_within_two_seconds",),
    ),
    Mutant(
        "change-not-taken-back",
        "the last change of a key counts",
        lambda: recompiled(_merge, _kept_at_the_end),
        ("test_the_last_change_of_a_key_counts",),
        fresh_kernels=True,
    ),
    TextMutant(
        "tree-held-as-one-domain",
        "a domain entry is held by the digest under which addresses ask for it",
        "lists/keying.py",
        "domains=self.hash.digests(domains),",
        "domains=self.hash.digests([EXACT + domain.lstrip(EXACT) for domain in domains]),",
        ("tests/test_key_list.py::test_domain_entries_match_by_the_domain",),
    ),
    TextMutant(
        "version-before-its-list",
        "the version that is told is that of the list which judged",
        "reloading.py",
        """        try:
            file.loaded = await self._load(file)
""",
        """        try:
            new, old = await self._load(file), file.loaded
            kept = old.listed
            mixed = type(kept)(new.listed.facts, kept.addresses, kept.domains, new.listed.path)
            file.loaded = type(old)(mixed, old.store)
""",
        ("tests/test_blacklist.py::test_no_event_is_judged_by_half_a_list",),
    ),
    TextMutant(
        "refused-list-forgotten",
        "where a list is refused, the one before stays in force",
        "reloading.py",
        "            self._context.meters.lists_refused[file.which] += 1\n",
        """            self._context.meters.lists_refused[file.which] += 1
            self._context.lists.now = Lists()
""",
        ("tests/test_blacklist.py::test_a_list_that_does_not_do_is_refused[cut]",),
    ),
    TextMutant(
        "filter-believed",
        "what a list matches wrongly passes with on_positive: verify",
        "lists/verified_list.py",
        "self.store.holds(np.concatenate((self.keys.digests, self.domains.digests)))",
        "np.ones(len(self), dtype=np.bool_)",
        (
            "tests/test_verified_list.py::test_it_matches_what_is_on_it_and_nothing_else",
            "tests/test_verify_delivery.py::test_nobody_else_is_blocked_and_everything_is_counted",
        ),
    ),
    TextMutant(
        "asked-on-the-loop",
        "the loop waits for no disk (invariant 8)",
        "deciding.py",
        "return await context.threads.lookups.run(name, what, said.verified)",
        "return said.verified()",
        (
            "tests/test_verify_delivery.py::"
            "test_a_disk_that_does_not_answer_holds_up_its_partition_only",
        ),
    ),
    TextMutant(
        "counted-when-decided",
        "what is taken back is in no count of what was verified",
        "shard.py",
        "            self._counted.by_answer +=",
        "            self.tally.by_answer +=",
        ("tests/test_verified_list.py::test_what_is_taken_back_or_cut_off_is_not_counted",),
    ),
    Mutant(
        "list-before-its-store",
        "the list in force has its store, whatever is killed when",
        lambda: replaced(_publish, _list_first),
        ("test_a_build_that_is_killed_leaves_list_and_store_as_they_were",),
    ),
    TextMutant(
        "any-store-does",
        "a store belongs to one list, whatever its name",
        "lists/exact_store.py",
        "        refuse_other(directory, facts.owner, Owner.of(listed))\n",
        "",
        ("tests/test_exact_store.py::test_the_store_of_another_list_is_refused",),
    ),
    TextMutant(
        "store-not-checked",
        "a damaged byte of a store is never trusted (invariant 9)",
        "lists/exact_store.py",
        "        check_files(directory, facts)\n",
        "",
        ("tests/test_exact_store.py::test_a_damaged_file_is_refused_by_name",),
    ),
    TextMutant(
        "store-before-gone",
        "who reads a list that is just being replaced still finds its store",
        "lists/storing.py",
        "self._clean_up(_version_at(self._output))",
        "self._clean_up('none')",
        (
            "tests/test_exact_store.py::"
            "test_the_store_of_the_list_before_stays_until_the_next_build",
        ),
    ),
)
