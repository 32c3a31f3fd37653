"""What compiled code asks of Python's interpreter: an object's state, the bytes of a key, an answer, help by a method.

These are for entries (`kernel.Entry`), whose arguments are addresses of objects. They use the stable ABI, by symbols
that numba itself needs from the interpreter. They raise nothing by themselves, and an entry that uses only them and
inlined kernels calls nothing else.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamdedup.later import arrayobj, cgutils, intrinsic, ir, llvm, types
from streamdedup.native import STATE_AT, TYPE_AT

Address = Any  # in an entry, uint64


def _function(builder: Any, name: str, result: Any, *arguments: Any, more: bool = False) -> Any:
    kind = ir.FunctionType(result, arguments, var_arg=more)
    return cgutils.get_or_insert_function(builder.module, kind, name)


def _object(builder: Any, name: str) -> Any:
    """Return the address of one of the interpreter's own objects, such as PyUnicode_Type."""
    known = builder.module.globals
    return (
        known[name]
        if name in known
        else cgutils.add_global_variable(builder.module, llvm.byte, name)
    )


def _member(builder: Any, owner: Any, at: int) -> Any:
    place = builder.gep(builder.inttoptr(owner, llvm.address), [llvm.word(at)])
    return builder.load(builder.bitcast(place, llvm.address.as_pointer()))


def _state_of(_context: object, owner: Any) -> Any:
    def compiled(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        state = _member(builder, arguments[0], STATE_AT)
        found = cgutils.alloca_once_value(builder, llvm.word(0))
        with builder.if_then(cgutils.is_not_null(builder, state)):
            words = _function(builder, "PyByteArray_AsString", llvm.address, llvm.address)
            builder.store(builder.ptrtoint(builder.call(words, [state]), llvm.word), found)
        return builder.load(found)

    return types.uint64(owner), compiled


state_of: Callable[[Any], Any] = intrinsic(_state_of)
"""In an entry, the address of the words of the object's state; 0 if it has none."""


def _text_of(_context: object, key: Any) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        key = builder.inttoptr(arguments[0], llvm.address)
        kind = _member(builder, arguments[0], TYPE_AT)
        where, size = (
            cgutils.alloca_once_value(builder, value)
            for value in (ir.Constant(llvm.address, None), llvm.word(-1))
        )
        is_text = builder.icmp_unsigned("==", kind, _object(builder, "PyUnicode_Type"))
        with builder.if_else(is_text, likely=True) as (text, other):
            with text:
                encoded = _function(
                    builder,
                    "PyUnicode_AsUTF8AndSize",
                    llvm.address,
                    llvm.address,
                    llvm.word.as_pointer(),
                )
                builder.store(builder.call(encoded, [key, size]), where)
                has_none = cgutils.is_null(builder, builder.load(where))
                with builder.if_then(has_none, likely=False):  # a lone surrogate; or no memory
                    builder.call(_function(builder, "PyErr_Clear", ir.VoidType()), [])
                    builder.store(llvm.word(-1), size)
            with other:
                is_bytes = builder.icmp_unsigned("==", kind, _object(builder, "PyBytes_Type"))
                with builder.if_then(is_bytes):
                    start = _function(builder, "PyBytes_AsString", llvm.address, llvm.address)
                    count = _function(builder, "PyBytes_Size", llvm.word, llvm.address)
                    builder.store(builder.call(start, [key]), where)
                    builder.store(builder.call(count, [key]), size)
        pair = builder.ptrtoint(builder.load(where), llvm.word), builder.load(size)
        return context.make_tuple(builder, signature.return_type, pair)

    return types.UniTuple(types.int64, 2)(key), compiled


text_of: Callable[[Any], tuple[Any, Any]] = intrinsic(_text_of)
"""In an entry, where the bytes of a key are, and how many; -1 if it is no plain `str` or `bytes`, or has no UTF-8."""


def _truth(_context: object, said: Any) -> Any:
    def compiled(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        make = _function(builder, "PyBool_FromLong", llvm.address, llvm.long)
        return builder.ptrtoint(
            builder.call(make, [builder.zext(arguments[0], llvm.long)]), llvm.word
        )

    return (types.uint64(said), compiled) if said == types.boolean else None


truth: Callable[[bool], Any] = intrinsic(_truth)
"""In an entry, a new reference to True or False."""


def _by_python(_context: object, owner: Any, key: Any, name: Any) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        call = _function(
            builder,
            "PyObject_CallMethod",
            llvm.address,
            llvm.address,
            llvm.address,
            llvm.address,
            more=True,
        )
        owner, key = (builder.inttoptr(address, llvm.address) for address in arguments[:2])
        method, one = (
            context.insert_const_string(builder.module, text)
            for text in (signature.args[2].literal_value, "(O)")  # "O" would unpack a tuple
        )
        return builder.ptrtoint(builder.call(call, [owner, method, one, key]), llvm.word)

    if not isinstance(name, types.StringLiteral):
        return None
    return types.uint64(owner, key, name), compiled


by_python: Callable[[Any, Any, str], Any] = intrinsic(_by_python)
"""In an entry, what the method of this name returns for the key; NULL, with an error set, if it raises."""


def _word_at(builder: Any, start: Any, index: Any) -> Any:
    words = builder.inttoptr(start, llvm.word.as_pointer())
    return builder.gep(words, [index])


def _word_in(_context: object, start: Any, _index: Any) -> Any:
    def compiled(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        return builder.load(_word_at(builder, *arguments))

    return types.uint64(start, types.int64), compiled


word_in: Callable[[Any, int], np.uint64] = intrinsic(_word_in)
"""In an entry, one word of those that begin at an address."""


def _number_of(_context: object, value: Any) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, is_one = (cgutils.alloca_once_value(builder, llvm.word(0)) for _ in range(2))
        kind = _member(builder, arguments[0], TYPE_AT)
        is_int = builder.icmp_unsigned("==", kind, _object(builder, "PyLong_Type"))
        with builder.if_then(is_int):
            read = _function(builder, "PyLong_AsLongLong", llvm.word, llvm.address)
            found = builder.call(read, [builder.inttoptr(arguments[0], llvm.address)])
            builder.store(found, number)
            builder.store(llvm.word(1), is_one)
            with builder.if_then(builder.icmp_signed("==", found, llvm.word(-1)), likely=False):
                occurred = builder.call(_function(builder, "PyErr_Occurred", llvm.address), [])
                with builder.if_then(cgutils.is_not_null(builder, occurred)):  # beyond 64 bits
                    builder.call(_function(builder, "PyErr_Clear", ir.VoidType()), [])
                    builder.store(llvm.word(0), is_one)
        pair = builder.load(number), builder.load(is_one)
        return context.make_tuple(builder, signature.return_type, pair)

    return types.UniTuple(types.int64, 2)(value), compiled


number_of: Callable[[Any], tuple[Any, Any]] = intrinsic(_number_of)
"""In an entry, the value of a plain `int` of 64 bits, and 1; or 0 as the second number if it is none."""


def _by_python_with(
    _context: object, owner: Any, arguments: Any, count: Any, names: Any, name: Any
) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        owner, given, names = (builder.inttoptr(values[i], llvm.address) for i in (0, 1, 3))
        text = context.insert_const_string(builder.module, signature.args[4].literal_value)
        look = _function(
            builder, "PyObject_GetAttrString", llvm.address, llvm.address, llvm.address
        )
        method = builder.call(look, [owner, text])
        said = cgutils.alloca_once_value(builder, ir.Constant(llvm.address, None))
        with builder.if_then(cgutils.is_not_null(builder, method)):
            call = _function(
                builder,
                "PyObject_Vectorcall",
                llvm.address,
                llvm.address,
                llvm.address,
                llvm.word,
                llvm.address,
            )
            builder.store(builder.call(call, [method, given, values[2], names]), said)
            builder.call(_function(builder, "Py_DecRef", ir.VoidType(), llvm.address), [method])
        return builder.ptrtoint(builder.load(said), llvm.word)

    if not isinstance(name, types.StringLiteral):
        return None
    return types.uint64(owner, arguments, count, names, name), compiled


by_python_with: Callable[[Any, Any, Any, Any, str], Any] = intrinsic(_by_python_with)
"""In an entry, what the method of this name returns if it gets all arguments of a call.

`arguments` is their address, `count` how many come by position, `names` the address of the names of the others, or 0.
"""


def _array_in(dtype: str, *columns: int) -> Any:
    """Return an intrinsic that makes an array of a word, its address, and the next word, its rows.

    It counts no references.
    """

    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, index = arguments
        address, rows = (
            builder.load(_word_at(builder, start, builder.add(index, llvm.word(i))))
            for i in range(2)
        )
        kind, shape = signature.return_type, [rows, *map(llvm.word, columns)]
        return _array_over(context, builder, kind, address, shape)

    def at(_context: object, start: Any, _index: Any) -> Any:
        kind = types.Array(getattr(types, dtype), 1 + len(columns), "C")
        return kind(start, types.int64), compiled

    return intrinsic(at)


def _array_over(context: Any, builder: Any, kind: Any, address: Any, shape: Sequence[Any]) -> Any:
    """Make an array of a type in compiled code, which counts no references."""
    array = context.make_array(kind)(context, builder)
    strides = [llvm.word(context.get_abi_sizeof(context.get_data_type(kind.dtype)))]
    for size in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], size))
    arrayobj.populate_array(
        array,
        data=builder.inttoptr(address, array.data.type),
        shape=shape,
        strides=strides,
        itemsize=strides[-1],
        meminfo=None,
        parent=None,
    )
    return array._getvalue()


words_in = _array_in("uint64")
counts_in = _array_in("int64")
pairs_in = _array_in("uint64", 2)
triples_in = _array_in("uint64", 3)
places_in = _array_in("uint64", 4, 2)
parts_in = _array_in("uint64", 5)
"""In an entry, the array whose address is one of the words that begin at an address, and its rows the next one.

Of uint64, of int64, and of rows of so many uint64.
"""


def _array_at(dtype: str, *, readonly: bool = False) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, rows = arguments
        return _array_over(context, builder, signature.return_type, address, [rows])

    def at(_context: object, _address: Any, _rows: Any) -> Any:
        kind = types.Array(getattr(types, dtype), 1, "C", readonly=readonly)
        return kind(types.uint64, types.int64), compiled

    return intrinsic(at)


words_at = _array_at("uint64")
counts_at = _array_at("int64")
bytes_at = _array_at("uint8", readonly=True)
