"""What a set has and a filter lacks: refused by name, with what to write instead."""

from typing import Any, NoReturn, cast

from streamdedup.filters.base import Filter, Growing
from streamdedup.filters.kinds import KINDS, STATIC
from streamdedup.library.locked import Method

NO_LIST = "a filter cannot list its keys"
REMOVABLE = [
    *(kind.name for kind in KINDS.values() if "remove" in kind.abilities),
    "bitmap with a range",
]
_MISSING = f"{NO_LIST}; ask for each of yours: [key for key in keys if key not in f]"
_WITHIN = f"{NO_LIST}; ask for each key that you have: f.contains_many(keys); of two filters that have &, (a & b) == a"
_AROUND = (
    "a key that only looks present would count; ask for each of yours: f.contains_many(keys).all()"
)
_ONE_SIDE = (
    f"{NO_LIST}; ask both for each of yours: [key for key in keys if (key in a) != (key in b)]"
)
_ADDED = "what is on its left is none; add each key to the filter: f.update(keys)"
_PRESENT = "what is on its left is none; ask for each of yours: [key for key in keys if key in f]"
REFUSED = {
    "difference": _MISSING,
    "difference_update": f"{NO_LIST}; take out each of yours: f.remove_many(keys), if its kind has that",
    "intersection_update": f"{NO_LIST}; a &= b keeps what each of two filters holds, if their kind has that",
    "isdisjoint": "a key that only looks present would make it wrong; ask for each of yours: f.contains_many(keys)",
    "issubset": _WITHIN,
    "issuperset": _AROUND,
    "pop": f"{NO_LIST}; keep each key that you want back elsewhere, too",
    "symmetric_difference": _ONE_SIDE,
    "symmetric_difference_update": _ONE_SIDE,
}
"""Methods of `set`, and why a filter lacks each."""
OPERATORS = {
    "__lt__": ("<", _WITHIN),
    "__le__": ("<=", _WITHIN),
    "__gt__": (">", _AROUND),
    "__ge__": (">=", _AROUND),
    "__sub__": ("-", _MISSING),
    "__rsub__": ("-", _MISSING),
    "__xor__": ("^", _ONE_SIDE),
    "__rxor__": ("^", _ONE_SIDE),
    "__ror__": ("|", _ADDED),
    "__rand__": ("&", _PRESENT),
}
"""Its operators, each with what a message calls it. An `r` is for a set on the left."""


class Lacking:
    """In the place of a method that some kinds lack: an AttributeError that says which kinds have it.

    So `hasattr` is False. In the class of a kind that has the method, that stands in front of this.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, one: object, owner: type) -> NoReturn:
        if one is None:
            raise AttributeError(f"type object {owner.__name__!r} has no attribute {self._name!r}")
        raise AttributeError(_takes_none_out(one, self._name))


class Refusing:
    """What a filter says if it is asked for what only a set can do."""

    discard: Any = Lacking("discard")
    remove_many: Any = Lacking("remove_many")

    def remove(self, _key: object, /) -> NoReturn:
        """Raise TypeError: `discard` takes a key out."""
        if not hasattr(self, "discard"):
            raise TypeError(_takes_none_out(self, "remove"))
        raise TypeError(
            "remove is not for filters: its KeyError would show the key; f.discard(key) returns False if the key was"
            " absent"
        )


def named(one: Any) -> str:
    """Return what a message calls a filter."""
    filter_ = cast("Filter", one)
    return (
        f"a filter that grows, of {filter_.stages},"
        if isinstance(filter_, Growing)
        else f"a filter of kind {filter_.kind}"
    )


def _takes_none_out(one: Any, name: str) -> str:
    if one.kind in STATIC:
        return (
            f"a {one.kind} filter has no {name}: it never changes; build it again from another list"
        )
    return (
        f"{named(one)} has no {name}, since no key can be taken out of it; take a kind that can"
        f"{', and does not grow' if isinstance(one, Growing) else ''}: {', '.join(REMOVABLE)}"
    )


def _refused(shown: str, name: str, why: str) -> Method:
    def refused(_self: object, *_others: object) -> NoReturn:
        raise TypeError(f"{shown} is not for filters: {why}")

    refused.__name__, refused.__qualname__ = name, f"Refusing.{name}"
    refused.__doc__ = f"Raise TypeError: {why}."
    return refused


for _name, _why in REFUSED.items():
    setattr(Refusing, _name, _refused(_name, _name, _why))
for _name, (_shown, _why) in OPERATORS.items():
    setattr(Refusing, _name, _refused(_shown, _name, _why))
