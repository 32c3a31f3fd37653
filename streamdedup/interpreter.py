"""What compiled code asks of Python's interpreter: an object's state, the bytes of a key, an answer, help by a method.

These are for entries (`kernel.Entry`), whose arguments are addresses of objects. They use the stable ABI, by symbols
that numba itself needs from the interpreter. They raise nothing by themselves, and an entry that uses only them and
inlined kernels calls nothing else.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending as _untyped_extending
from numba.core import cgutils as _untyped_cgutils
from numba.np import arrayobj as _untyped_arrayobj

from streamdedup.native import STATE_AT, TYPE_AT

_extending: Any = _untyped_extending
_cgutils: Any = _untyped_cgutils
_arrayobj: Any = _untyped_arrayobj
_types: Any = numba.types

Address = Any  # in an entry, uint64

_ADDRESS: Any = ir.IntType(8).as_pointer()
_WORD: Any = ir.IntType(64)
_LONG: Any = ir.IntType(8 * ctypes.sizeof(ctypes.c_long))


def _function(builder: Any, name: str, result: Any, *arguments: Any, more: bool = False) -> Any:
    kind = ir.FunctionType(result, arguments, var_arg=more)
    return _cgutils.get_or_insert_function(builder.module, kind, name)


def _object(builder: Any, name: str) -> Any:
    """Return the address of one of the interpreter's own objects, such as PyUnicode_Type."""
    known = builder.module.globals
    return (
        known[name]
        if name in known
        else _cgutils.add_global_variable(builder.module, ir.IntType(8), name)
    )


def _member(builder: Any, owner: Any, at: int) -> Any:
    place = builder.gep(builder.inttoptr(owner, _ADDRESS), [_WORD(at)])
    return builder.load(builder.bitcast(place, _ADDRESS.as_pointer()))


def _state_of(_context: object, owner: Any) -> Any:
    def compiled(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        state = _member(builder, arguments[0], STATE_AT)
        found = _cgutils.alloca_once_value(builder, _WORD(0))
        with builder.if_then(_cgutils.is_not_null(builder, state)):
            words = _function(builder, "PyByteArray_AsString", _ADDRESS, _ADDRESS)
            builder.store(builder.ptrtoint(builder.call(words, [state]), _WORD), found)
        return builder.load(found)

    return _types.uint64(owner), compiled


state_of: Callable[[Any], Any] = _extending.intrinsic(_state_of)
"""In an entry, the address of the words of the object's state; 0 if it has none."""


def _text_of(_context: object, key: Any) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        key = builder.inttoptr(arguments[0], _ADDRESS)
        kind = _member(builder, arguments[0], TYPE_AT)
        where, size = (
            _cgutils.alloca_once_value(builder, value)
            for value in (ir.Constant(_ADDRESS, None), _WORD(-1))
        )
        is_text = builder.icmp_unsigned("==", kind, _object(builder, "PyUnicode_Type"))
        with builder.if_else(is_text, likely=True) as (text, other):
            with text:
                encoded = _function(
                    builder, "PyUnicode_AsUTF8AndSize", _ADDRESS, _ADDRESS, _WORD.as_pointer()
                )
                builder.store(builder.call(encoded, [key, size]), where)
                has_none = _cgutils.is_null(builder, builder.load(where))
                with builder.if_then(has_none, likely=False):  # a lone surrogate; or no memory
                    builder.call(_function(builder, "PyErr_Clear", ir.VoidType()), [])
                    builder.store(_WORD(-1), size)
            with other:
                is_bytes = builder.icmp_unsigned("==", kind, _object(builder, "PyBytes_Type"))
                with builder.if_then(is_bytes):
                    start = _function(builder, "PyBytes_AsString", _ADDRESS, _ADDRESS)
                    count = _function(builder, "PyBytes_Size", _WORD, _ADDRESS)
                    builder.store(builder.call(start, [key]), where)
                    builder.store(builder.call(count, [key]), size)
        pair = builder.ptrtoint(builder.load(where), _WORD), builder.load(size)
        return context.make_tuple(builder, signature.return_type, pair)

    return _types.UniTuple(_types.int64, 2)(key), compiled


text_of: Callable[[Any], tuple[Any, Any]] = _extending.intrinsic(_text_of)
"""In an entry, where the bytes of a key are, and how many; -1 if it is no plain `str` or `bytes`, or has no UTF-8."""


def _truth(_context: object, said: Any) -> Any:
    def compiled(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        make = _function(builder, "PyBool_FromLong", _ADDRESS, _LONG)
        return builder.ptrtoint(builder.call(make, [builder.zext(arguments[0], _LONG)]), _WORD)

    return (_types.uint64(said), compiled) if said == _types.boolean else None


truth: Callable[[bool], Any] = _extending.intrinsic(_truth)
"""In an entry, a new reference to True or False."""


def _by_python(_context: object, owner: Any, key: Any, name: Any) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = _function(
            builder, "PyObject_CallMethod", _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, more=True
        )
        owner, key = (builder.inttoptr(address, _ADDRESS) for address in arguments[:2])
        method, one = (
            context.insert_const_string(builder.module, text)
            for text in (signature.args[2].literal_value, "(O)")  # "O" would unpack a tuple
        )
        return builder.ptrtoint(builder.call(call, [owner, method, one, key]), _WORD)

    if not isinstance(name, _types.StringLiteral):
        return None
    return _types.uint64(owner, key, name), compiled


by_python: Callable[[Any, Any, str], Any] = _extending.intrinsic(_by_python)
"""In an entry, what the method of this name returns for the key; NULL, with an error set, if it raises."""


def _word_at(builder: Any, start: Any, index: Any) -> Any:
    words = builder.inttoptr(start, _WORD.as_pointer())
    return builder.gep(words, [index])


def _word_in(_context: object, start: Any, _index: Any) -> Any:
    def compiled(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        return builder.load(_word_at(builder, *arguments))

    return _types.uint64(start, _types.int64), compiled


word_in: Callable[[Any, int], np.uint64] = _extending.intrinsic(_word_in)
"""In an entry, one word of those that begin at an address."""


def _number_of(_context: object, value: Any) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, is_one = (_cgutils.alloca_once_value(builder, _WORD(0)) for _ in range(2))
        kind = _member(builder, arguments[0], TYPE_AT)
        is_int = builder.icmp_unsigned("==", kind, _object(builder, "PyLong_Type"))
        with builder.if_then(is_int):
            read = _function(builder, "PyLong_AsLongLong", _WORD, _ADDRESS)
            found = builder.call(read, [builder.inttoptr(arguments[0], _ADDRESS)])
            builder.store(found, number)
            builder.store(_WORD(1), is_one)
            with builder.if_then(builder.icmp_signed("==", found, _WORD(-1)), likely=False):
                occurred = builder.call(_function(builder, "PyErr_Occurred", _ADDRESS), [])
                with builder.if_then(_cgutils.is_not_null(builder, occurred)):  # beyond 64 bits
                    builder.call(_function(builder, "PyErr_Clear", ir.VoidType()), [])
                    builder.store(_WORD(0), is_one)
        pair = builder.load(number), builder.load(is_one)
        return context.make_tuple(builder, signature.return_type, pair)

    return _types.UniTuple(_types.int64, 2)(value), compiled


number_of: Callable[[Any], tuple[Any, Any]] = _extending.intrinsic(_number_of)
"""In an entry, the value of a plain `int` of 64 bits, and 1; or 0 as the second number if it is none."""


def _by_python_with(
    _context: object, owner: Any, arguments: Any, count: Any, names: Any, name: Any
) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        owner, given, names = (builder.inttoptr(values[i], _ADDRESS) for i in (0, 1, 3))
        text = context.insert_const_string(builder.module, signature.args[4].literal_value)
        look = _function(builder, "PyObject_GetAttrString", _ADDRESS, _ADDRESS, _ADDRESS)
        method = builder.call(look, [owner, text])
        said = _cgutils.alloca_once_value(builder, ir.Constant(_ADDRESS, None))
        with builder.if_then(_cgutils.is_not_null(builder, method)):
            call = _function(
                builder, "PyObject_Vectorcall", _ADDRESS, _ADDRESS, _ADDRESS, _WORD, _ADDRESS
            )
            builder.store(builder.call(call, [method, given, values[2], names]), said)
            builder.call(_function(builder, "Py_DecRef", ir.VoidType(), _ADDRESS), [method])
        return builder.ptrtoint(builder.load(said), _WORD)

    if not isinstance(name, _types.StringLiteral):
        return None
    return _types.uint64(owner, arguments, count, names, name), compiled


by_python_with: Callable[[Any, Any, Any, Any, str], Any] = _extending.intrinsic(_by_python_with)
"""In an entry, what the method of this name returns if it gets all arguments of a call.

`arguments` is their address, `count` how many come by position, `names` the address of the names of the others, or 0.
"""


def _array_in(dtype: Any, *columns: int) -> Any:
    """Return an intrinsic that makes an array of a word, its address, and the next word, its rows.

    It counts no references.
    """
    kind = _types.Array(dtype, 1 + len(columns), "C")

    def compiled(context: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        start, index = arguments
        address, rows = (
            builder.load(_word_at(builder, start, builder.add(index, _WORD(i)))) for i in range(2)
        )
        return _array_over(context, builder, kind, address, [rows, *map(_WORD, columns)])

    def at(_context: object, start: Any, _index: Any) -> Any:
        return kind(start, _types.int64), compiled

    return _extending.intrinsic(at)


def _array_over(context: Any, builder: Any, kind: Any, address: Any, shape: Sequence[Any]) -> Any:
    """Make an array of a type in compiled code, which counts no references."""
    array = context.make_array(kind)(context, builder)
    strides = [_WORD(context.get_abi_sizeof(context.get_data_type(kind.dtype)))]
    for size in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], size))
    _arrayobj.populate_array(
        array,
        data=builder.inttoptr(address, array.data.type),
        shape=shape,
        strides=strides,
        itemsize=strides[-1],
        meminfo=None,
        parent=None,
    )
    return array._getvalue()


words_in = _array_in(_types.uint64)
counts_in = _array_in(_types.int64)
pairs_in = _array_in(_types.uint64, 2)
triples_in = _array_in(_types.uint64, 3)
places_in = _array_in(_types.uint64, 4, 2)
parts_in = _array_in(_types.uint64, 5)
"""In an entry, the array whose address is one of the words that begin at an address, and its rows the next one.

Of uint64, of int64, and of rows of so many uint64.
"""


def _array_at(dtype: Any, *, readonly: bool = False) -> Any:
    kind = _types.Array(dtype, 1, "C", readonly=readonly)

    def compiled(context: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        address, rows = arguments
        return _array_over(context, builder, kind, address, [rows])

    def at(_context: object, _address: Any, _rows: Any) -> Any:
        return kind(_types.uint64, _types.int64), compiled

    return _extending.intrinsic(at)


words_at = _array_at(_types.uint64)
counts_at = _array_at(_types.int64)
bytes_at = _array_at(_types.uint8, readonly=True)
