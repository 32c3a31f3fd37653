"""Instructions of the processor that numba does not offer, written in LLVM's language.

LLVM compiles them for every processor: into several instructions if there is no single one, and a hint into none.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdedup.later import intrinsic, ir, types

LANES = 8  # numbers of 32 bits that are compared together
READ_INTO_ALL_CACHES = (0, 3, 1)  # to read; keep in all levels; data, not instructions


def _prefetching(_context: object, table: Any, at: Any) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address, number, number, number])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [address], kind)
        word = builder.bitcast(builder.gep(array.data, [arguments[1]]), address)
        builder.call(hint, [word, *(number(how) for how in READ_INTO_ALL_CACHES)])
        return context.get_dummy_value()

    if not isinstance(table, types.Array) or table.layout != "C" or at != types.uint64:
        return None  # numba then reports that there is no such function
    return types.void(table, at), compiled


prefetch: Callable[[npt.NDArray[Any], np.uint64], None] = intrinsic(_prefetching)
"""In a kernel, `prefetch(table, at)` asks the memory for the cache line of table[at], and does not wait for it.

`table` is contiguous, and `at` is uint64. The cache misses of many rows then overlap, instead of following one another.
"""


def _upper_half(_context: object, a: Any, b: Any) -> Any:
    """Multiply in 128 bits and take the upper half.

    numba has no 128-bit integer, and LLVM does not turn four products of halves into the one instruction.
    """

    def compiled(_context: Any, builder: Any, _signature: Any, factors: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(factor, wide) for factor in factors))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    if (a, b) != (types.uint64, types.uint64):
        return None
    return types.uint64(a, b), compiled


upper_half: Callable[[np.uint64, np.uint64], np.uint64] = intrinsic(_upper_half)
"""In a kernel, `upper_half(a, b)` is the upper 64 bits of the product of two uint64."""


def _copying(_context: object, source: Any, start: Any, count: Any, out: Any, at: Any) -> Any:
    """Copy as C's memcpy does.

    Of a loop over bytes, LLVM makes one that takes ten times as long for 200 bytes: it cannot know that the two
    arrays do not overlap, and it copies the rest of each 32 bytes one by one.
    """

    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays, number = signature.args, ir.IntType(64)
        address = ir.IntType(8).as_pointer()
        memory = [
            builder.gep(context.make_array(arrays[i])(context, builder, arguments[i]).data, [where])
            for i, where in ((3, arguments[4]), (0, arguments[1]))
        ]
        copy = builder.module.declare_intrinsic("llvm.memcpy", [address, address, number])
        builder.call(copy, [*memory, arguments[2], ir.IntType(1)(0)])
        return context.get_dummy_value()

    are_bytes = all(
        isinstance(array, types.Array) and array.layout == "C" and array.dtype == types.uint8
        for array in (source, out)
    )
    if not are_bytes or not out.mutable or (start, count, at) != (types.uint64,) * 3:
        return None
    return types.void(source, start, count, out, at), compiled


copy_bytes: Callable[
    [npt.NDArray[np.uint8], np.uint64, np.uint64, npt.NDArray[np.uint8], np.uint64], None
] = intrinsic(_copying)
"""In a kernel, `copy_bytes(source, start, count, out, at)` copies `count` bytes from `start` on to `out`, from `at` on.

Both are contiguous arrays of uint8 that do not overlap, and the numbers are uint64. No bound is ever checked.
"""


def _bits_set(_context: object, word: Any) -> Any:
    def compiled(_context: Any, builder: Any, _signature: Any, words: Any) -> Any:
        return builder.ctpop(words[0])

    return (types.uint64(word), compiled) if word == types.uint64 else None


bits_set: Callable[[np.uint64], np.uint64] = intrinsic(_bits_set)
"""In a kernel, `bits_set(word)` is how many bits of a uint64 are set."""


def _lanes_within(_context: object, words: Any, at: Any, start: Any, shift: Any, size: Any) -> Any:
    """Compare all lanes at once. Of a loop over them, LLVM makes branches, or arithmetic on words."""

    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes, mask = ir.VectorType(ir.IntType(32), LANES), ir.IntType(LANES)
        table = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(table, [arguments[1]]), lanes.as_pointer())
        start, shift, size = (in_all_lanes(builder, lanes, number) for number in arguments[2:])
        distances = builder.shl(builder.sub(builder.load(place, align=8), start), shift)
        within = builder.icmp_unsigned("<", distances, size)
        return builder.zext(builder.bitcast(within, mask), ir.IntType(64))

    is_table = isinstance(words, types.Array) and words.layout == "C"
    if not is_table or {words.dtype, at, start, shift, size} != {types.uint64}:
        return None
    return types.uint64(words, at, start, shift, size), compiled


lanes_within: Callable[
    [npt.NDArray[np.uint64], np.uint64, np.uint64, np.uint64, np.uint64], np.uint64
] = intrinsic(_lanes_within)
"""In a kernel, `lanes_within(words, at, start, shift, size)` says which of eight numbers of 32 bits lie in a range.

Bit i of the result is set if (number i - start) * 2^shift mod 2^32 < size. So a range may begin below 2^32 and end
above 0, and the highest bits may be left out. The numbers are the halves of words[at] to words[at + 3], the lower one
of each first. `words` is contiguous, all else is uint64, and `shift` is below 32. No bound is ever checked.
"""


def in_all_lanes(builder: Any, lanes: Any, number: Any) -> Any:
    """A vector of the type `lanes` with the low bits of a uint64 in each lane, as many as a lane has."""
    index = ir.IntType(32)
    one = builder.insert_element(
        lanes(ir.Undefined), builder.trunc(number, lanes.element), index(0)
    )
    return builder.shuffle_vector(one, one, ir.VectorType(index, lanes.count)([0] * lanes.count))
