"""What a filter of the library has of a Python set, beyond its keys one by one and in batches.

What only a list of its keys could answer, it refuses (`refused`).
"""

from collections.abc import Iterable
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import islice
from typing import Any, Self, cast

import numpy as np
from typing_extensions import override

from streamdedup import filters
from streamdedup.errors import ConfigError, MalformedError
from streamdedup.filters.base import Filter, Growing
from streamdedup.filters.kinds import KINDS, STATIC
from streamdedup.filters.memory import READ_ONLY, aligned_bytes, fill
from streamdedup.keys.encoding import named
from streamdedup.keys.hashing import is_arrow
from streamdedup.library.equality import hold_the_same
from streamdedup.library.full import Watched
from streamdedup.library.locked import Method, both_alone
from streamdedup.library.options import kind_within, options_of
from streamdedup.library.refused import NO_LIST, Refusing
from streamdedup.library.refused import named as named_filter

KEYS_A_BATCH = 1 << 12  # of `update`: they wait in a list, and are then added at once
# The methods that take a batch as their first argument.
BATCHES = (
    "add_many",
    "add_absent",
    "contains_many",
    "generations_many",
    "put_many",
    "remove_many",
)
UNIONABLE = [kind.name for kind in KINDS.values() if "union" in kind.abilities]


class Content(Refusing, Watched):
    """What a filter has more if it is used as a set: `classes` documents its public methods."""

    def update(self, *iterables: Any) -> None:
        self._refuse_if_static()
        add_all(self, iterables)

    def clear(self) -> None:
        self._refuse_if_static()
        one = cast("Any", self)
        with self._alone():
            if any(buffer.readonly for buffer in one.buffers()):
                raise ConfigError(READ_ONLY)
            own = {name: vars(self)[name] for name in ("_lock", "_inside", "_on_full_at_first")}
            own |= {"_on_full": self._on_full_at_first, "_known": ()}
            # At once, whenever an interrupt comes. What builtins read of the former arrays is closed, and stays so.
            self.__dict__ = {**vars(_empty_like(one)), **own}
            self._room_left = 0

    def copy(self) -> Self:
        return self.__copy__()

    def __copy__(self) -> Self:
        one = cast("Any", self)
        if one.kind in STATIC:  # it never changes
            return self
        with self._alone():
            return cast("Self", one.from_parts(one.header(), copies(one.buffers()), one.hash))

    def __deepcopy__(self, _known: object) -> Self:
        return self.__copy__()

    def union(self, *others: object) -> Self:
        if not hasattr(self, "__ior__"):
            raise TypeError(
                f"{named_filter(self)} has no union: its table does not list its keys; add the keys to one filter, or"
                f" take another kind: {', '.join(UNIONABLE)}"
            )
        made: Any = self.copy()
        for other in others:
            made |= other
        return cast("Self", made)

    def __or__(self, other: object) -> Self:
        return self.union(other)

    def intersection(self, *others: object) -> Self:
        if not hasattr(self, "__iand__"):
            raise TypeError(
                f"{named_filter(self)} has no intersection: two keys, one of either, can look like one that is in both,"
                " so it would err more than both; ask both: key in a and key in b, or take kind exact"
            )
        made: Any = self.copy()
        for other in others:
            made &= other
        return cast("Self", made)

    def __and__(self, other: object) -> Self:
        return self.intersection(other)

    def __eq__(self, other: object) -> bool:
        """Whether both are of one kind, with the same options and hash, and hold the same."""
        if not isinstance(other, Content):
            return NotImplemented
        with both_alone(self, other):
            return self is other or hold_the_same(cast("Filter", self), cast("Filter", other))

    __hash__ = None  # type: ignore[assignment] # as a set, which can change, too

    @override
    def __repr__(self) -> str:
        one = cast("Filter", self)
        with self._alone():
            grown = f" {one.stages.partition(' ')[2]}," if isinstance(one, Growing) else ""
            return (
                f"<{_class_name(one)}{grown} {len(one):,} of {one.capacity:,} keys,"
                f" error {one.error_rate_now:.2g}>"
            )

    def _refuse_if_static(self) -> None:
        kind = cast("Filter", self).kind
        if kind in STATIC:
            raise ConfigError(f"a {kind} filter never changes; build it again from another list")


def of_keys(method: Method) -> Method:
    """Return the method of a batch, which then takes keys as well as digests."""

    @wraps(method)
    def batch(self: Any, keys: Any, /, *more: Any, **named: Any) -> Any:
        if not isinstance(keys, np.ndarray) or keys.dtype != np.uint64:
            keys = self.digests(keys)  # of an array of anything else, the error says what to give
        return method(self, keys, *more, **named)

    own, _, *rest = signature(method).parameters.values()
    keys = Parameter("keys", Parameter.POSITIONAL_ONLY)
    batch.__signature__ = Signature([own.replace(kind=Parameter.POSITIONAL_ONLY), keys, *rest])  # type: ignore[attr-defined]
    return batch


def add_all(one: Any, iterables: Iterable[Any]) -> None:
    """Do what `update` documents, by `digests`, `add` and `add_many` of `one`."""
    for keys in iterables:
        if isinstance(keys, np.ndarray) or is_arrow(keys):
            one.add_many(keys)
            continue
        if isinstance(keys, str | bytes | bytearray | memoryview):
            raise TypeError(
                f"update takes iterables of keys, not {named(keys)}; of a single key: f.add(key)"
            )
        if hasattr(keys, "contains_many"):
            raise TypeError(
                f"update takes iterables of keys, and {NO_LIST}; a |= b is for {', '.join(UNIONABLE)}"
            )
        waiting, some = iter(keys), [None]
        while some:
            some = []
            try:
                some.extend(islice(waiting, KEYS_A_BATCH))
            finally:
                _add_batch(one, some)


def _add_batch(one: Any, keys: list[Any]) -> None:
    try:
        digests = one.digests(keys)
    except (TypeError, ValueError, MalformedError):
        for key in keys:  # up to the one that is refused
            one.add(key)
    else:
        one.add_many(digests)


def copies(buffers: Iterable[memoryview]) -> list[memoryview]:
    """Return copies, each aligned as a table is."""
    made = []
    for buffer in buffers:
        made.append(aligned_bytes(buffer.nbytes))
        fill(made[-1], buffer)
    return made


def _class_name(one: Filter) -> str:
    return KINDS[kind_within(one)].path.rpartition(":")[2]


def _empty_like(one: Any) -> Any:
    """Return a filter of the worker that is as `one` was when it was built."""
    given = options_of(one)
    if isinstance(one, Growing):
        most = sum(stage.size_bytes + stage.spare_bytes for stage in cast("Any", one)._plan)
        given["max_size"] = most
    return filters.build(given, one.hash)
