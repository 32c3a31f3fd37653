"""Methods that are made at run time, and are builtins to Python: how they are made, and the words that they read.

A C function becomes a method of a class as `add` of `set` is one: a method descriptor (`PyDescr_NewMethod`). It reads a
*state*, which is the first slot of its object, a `Native`: words, among them addresses of arrays. Beside the stable ABI
one fact is used: where an object has its type, and where a `Native` has its state. Both are measured, not assumed.
"""

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from itertools import chain
from typing import Any

import numpy as np

# The words of a state that all kinds have; then those of each stage, the oldest first. A filter that does not grow is
# one stage.
OPEN = 0  # not 0 if builtins may work
ROOM = 1  # how many new keys fit for certain, before somebody must look
STAGE_ROOM = 2  # the same, before a further stage is due
MUTABLE = 3  # 0 if the table is read-only
STAGES, STAGE_WORDS = 4, 5  # how many there are, and the words of each
KEYED, SECRET = 6, 7  # 0 for murmur3; the two words of siphash's secret
LAYOUT = 9  # the number of the kind whose entries read it
HEAD = 10


def usable() -> bool:
    """Whether builtins can be made here: CPython, 64 bits, with the GIL, and without numba's bounds checks."""
    config: Any = getattr(sys.modules.get("numba"), "config", None)  # without numba, none is set
    return (
        sys.implementation.name == "cpython"
        and sys.maxsize > 1 << 32
        and sys.byteorder == "little"
        and getattr(sys, "_is_gil_enabled", lambda: True)()
        and not getattr(config, "BOUNDSCHECK", None)
    )


class Native:
    """An object whose first slot is its state. A builtin finds it without any lookup."""

    __slots__ = ("_state",)
    _state: bytearray


def _offset_of(owner: object, value: object) -> int:
    """Return where an object has the address of another, in bytes from its own address."""
    words = ctypes.cast(id(owner), ctypes.POINTER(ctypes.c_size_t))
    found = [8 * i for i in range(type(owner).__basicsize__ // 8) if words[i] == id(value)]
    if len(found) != 1:
        raise OSError(f"an object of {type(owner).__basicsize__} bytes has its member at {found}")
    return found[0]


def _measured() -> tuple[int, int]:
    probe = Native()
    probe._state = bytearray(8)
    return _offset_of(probe, Native), _offset_of(probe, probe._state)


TYPE_AT, STATE_AT = _measured()


def layout_number(kind: str) -> int:
    """Return the number of a kind in a state: entries of another kind leave it alone."""
    return int.from_bytes(kind.encode().ljust(8)[:8], "little")


def new_state(
    layout: int, secret: bytes, room: int, stage_room: int, stages: Sequence[Sequence[Any]]
) -> bytearray:
    """Return an open state over `stages`, each as its words: an array is its address and its rows.

    `secret` is that of siphash, or empty. All arrays must live for as long as the state is open.
    """
    words = [[word for value in stage for word in _words_of(value)] for stage in stages]
    keyed = struct.unpack("<QQ", secret) if secret else (0, 0)
    is_mutable = all(
        value.flags.writeable
        for stage in stages
        for value in stage
        if isinstance(value, np.ndarray)
    )
    sizes = len(words), len(words[0])
    head = 1, room, stage_room, is_mutable, *sizes, bool(secret), *keyed, layout
    return bytearray(
        struct.pack(f"={HEAD}Q{len(words) * len(words[0])}Q", *head, *chain.from_iterable(words))
    )


def _words_of(value: Any) -> tuple[int, ...]:
    if not isinstance(value, np.ndarray):
        return (int(value),)
    if not (value.flags.c_contiguous and value.flags.aligned):
        raise ValueError("an entry works on aligned, contiguous arrays")
    return value.ctypes.data, len(value)


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_O, _METH_FASTCALL_KEYWORDS = 0x0008, 0x0082
_kept: list[Any] = []  # a descriptor points to its definition as long as it exists
_new_method = ctypes.pythonapi.PyDescr_NewMethod
_new_method.argtypes = (ctypes.py_object, ctypes.POINTER(_MethodDef))
_new_method.restype = ctypes.py_object


def as_builtin(
    owner: type, name: str, address: int, arguments: int, like: Callable[..., Any]
) -> Any:
    """Return the method `name` of `owner` whose C function is at `address`, as `like` documents it.

    The function takes two addresses, of `self` and of one argument; or those of METH_FASTCALL | METH_KEYWORDS: of
    `self`, of the arguments, their number, and of the names of those that follow.
    """
    takes_one = arguments == len(("self", "key"))
    taken = "($self, key, /)" if takes_one else f"($self, {_without_types(like)})"
    text = f"{name}{taken}\n--\n\n{like.__doc__}".encode()
    flags = _METH_O if takes_one else _METH_FASTCALL_KEYWORDS
    definition = _MethodDef(name.encode(), address, flags, text)
    _kept.append(definition)
    return _new_method(owner, ctypes.byref(definition))


def _without_types(method: Callable[..., Any]) -> str:
    """Return what the method takes after `self`, as text."""
    _, *taken = signature(method).parameters.values()
    return str(Signature([one.replace(annotation=Parameter.empty) for one in taken]))[1:-1]
