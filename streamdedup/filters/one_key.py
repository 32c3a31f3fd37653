"""Methods of one key, as builtins of Python that are made of kernels: no C compiler, and no array is taken apart.

An ordinary kernel is called through numba's dispatcher, which looks at the type of each argument and takes each array
apart: some 150 ns, and 50 ns an array. Here a C function of `self` and a key is compiled (`kernel.Entry`), and put into
a class of filters as a method descriptor, as `add` of a `set` is. It reads a *state* of the filter, which holds the
addresses of its arrays and its sizes as words.

A state is `OPEN` only while nobody works on its filter in another way: whoever takes the filter's lock closes it, and
opens it again only if no array was replaced meanwhile. Otherwise the next method of one key writes a new state. So no
builtin meets an array that was replaced, nor another thread's half of a change. It holds the GIL for the whole call.

What a builtin cannot do, it leaves to a method in Python, before it has changed anything: keys that are no plain `str`
or `bytes`, or have no UTF-8, or begin as a tag; a closed state; a row that its kernel has not done.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from streamdedup.filters.stash import NEW, NOT_DONE
from streamdedup.interpreter import (
    Address,
    by_python,
    by_python_with,
    bytes_at,
    counts_at,
    number_of,
    state_of,
    text_of,
    truth,
    word_in,
    words_at,
)
from streamdedup.kernel import Entry, in_entries, inlined
from streamdedup.keys import murmur, siphash
from streamdedup.keys.words import needs_tag
from streamdedup.native import (
    HEAD,
    KEYED,
    LAYOUT,
    MUTABLE,
    OPEN,
    ROOM,
    SECRET,
    STAGE_ROOM,
    STAGE_WORDS,
    STAGES,
    layout_number,
)

# --- what the entries of all kinds do ---


@inlined
def _asked(owner: Address, key: Address, layout: int) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return the address of the state and the digest of the key; an address of 0 if Python must answer."""
    at = state_of(owner)
    where, size = text_of(key)
    if at == _0 or size < 0 or word_in(at, OPEN) == _0:
        return _0, _0, _0
    if word_in(at, LAYOUT) != np.uint64(layout):  # the object was given another class
        return _0, _0, _0
    text, end = bytes_at(np.uint64(where), size), np.uint64(size)
    if needs_tag(text, 0, size):
        return _0, _0, _0
    if word_in(at, KEYED) == _0:
        a, b = murmur.hashed(text, _0, end)
    else:
        a, b = siphash.hashed(words_at(at, HEAD)[SECRET : SECRET + 2], text, _0, end)
    return at, a, b


@inlined
def _stage(at: Address, number: int) -> Address:
    """Return the address of the words of a stage."""
    return at + (np.uint64(HEAD + number * np.int64(word_in(at, STAGE_WORDS))) << _3)


@in_entries
def _look_ahead(at: Address, a: np.uint64, b: np.uint64, ahead_row: Any) -> None:
    """Let all stages fetch at once what their rows will read."""
    for number in range(counts_at(at, HEAD)[STAGES]):
        ahead_row(_stage(at, number), a, b)


@in_entries
def _among(at: Address, stages: int, a: np.uint64, b: np.uint64, contains_row: Any) -> bool:
    """Return whether one of the first `stages` holds the digest. The newest is asked first: it has half of the keys."""
    number = stages
    while number > 0:
        number -= 1
        if contains_row(_stage(at, number), a, b):
            return True
    return False


@in_entries
def _contains_of(
    owner: Address, key: Address, layout: int, ahead_row: Any, contains_row: Any
) -> Address:
    """In an entry, answer whether the key is present."""
    at, a, b = _asked(owner, key, layout)
    if at == _0:
        return by_python(owner, key, "___contains___by_python")
    _look_ahead(at, a, b, ahead_row)
    return truth(_among(at, counts_at(at, HEAD)[STAGES], a, b, contains_row))


@in_entries
def _add_of(
    owner: Address, key: Address, layout: int, ahead_row: Any, add_row: Any, contains_row: Any
) -> Address:
    """In an entry, add the key, and answer whether it was absent. `add_row` returns SEEN, NEW or NOT_DONE."""
    at, a, b = _asked(owner, key, layout)
    if at != _0 and word_in(at, MUTABLE) != _0:
        _look_ahead(at, a, b, ahead_row)
        head = counts_at(at, HEAD)
        number = head[STAGES] - 1
        if _among(at, number, a, b, contains_row):
            return truth(False)
        newest = _stage(at, number)
        if (head[ROOM] > 0 and head[STAGE_ROOM] > 0) or contains_row(newest, a, b):
            said = add_row(newest, a, b)
            if said != NOT_DONE:
                head[ROOM] -= said == NEW
                head[STAGE_ROOM] -= said == NEW
                return truth(said == NEW)
    return by_python(owner, key, "_add_by_python")


@in_entries
def _add_at_of(
    owner: Address,
    arguments: Address,
    count: Any,
    names: Address,
    layout: int,
    add_row: Any,
    contains_row: Any,
    timed: Any,
) -> Address:
    """Do what `add` does, with a time if `timed` says so, or 0, which `add_row` takes, too.

    `timed` is called with a stage, the number of arguments, the time, and whether another stage holds the key. It
    returns SEEN if that is all, NEW if the key goes to this stage, and NOT_DONE.
    """
    if names == _0 and 1 <= np.int64(count) <= 2:
        at, a, b = _asked(owner, word_in(arguments, 0), layout)
        time, is_number = np.int64(0), np.int64(1)
        if count == np.uint64(2):
            time, is_number = number_of(word_in(arguments, 1))
        if at != _0 and is_number != 0:
            head = counts_at(at, HEAD)
            number = head[STAGES] - 1
            newest, said = _stage(at, number), NOT_DONE
            if head[MUTABLE] != 0 and head[ROOM] > 0 and head[STAGE_ROOM] > 0:
                elsewhere = _among(at, number, a, b, contains_row)
                said = timed(newest, count, time, elsewhere)
                if said == NEW:
                    said = add_row(newest, a, b, time)
            if said != NOT_DONE:
                head[ROOM] -= said == NEW
                head[STAGE_ROOM] -= said == NEW
                return truth(said == NEW)
    return by_python_with(owner, arguments, count, names, "_add_by_python")


@in_entries
def _discard_of(
    owner: Address, key: Address, layout: int, ahead_row: Any, remove_row: Any
) -> Address:
    """In an entry, take the key out, and answer whether it was present. `remove_row` may return NOT_DONE."""
    at, a, b = _asked(owner, key, layout)
    if at != _0 and word_in(at, MUTABLE) != _0:
        _look_ahead(at, a, b, ahead_row)
        said = remove_row(_stage(at, 0), a, b)
        if said != NOT_DONE:
            return truth(said == NEW)
    return by_python(owner, key, "_discard_by_python")


_0, _3 = np.uint64(0), np.uint64(3)


class Builtins(NamedTuple):
    """The entries of a kind, its layout, and what gives the words of a filter: none if Python must answer now."""

    layout: int
    words: Callable[[Any], tuple[Any, ...]]
    contains: Entry
    add: Entry | None
    discard: Entry | None

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """The name of each method, and its entry."""
        for name, entry in (
            ("__contains__", self.contains),
            ("add", self.add),
            ("discard", self.discard),
        ):
            if entry is not None:
                yield name, entry


@inlined
def _nothing(_at: Address, _a: np.uint64, _b: np.uint64) -> None:
    """For rows that fetch what they read by themselves."""


def builtins(
    kind: str,
    words: Callable[[Any], tuple[Any, ...]],
    contains: Any,
    add: Any = None,
    remove: Any = None,
    *,
    ahead: Any = _nothing,
    timed: Any = None,
) -> Builtins:
    """Return the builtins of a kind, which are made of its rows: inlined kernels over an address and a digest (a, b).

    The address is that of the words that `words` gives of a filter. `contains` returns a bool; `add` and `remove`
    return NEW or SEEN, or NOT_DONE if Python must do it. `ahead` is called before all of them, with each stage: it
    prefetches what they read. With `timed`, additions may take a time: see `_add_at_of`.
    """
    layout = layout_number(kind)

    def contains_key(owner: Address, key: Address) -> Address:
        return _contains_of(owner, key, layout, ahead, contains)

    def add_key(owner: Address, key: Address) -> Address:
        return _add_of(owner, key, layout, ahead, add, contains)

    def add_key_at(owner: Address, given: Address, count: Any, names: Address) -> Address:
        return _add_at_of(owner, given, count, names, layout, add, contains, timed)

    def discard_key(owner: Address, key: Address) -> Address:
        return _discard_of(owner, key, layout, ahead, remove)

    return Builtins(
        layout,
        words,
        Entry(contains_key, f"{kind}_contains"),
        None if add is None else Entry(add_key if timed is None else add_key_at, f"{kind}_add"),
        None if remove is None else Entry(discard_key, f"{kind}_discard"),
    )
