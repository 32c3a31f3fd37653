"""How the rules of lists are broken: their order, changes over what a file says, versions, and what is refused."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "exemption-not-kept",
        "the allow list exempts from the block list",
        "rules/listed.py",
        "blocked = hits & ~allowed",
        "blocked = hits",
        ("tests/test_lists_rule.py::test_the_allow_list_exempts_from_the_block_list_only",),
    ),
    Mutant(
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
    Mutant(
        "asked-for-other-rows",
        "what a list says of a key is told of that key's event",
        "rules/listed.py",
        "self.matches[rows], self.allowed[rows]",
        "self.matches[: len(rows)], self.allowed[: len(rows)]",
        ("tests/test_lists_rule.py::test_lists_that_were_asked_before_are_not_asked_again",),
    ),
    Mutant(
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
        "filters/marks.py",
        "        if newer[i, 2] != _0:\n",
        "        if newer[i, 2] != _0 or j == older_end:\n",
        ("tests/test_overlay.py::test_the_last_change_of_a_key_counts",),
    ),
    Mutant(
        "tree-held-as-one-domain",
        "a domain entry is held by the digest under which addresses ask for it",
        "lists/keying.py",
        "domains=self.hash.digests(domains),",
        "domains=self.hash.digests([EXACT + domain.lstrip(EXACT) for domain in domains]),",
        ("tests/test_key_list.py::test_domain_entries_match_by_the_domain",),
    ),
    Mutant(
        "version-before-its-list",
        "the version that is told is that of the list which judged",
        "reloading.py",
        """        try:
            file.listed = await self._load(file)
""",
        """        try:
            new, old = await self._load(file), file.listed
            file.listed = type(old)(new.facts, old.addresses, old.domains, new.path)
""",
        ("tests/test_blacklist.py::test_no_event_is_judged_by_half_a_list",),
    ),
    Mutant(
        "refused-list-forgotten",
        "where a list is refused, the one before stays in force",
        "reloading.py",
        "            self._context.meters.lists_refused[file.which] += 1\n",
        """            self._context.meters.lists_refused[file.which] += 1
            self._context.lists.now = Lists()
""",
        ("tests/test_blacklist.py::test_a_list_that_does_not_do_is_refused[cut]",),
    ),
)
