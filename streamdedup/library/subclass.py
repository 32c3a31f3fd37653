"""The classes of the filters that programs get: for each class of filters a subclass, made once.

There all public methods hold the filter's lock (`locked`), additions watch the capacity (`full`), and there is what a
set has besides (`content`). The methods of one key become builtins when they are first called (`filters.one_key`).
"""

from collections.abc import Mapping, Sequence
from functools import cache, wraps
from importlib import import_module
from inspect import Parameter, Signature, getattr_static, isfunction
from typing import TYPE_CHECKING, Any, TypeVar, cast

from streamdedup import filters, forks
from streamdedup.classes import DirectBitmap, class_of
from streamdedup.filters.base import Filter
from streamdedup.filters.kinds import KINDS, STATIC
from streamdedup.keys.hashing import MURMUR3, Hash
from streamdedup.library.content import BATCHES, copies, of_keys
from streamdedup.library.files import Saved
from streamdedup.library.full import (
    STOP,
    WARN,
    adding_many,
    adding_one,
    adding_timed,
    meeting,
    uniting,
)
from streamdedup.library.locked import Method, in_locked_steps, locked, naming_options
from streamdedup.library.options import kind_within
from streamdedup.native import HEAD, as_builtin, usable

if TYPE_CHECKING:  # imported with the first class that has builtins
    from streamdedup.filters.one_key import Builtins

F = TypeVar("F", bound=Filter)

FREE = ("digests", "from_parts", "hash")  # they read nothing that changes
# They return iterators; between two steps others may work.
IN_STEPS = ("put_many", "date", "rotate")
OPERATORS = ("__contains__", "__len__")
ONE_KEY = ("__contains__", "add", "discard")  # the methods that may become builtins
# What a builtin of one key takes, and its method before it becomes one.
ONE_ARGUMENT = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in ("self", "key")]


class Shared(Saved):
    """What a filter has more if programs have it."""

    def __init__(self, *_: object, **_named: object) -> None:
        """Do nothing, since `shared` has done it."""

    def __reduce__(self) -> tuple[object, ...]:
        one = cast("Filter", self)
        with self._alone():
            parts = [bytes(buffer) for buffer in one.buffers()]
            return _unpickled, (one.header(), parts, one.hash.name, one.hash.key, one.hash.drawn)


_DOCUMENTED = ("__and__", "__or__", "intersection", "union")
for _name in (*_DOCUMENTED, "clear", "copy", "save", "to_bytes", "update"):
    getattr(Shared, _name).__doc__ = getattr(DirectBitmap, _name).__doc__  # which has all of these


def shared(filter_: F, on_full: str = WARN) -> F:
    """Return `filter_`, made so that threads may share it; it warns, or stops, at a key beyond its capacity.

    The argument must not be used any more.
    """
    normalizes = type(filter_.hash) is not Hash
    class_: Any = class_over(type(filter_), kind_within(filter_), normalizes)
    made: Any = object.__new__(class_)
    made._state, made._inside, made._known = bytearray(8 * HEAD), 0, ()
    made._lock = forks.lock(forks.FILTER)
    made._on_full = made._on_full_at_first = on_full
    for name, value in vars(filter_).items():
        setattr(made, name, value)  # one by one, since Python reads attributes faster then
    return cast("F", made)


def restored(
    header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
) -> Filter:
    """Return the filter of these parts, which says itself what it does if it is full.

    Raises ValueError if they do not fit.
    """
    on_full = header.get("on_full", WARN)
    if on_full not in (WARN, STOP):
        raise ValueError(f"on_full {on_full!r} is not {WARN} or {STOP}")
    return shared(filters.from_parts(header, buffers, hash_), on_full)


def _unpickled(
    header: Mapping[str, Any], parts: Sequence[bytes], name: str, key: bytes, drawn: bool
) -> Filter:
    return restored(header, copies(map(memoryview, parts)), Hash(name, key, drawn))


@cache
def class_over(base: Any, kind: str, normalizes: bool) -> type:
    """Return the subclass of `base`, a class of filters, that programs get. `kind` is that of its stages.

    A filter that is built at once never changes, and needs no lock.
    """
    asked: dict[str, Any] = {
        name: naming_options(getattr(base, name)) for name in ("__contains__", "contains_many")
    }
    public: Any = class_of(base.__name__)
    body = asked if kind in STATIC else _locking(base)
    body["from_parts"] = staticmethod(restored)
    if kind in STATIC:  # all that make one end there
        body["of_parts"] = staticmethod(
            lambda *parts, **named: shared(base.of_parts(*parts, **named))
        )
    for name in filter(body.__contains__, BATCHES):
        body[name] = of_keys(body[name])
    for name in filter(body.__contains__, dir(public)):
        body[name].__doc__ = getattr(public, name).__doc__
    for name in filter(body.__contains__, ONE_KEY):
        body[f"_{name}_by_python"] = by_python = _by_python(name, body[name], normalizes)
        body[name] = (_of_normalized if normalizes else of_one_key)(name, by_python)
    body |= {"__doc__": public.__doc__, "__module__": base.__module__}
    made: Any = type(public.__name__, (Shared, base, public), body, of_library=True)
    made._class, made._natives, made._builtins, made._normalizes = made, {}, None, normalizes
    if usable() and kind in KINDS and not hasattr(base, "range"):
        made._builtins = _builtins_of(kind)
        for name, entry in made._builtins.entries():
            if name in body and entry.arguments == len(ONE_ARGUMENT):
                body[name].__signature__ = Signature(ONE_ARGUMENT)
    return cast("type", made)


def _locking(base: Any) -> dict[str, Any]:
    """Return the public methods of a class of filters as programs get them, by name."""
    body: dict[str, Any] = {}
    for name in dir(base):
        found = getattr_static(base, name)
        if name in FREE or (name.startswith("_") and name not in OPERATORS):
            continue
        if isinstance(found, property) and found.fget:
            body[name] = property(locked(found.fget))
        elif isfunction(found):
            body[name] = (in_locked_steps if name in IN_STEPS else locked)(found)
    add, header = base.add, base.header

    @wraps(header)
    def stating(self: Any) -> dict[str, Any]:
        with self._alone():
            return {**header(self), **({"on_full": STOP} if self._on_full == STOP else {})}

    body |= {
        "add": locked(adding_timed(add) if hasattr(base, "clock") else adding_one(add)),
        "add_many": adding_many(base.add_many),
        "digests": naming_options(base.digests),
        "header": stating,
    }
    if hasattr(base, "add_absent"):
        body["add_absent"] = adding_many(base.add_absent)
        body["discard"] = locked(base.discard)
    if hasattr(base, "__ior__"):
        body["__ior__"] = uniting(base.__ior__)
    if hasattr(base, "__iand__"):
        body["__iand__"] = meeting(base.__iand__)
    return body


def _by_python(name: str, by_lock: Method, normalizes: bool) -> Method:
    """What a builtin calls for help: it lets builtins work, if they can now, or does what `by_lock` does."""

    @wraps(by_lock)
    def by_python(self: Any, *key: Any, **named: Any) -> Any:
        inside = self._level()
        with self._lock:
            self._inside = inside
            if self._opens():
                return self._natives[name](self, *key, **named)
            if normalizes:
                key = self.hash.done(key[0]), *key[1:]
            return by_lock(self, *key, **named)

    return by_python


def _of_normalized(name: str, by_python: Method) -> Method:
    """Return the method of a filter that normalizes: its builtin gets keys that are normalized."""

    @wraps(by_python)
    def of_normalized(self: Any, key: Any, /, *time: Any, **named: Any) -> Any:
        builtin = self._natives.get(name) or _builtin(self._class, name)
        return builtin(self, self.hash.normalized(key), *time, **named)

    return of_normalized


def of_one_key(name: str, by_python: Method) -> Method:
    """Return the method until it is first called: then it becomes a builtin, unless a program has put another there.

    A caller that has taken it before, as a bound method, calls the builtin through it.
    """
    builtin: Any = None

    @wraps(by_python)
    def until_called(self: Any, *key: Any, **named: Any) -> Any:
        nonlocal builtin
        if builtin is None:
            builtin = self._natives.get(name) or _builtin(self._class, name)
            if vars(self._class).get(name) is until_called:
                setattr(self._class, name, builtin)
        return builtin(self, *key, **named) if named else builtin(self, *key)

    return until_called


def _builtin(class_: Any, name: str) -> Any:
    """Make the builtin of a class; the method in Python if there can be none. Two threads may do this at once."""
    like = getattr(class_, f"_{name}_by_python")
    entry = dict(class_._builtins.entries() if class_._builtins else ()).get(name)
    made = like if entry is None else as_builtin(class_, name, entry.address, entry.arguments, like)
    class_._natives[name] = made
    return made


def _builtins_of(kind: str) -> "Builtins":
    family = KINDS[kind].path.partition(".")[0]
    found: Builtins = import_module(f"streamdedup.filters.{family}.one_key").BUILTINS[kind]
    return found


def warm_up() -> None:
    """Compile what the methods of one key are made of, for each kind, or load it from the cache."""
    for kind in KINDS if usable() else ():
        for _, entry in _builtins_of(kind).entries():
            entry.address  # noqa: B018 - made when it is asked for
