"""How what is promised of a list's exact store is broken."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "filter-believed",
        "what a list matches wrongly passes with on_positive: verify",
        "lists/verified_list.py",
        "self.store.holds(digests[found]), Answer",
        "np.full(len(found), 1), Answer",
        (
            "tests/test_verified_list.py::test_it_matches_what_is_on_it_and_nothing_else",
            "tests/test_verify_delivery.py::test_nobody_else_is_blocked_and_everything_is_counted",
        ),
    ),
    Mutant(
        "asked-on-the-loop",
        "the loop waits for no disk (invariant 8)",
        "deciding.py",
        "if not lists.ask_a_disk:",
        "if lists:",
        (
            "tests/test_verify_delivery.py::"
            "test_a_disk_that_does_not_answer_holds_up_its_partition_only",
        ),
    ),
    Mutant(
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
        "lists/building.py",
        """        if storing is not None:
            storing.publish(made, progress)
        files.save(made, output, wall_clock=wall_clock)
""",
        """        files.save(made, output, wall_clock=wall_clock)
        if storing is not None:
            storing.publish(made, progress)
""",
        (
            "tests/test_exact_store.py::"
            "test_a_build_that_is_killed_leaves_list_and_store_as_they_were",
        ),
    ),
    Mutant(
        "any-store-does",
        "a store belongs to one list, whatever its name",
        "lists/exact_store.py",
        "        refuse_other(directory, facts.owner, Owner.of(listed))\n",
        "",
        ("tests/test_exact_store.py::test_the_store_of_another_list_is_refused",),
    ),
    Mutant(
        "store-not-checked",
        "a damaged byte of a store is never trusted (invariant 9)",
        "lists/exact_store.py",
        "        check_files(directory, facts)\n",
        "",
        ("tests/test_exact_store.py::test_a_damaged_file_is_refused_by_name",),
    ),
    Mutant(
        "store-before-gone",
        "who reads a list that is just being replaced still finds its store",
        "lists/storing.py",
        "self._remove_all_but(_version_at(self._output))",
        "self._remove_all_but(None)",
        (
            "tests/test_exact_store.py::"
            "test_the_store_of_the_list_before_stays_until_the_next_build",
        ),
    ),
)
