"""How the filters of a program are broken: as sets, in builtins, kept in a directory, and between runs of `pipe`."""

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from proof.mutants.mutant import Mutant
from proof.mutants.patches import recompiled, replaced
from streamdedup.commands import saved_filter
from streamdedup.commands.pipe import deduplicate
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.exact import rows
from streamdedup.filters.exact.exact import Exact
from streamdedup.filters.exact.one_key import _COUNTS, _SLOTS, _TABLE, _WIDTH, _1, _add
from streamdedup.filters.stash import NEW
from streamdedup.interpreter import Address, counts_in, word_in, words_in
from streamdedup.kept import directory
from streamdedup.kept.changes import Changes
from streamdedup.kept.log import CLEARED, REMOVED, LogReader, LogWriter, Rows
from streamdedup.kept.options import check_same
from streamdedup.library.content import Content, _add_batch, copies
from streamdedup.library.equality import _options, hold_the_same
from streamdedup.library.full import Watched, adding_many, uniting
from streamdedup.library.locked import Locked, Method, both_alone
from streamdedup.library.subclass import _builtin
from streamdedup.native import OPEN

MUTANTS = (
    Mutant(
        "union-of-common-bits",
        "a union has the keys of both",
        lambda: replaced(Bloom.__ior__, _common),
        ("test_a_union_by_an_operator_leaves_both_as_they_are",),
    ),
    Mutant(
        "intersection-keeps-all",
        "an intersection has only the keys that are in both",
        lambda: replaced(Exact.__iand__, lambda one, _other: one),
        ("test_an_intersection_holds_what_both_hold",),
    ),
    Mutant(
        "update-skips-a-key",
        "`update` adds all keys of an iterable",
        lambda: replaced(_add_batch, lambda one, keys: _add_batch(one, keys[:-1])),
        ("test_update_adds_what_iterables_yield",),
    ),
    Mutant(
        "keys-before-a-refused-one-lost",
        "`update` adds the keys before one that is refused",
        lambda: replaced(_add_batch, _all_or_nothing),
        ("test_update_adds_what_comes_before_an_error",),
    ),
    Mutant(
        "copy-shares-rows",
        "a copy is a filter of its own",
        lambda: replaced(copies, list),
        ("test_an_equal_filter_has_got_the_same_in_the_same_order",),
    ),
    Mutant(
        "cleared-filter-is-silent",
        "a cleared filter is as it was built, and warns again",
        lambda: replaced(Content.clear, _cleared_and_silent),
        ("test_a_cleared_filter_keeps_its_normalization_and_warns_again",),
    ),
    Mutant(
        "equal-by-options",
        "equal filters hold the same",
        lambda: replaced(hold_the_same, lambda one, other: _options(one) == _options(other)),
        ("test_filters_with_the_same_keys_are_equal",),
    ),
    Mutant(
        "stops-a-key-late",
        "with `on_full: stop` no filter holds more keys than its capacity",
        lambda: replaced(Watched._count_room, _one_more),
        ("test_a_full_filter_stops_and_changes_nothing",),
    ),
    Mutant(
        "union-beyond-the-capacity",
        "a union that does not fit is refused with `on_full: stop`",
        lambda: replaced(uniting, _united_whatever_comes),
        ("test_a_union_may_fill_a_filter",),
    ),
    Mutant(
        "batches-without-the-lock",
        "threads may share a filter",
        lambda: replaced(adding_many, lambda add_many: add_many),
        ("test_no_two_calls_are_inside_a_filter_at_one_time",),
    ),
    Mutant(
        "builtin-says-always-new",
        "the builtin `add` answers as the method in Python does",
        lambda: replaced(_builtin, _always_new),
        ("test_builtins_and_python_agree_whatever_comes_between",),
    ),
    Mutant(
        "compiled-add-is-always-new",
        "the kernels of one key answer as those of a batch do",
        lambda: recompiled(_add, _new_whatever_is_there),
        ("test_a_bound_method_that_was_taken_before_calls_the_builtin",),
        fresh_kernels=True,
    ),
    Mutant(
        "builtins-beside-a-call",
        "a builtin does not touch a table while another call is inside",
        lambda: replaced(Locked._enter, _left_open),
        ("test_builtins_leave_all_to_python_while_a_call_is_inside",),
    ),
    Mutant(
        "last-change-not-replayed",
        "a kept filter is what it was, with all changes of its log",
        lambda: replaced(LogReader.frames, _all_but_the_last),
        ("test_integers_of_a_range_may_be_negative",),
    ),
    Mutant(
        "discard-not-replayed",
        "a key that was taken out of a kept filter stays out",
        lambda: replaced(
            Changes.play, lambda self, what, rows: _playing(self, what, rows, REMOVED)
        ),
        ("test_a_multiset_counts_as_before",),
    ),
    Mutant(
        "clear-not-replayed",
        "a kept filter that was cleared stays so",
        lambda: replaced(
            Changes.play, lambda self, what, rows: _playing(self, what, rows, CLEARED)
        ),
        ("test_it_is_what_it_was",),
    ),
    Mutant(
        "multiset-logs-what-is-new",
        "a kept multiset counts each addition",
        lambda: replaced(Changes.__init__, _of_a_set),
        ("test_a_multiset_counts_as_before",),
    ),
    Mutant(
        "log-without-fsync",
        "what `flush` returned for is on the disk",
        lambda: replaced(LogWriter.write, _written_and_not_synced),
        ("test_flush_returns_after_fsync",),
    ),
    Mutant(
        "directory-not-locked",
        "one process at a time has the directory of a kept filter",
        lambda: patch.object(
            directory, "fcntl", SimpleNamespace(flock=lambda *_: None, LOCK_EX=0, LOCK_NB=0)
        ),
        ("test_one_object_has_it",),
    ),
    Mutant(
        "kept-options-not-compared",
        "a kept filter is not opened with other options than its own",
        lambda: replaced(check_same, lambda *_: None),
        ("test_other_options_are_refused",),
    ),
    Mutant(
        "saved-after-a-failure",
        "only a run of `pipe` that copied all lines saves its filter",
        lambda: replaced(deduplicate, _always_whole),
        ("test_a_run_that_fails_saves_nothing",),
    ),
    Mutant(
        "loaded-options-not-compared",
        "`pipe --load` goes on with the options of the run before",
        lambda: replaced(saved_filter._check, lambda *_: None),
        ("test_other_options_than_those_of_the_file_are_refused",),
    ),
)

_clear, _enter, _count_room, _frames = (
    Content.clear,
    Locked._enter,
    Watched._count_room,
    LogReader.frames,
)
_play: Callable[..., None] = Changes.play
_init: Callable[..., None] = Changes.__init__


def _common(self: Any, other: Any) -> Any:
    np.bitwise_and(self._words, other._words, out=self._words)
    self._recount()
    return self


def _all_or_nothing(one: Any, keys: list[Any]) -> None:
    one.add_many(one.digests(keys))


def _cleared_and_silent(self: Any) -> None:
    on_full = self._on_full
    _clear(self)
    self._on_full = on_full


def _one_more(self: Any) -> int:
    room = _count_room(self) + 1
    self._room_left = max(0, room)
    return room


def _united_whatever_comes(unite: Method) -> Method:
    def united(self: Any, other: Any) -> Any:
        with both_alone(self, other):
            unite(self, other)
            self._room_left = 0
        return self

    return united


def _always_new(class_: Any, name: str) -> Any:
    made = _builtin(class_, name)
    if name != "add" or class_._builtins is None:
        return made

    def add(self: Any, *key: Any, **named: Any) -> bool:
        made(self, *key, **named)
        return True

    class_._natives[name] = add
    return add


def _new_whatever_is_there(at: Address, a: np.uint64, b: np.uint64) -> int:
    width, first = word_in(at, _WIDTH), max(a, _1)
    home = rows.home(width, word_in(at, _SLOTS), first)
    rows._insert(words_in(at, _TABLE), width, home, first, b, counts_in(at, _COUNTS))
    return NEW


def _left_open(self: Any, inside: int) -> Any:
    self._inside = inside + 1
    return self._state[OPEN]


def _all_but_the_last(self: LogReader) -> Iterator[tuple[int, Rows]]:
    yield from [*_frames(self)][:-1]


def _playing(self: Changes, what: int, rows: Rows, ignored: int) -> None:
    if what != ignored:
        _play(self, what, rows)


def _of_a_set(self: Changes, filter_: Any) -> None:
    _init(self, filter_)
    self.needs_all = hasattr(filter_, "clock")


def _written_and_not_synced(self: LogWriter, data: bytes) -> None:
    self.size_bytes += os.pwrite(self._fd, data, self.size_bytes)


def _always_whole(*arguments: Any, **named: Any) -> bool:
    deduplicate(*arguments, **named)
    return True
