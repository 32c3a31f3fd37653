"""How the rules of lists are broken, and what is promised of a list's exact store."""

import os
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from proof.mutants.mutant import Mutant
from proof.mutants.patches import recompiled, replaced
from streamdedup.commands.lists import ask
from streamdedup.commands.lists.in_force import Report
from streamdedup.delivery.decide import Decider
from streamdedup.delivery.lists import Loaded
from streamdedup.delivery.shard import Decided, Shard
from streamdedup.events import Column, Integers
from streamdedup.filters.base import Mask
from streamdedup.filters.exact.digest_map import (
    Rows,
    _0,
    _1,
    _merge,
    _put,
    first_not_below,
    is_at,
    is_below,
)
from streamdedup.kafka.base import Connect
from streamdedup.keys.hashing import Digests
from streamdedup.keys.normalizers.base import EXACT, DomainEntry
from streamdedup.keys.normalizers.email import EmailNormalizer
from streamdedup.lists.build.store import StoreBuilder
from streamdedup.lists.changed_list import ChangedList
from streamdedup.lists.digest_blocks import BLOCK_ROWS, search
from streamdedup.lists.exact_store import ExactStore
from streamdedup.lists.in_force import ChangeInForce
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.overlay import UNCHANGED, Changes
from streamdedup.lists.sorted_digests import SortedDigests
from streamdedup.progress import Progress
from streamdedup.rules.lists import (
    NOTHING_BLOCKED,
    BlockedRows,
    Causes,
    Lists,
    Match,
    Matches,
)
from streamdedup.settings import Settings
from streamdedup.snapshot import files
from streamdedup.snapshot.format import Sums
from streamdedup.snapshot.read import ScanningReader, SnapshotReader
from streamdedup.worker.lists import ListLoader, _File

MUTANTS = (
    Mutant(
        "exemption-not-kept",
        "the allow list exempts from the block list",
        lambda: replaced(Lists.exempted, _exempting_nothing),
        ("test_the_allow_list_exempts_from_the_block_list_only",),
    ),
    Mutant(
        "duplicates-before-lists",
        "what is blocked reaches no rule that follows",
        lambda: replaced(Shard.decide, _duplicates_first),
        (
            "test_what_is_blocked_enters_neither_pending_nor_the_filter",
            "test_what_passed_before_it_was_listed_is_blocked_from_then_on",
        ),
    ),
    Mutant(
        "file-over-change",
        "a change wins over what the list's file says",
        lambda: replaced(ChangedList.match, _file_first),
        ("test_single_changes_follow_within_two_seconds",),
    ),
    Mutant(
        "change-called-file",
        "a blocked event names the change that blocks it",
        lambda: replaced(ChangedList.causes, _file_alone),
        (
            "test_each_match_has_its_cause",
            "test_a_blocked_event_names_the_file_or_the_change_and_its_reason[False]",
        ),
    ),
    Mutant(
        "live-by-the-file",
        "check --live answers by what is in force",
        lambda: replaced(ask._lists, _without_changes),
        ("test_the_lists_in_force_answer[drop]",),
    ),
    Mutant(
        "every-message-in-force",
        "what was undone, or changed again, is not in force",
        lambda: replaced(Changes.decide, _all_decide),
        ("test_each_change_in_force_has_its_place_author_time_and_reason",),
    ),
    Mutant(
        "entries-shown-unasked",
        "an entry is shown only to those who typed it, or ask for all",
        lambda: replaced(Report._fields, _with_entry),
        ("test_each_change_in_force_has_its_place_author_time_and_reason",),
    ),
    Mutant(
        "change-not-taken-back",
        "the last change of a key counts",
        lambda: recompiled(_merge, _kept_at_the_end),
        ("test_the_last_change_of_a_key_counts",),
        fresh_kernels=True,
    ),
    Mutant(
        "tree-held-as-one-domain",
        "a domain entry is held by the digest under which addresses ask for it",
        lambda: replaced(EmailNormalizer.of_domain_entry, _all_alone),
        ("test_domain_entries_match_by_the_domain",),
    ),
    Mutant(
        "version-before-its-list",
        "the version that is told is that of the list which judged",
        lambda: replaced(ListLoader._load, _facts_first),
        ("test_no_event_is_judged_by_half_a_list",),
    ),
    Mutant(
        "refused-list-forgotten",
        "where a list is refused, the one before stays in force",
        lambda: replaced(ListLoader._refuse, _forgetting),
        ("test_a_list_that_does_not_do_is_refused[cut]",),
    ),
    Mutant(
        "filter-believed",
        "what a list matches wrongly passes with on_positive: verify",
        lambda: replaced(ExactStore.holds, _believing),
        (
            "test_it_matches_what_is_on_it_and_nothing_else",
            "test_nobody_else_is_blocked_and_everything_is_counted",
        ),
    ),
    Mutant(
        "asked-on-the-loop",
        "the loop waits for no disk (invariant 8)",
        lambda: replaced(Decider._blocked, _on_the_loop),
        ("test_a_disk_that_does_not_answer_holds_up_its_partition_only",),
    ),
    Mutant(
        "counted-when-decided",
        "what is taken back is in no count of what was verified",
        lambda: replaced(Shard._count, _counted_at_once),
        ("test_what_is_taken_back_or_cut_off_is_not_counted",),
    ),
    Mutant(
        "list-before-its-store",
        "the list in force has its store, whatever is killed when",
        lambda: replaced(StoreBuilder.publish, _list_first),
        ("test_a_build_that_is_killed_leaves_list_and_store_as_they_were",),
    ),
    Mutant(
        "any-store-does",
        "a store belongs to one list, whatever its name",
        lambda: replaced(ExactStore.refuse_other, lambda *_: None),
        ("test_the_store_of_another_list_is_refused",),
    ),
    Mutant(
        "store-not-checked",
        "a damaged byte of a store is never trusted (invariant 9)",
        lambda: replaced(ScanningReader._compare, _reading_only),
        ("test_a_damaged_byte_anywhere_is_found",),
    ),
    Mutant(
        "block-not-verified",
        "a byte of a store that is damaged later is never trusted (invariant 9)",
        lambda: replaced(SortedDigests._read, _believing_the_disk),
        ("test_a_block_that_changes_after_the_store_was_opened_is_not_trusted",),
    ),
    Mutant(
        "last-block-to-its-end",
        "what fills up the last block of a store is no digest",
        lambda: recompiled(search, _through_whole_blocks),
        ("test_the_last_block_may_be_of_any_length",),
        fresh_kernels=True,
    ),
    Mutant(
        "store-before-gone",
        "who reads a list that is just being replaced still finds its store",
        lambda: replaced(StoreBuilder._clean_up, _remembering_none),
        ("test_the_store_of_the_list_before_stays_until_the_next_build",),
    ),
)

_exempted, _decide, _count = Lists.exempted, Shard.decide, Shard._count
_lists, _fields = ask._lists, Report._fields
_match, _of_domain_entry = ChangedList.match, EmailNormalizer.of_domain_entry
_load, _refuse = ListLoader._load, ListLoader._refuse
_publish, _clean_up = StoreBuilder.publish, StoreBuilder._clean_up


def _exempting_nothing(self: Lists, *arguments: Any) -> BlockedRows:
    without = _exempted(replace(self, allow=None), *arguments)
    return without._replace(exempt=_exempted(self, *arguments).exempt, lists=self)


def _duplicates_first(self: Shard, *arguments: Any, **named: Any) -> Decided:
    given = signature(_decide).bind(self, *arguments, **named)
    blocked = given.arguments.pop("blocked", NOTHING_BLOCKED)
    judged, _ = _decide(*given.args, **given.kwargs)
    return Decided(judged, blocked.head(len(judged)))


def _file_first(self: ChangedList, keys: Column, digests: Digests) -> Matches:
    matches = _match(self, keys, digests)
    matches[self.base.addresses.contains_many(digests)] = Match.ADDRESS
    return matches


def _file_alone(_self: ChangedList, _keys: Column, _digests: Digests, matches: Matches) -> Causes:
    return Causes.file_alone(len(matches))


def _without_changes(settings: Settings, *, connect: Connect, **_: object) -> Lists:
    return _lists(settings, live=False, connect=connect)


def _all_decide(self: Changes, _digests: Digests, changes: Sequence[int], *_: object) -> Mask:
    self.merge()
    return np.asarray(np.array(changes) != UNCHANGED)


def _with_entry(self: Report, change: ChangeInForce) -> list[str]:
    return _fields(replace(self, shows_entries=True), change)


def _kept_at_the_end(newer: Rows, older: Rows, rows: Rows) -> np.uint64:
    i, j, to = _0, _0, _0
    newer_end, older_end = np.uint64(newer.shape[0]), np.uint64(older.shape[0])
    while i < newer_end or j < older_end:
        if i == newer_end or (j < older_end and is_below(older, j, newer[i, 0], newer[i, 1])):
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


def _all_alone(self: EmailNormalizer, entry: bytes) -> DomainEntry:
    text, keys = _of_domain_entry(self, entry)
    return DomainEntry(text, [EXACT + domain.lstrip(EXACT) for domain in keys])


async def _facts_first(self: ListLoader, file: _File) -> Loaded:
    new = await _load(self, file)
    if file.loaded is None:
        return new
    kept = file.loaded.listed
    mixed = KeyList(new.listed.facts, kept.addresses, kept.domains, new.listed.path)
    return Loaded(mixed, file.loaded.store)


def _forgetting(self: ListLoader, file: _File, reason: str, *, is_new: bool) -> None:
    _refuse(self, file, reason, is_new=is_new)
    if is_new:
        self._in_force.now = Lists()


def _believing(_self: ExactStore, digests: Digests) -> Mask:
    return np.ones(len(digests), dtype=np.bool_)


def _reading_only(self: SnapshotReader, sums: Sums) -> None:
    self._take(sums.nbytes)


def _believing_the_disk(self: SortedDigests, blocks: Sequence[int]) -> Digests:
    rows = np.zeros((len(blocks), BLOCK_ROWS, 2), dtype="<u8")
    for into, block in zip(rows, blocks, strict=True):
        os.preadv(self._fd, [into.data], self._index.start + block * into.nbytes)
    return rows.reshape(-1, 2)


def _through_whole_blocks(
    rows: Digests, _ends: Integers, places: Integers, digests: Digests, found: Mask
) -> None:
    for row in range(digests.shape[0]):
        a, b = digests[row, 0], digests[row, 1]
        start = np.uint64(places[row] * BLOCK_ROWS)
        end = start + np.uint64(BLOCK_ROWS)
        at = first_not_below(rows, start, end, a, b)
        found[row] = at < end and is_at(rows, at, a, b)


async def _on_the_loop(self: Decider, *asked: Any) -> BlockedRows:
    return self._services.lists.now.screen(*asked)


def _counted_at_once(self: Shard, *arguments: Any) -> None:
    before = self._counted.by_answer.copy()
    _count(self, *arguments)
    self.tally.by_answer += self._counted.by_answer - before
    self._counted.by_answer[:] = before


def _list_first(self: StoreBuilder, listed: KeyList, progress: Progress) -> Path:
    files.save(listed, self._output)
    return _publish(self, listed, progress)


def _remembering_none(self: StoreBuilder, _in_force: str | None) -> None:
    _clean_up(self, "none")
