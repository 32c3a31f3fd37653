"""SipHash-2-4 of eight keys at once, one in each lane of a vector, written in LLVM's language.

Each round of a key needs the result of the one before, so with one key the processor mostly waits. LLVM does not
vectorize a loop over eight keys. It compiles these vectors for every processor, into several instructions if there is
no single one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamdedup.instructions import in_all_lanes
from streamdedup.kernel import Words
from streamdedup.later import intrinsic, ir, llvm, types

LANES = 8
INITIAL = A, B, C, D = (
    0x736F6D6570736575,
    0x646F72616E646F6D,
    0x6C7967656E657261,
    0x7465646279746573,
)
LONG, SECOND = 0xEE, 0xDD  # the constants that distinguish the 128-bit form

Vector = Any  # a value of LLVM's


class _Code:
    """Writes the code of one call with `builder`. An array is given as the address of its first word."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._lanes = ir.VectorType(llvm.word, LANES)

    def digests(self, words: Any, counts: Any, steps: Any, key: Sequence[Any], out: Any) -> None:
        """Hash lane l over its words 0 to counts[l], in `steps` steps, and write the digests to `out`."""
        one, other = (self._in_all_lanes(word) for word in key)
        state = [
            self._xor(one, A),
            self._xor(other, B ^ LONG),
            self._xor(one, C),
            self._xor(other, D),
        ]
        last_steps = self._builder.load(self._vectors(counts), align=8)
        a, b, c, d = self._taken_in(self._vectors(words), last_steps, steps, state)
        a, b, c, d = self._rounds(4, a, b, self._xor(c, LONG), d)
        first = self._xor(self._xor(a, b), self._xor(c, d))
        a, b, c, d = self._rounds(4, a, self._xor(b, SECOND), c, d)
        second = self._xor(self._xor(a, b), self._xor(c, d))
        by_turns = [lane + half for lane in range(LANES) for half in (0, LANES)]
        both = self._builder.shuffle_vector(
            first, second, ir.VectorType(llvm.number, 2 * LANES)(by_turns)
        )
        place = ir.VectorType(llvm.word, 2 * LANES).as_pointer()
        self._builder.store(both, self._builder.bitcast(out, place), align=8)

    def _taken_in(
        self,
        words: Any,
        last_steps: Vector,
        steps: Any,
        first: Sequence[Vector],
    ) -> Sequence[Vector]:
        """The state after all steps, of which there is at least one; a lane that has ended keeps its own."""
        builder = self._builder
        before, loop, after = builder.block, *map(builder.append_basic_block, ("step", "taken"))
        builder.branch(loop)
        builder.position_at_end(loop)
        step, old = builder.phi(llvm.word), [builder.phi(self._lanes) for _ in first]
        word = builder.load(builder.gep(words, [step]), align=8)
        a, b, c, d = self._rounds(2, old[0], old[1], old[2], self._xor(old[3], word))
        goes_on = builder.icmp_unsigned("<=", self._in_all_lanes(step), last_steps)
        taken = (self._xor(a, word), b, c, d)
        new = [builder.select(goes_on, *pair) for pair in zip(taken, old, strict=True)]
        following = builder.add(step, llvm.word(1))
        for value, at_first, later in zip(
            (step, *old), (llvm.word(0), *first), (following, *new), strict=True
        ):
            value.add_incoming(at_first, before)
            value.add_incoming(later, loop)
        builder.cbranch(builder.icmp_unsigned("<", following, steps), loop, after)
        builder.position_at_end(after)
        return new

    def _rounds(
        self, count: int, a: Vector, b: Vector, c: Vector, d: Vector
    ) -> tuple[Vector, Vector, Vector, Vector]:
        add = self._builder.add
        for _ in range(count):
            a, c = add(a, b), add(c, d)
            b, d = self._xor(self._rotated(b, 13), a), self._xor(self._rotated(d, 16), c)
            a = self._rotated(a, 32)
            c, a = add(c, b), add(a, d)
            b, d = self._xor(self._rotated(b, 17), c), self._xor(self._rotated(d, 21), a)
            c = self._rotated(c, 32)
        return a, b, c, d

    def _rotated(self, lanes: Vector, by: int) -> Vector:
        up, down = (self._lanes([count] * LANES) for count in (by, 64 - by))
        return self._builder.or_(self._builder.shl(lanes, up), self._builder.lshr(lanes, down))

    def _xor(self, lanes: Vector, other: Vector) -> Vector:
        return self._builder.xor(
            lanes, self._lanes([other] * LANES) if isinstance(other, int) else other
        )

    def _in_all_lanes(self, number: Any) -> Vector:
        return in_all_lanes(self._builder, self._lanes, number)

    def _vectors(self, address: Any) -> Any:
        return self._builder.bitcast(address, self._lanes.as_pointer())


def _hashing(
    _context: object,
    words: Any,
    counts: Any,
    steps: Any,
    secret: Any,
    digests: Any,
    row: Any,
) -> Any:
    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes, ends, key, out = (
            context.make_array(signature.args[at])(context, builder, arguments[at]).data
            for at in (0, 1, 3, 4)
        )
        halves = [builder.load(builder.gep(key, [llvm.word(half)])) for half in (0, 1)]
        place = builder.gep(out, [builder.mul(arguments[5], llvm.word(2))])
        _Code(builder).digests(lanes, ends, arguments[2], halves, place)
        return context.get_dummy_value()

    arrays = (words, counts, secret, digests)
    if not all(isinstance(array, types.Array) and array.layout == "C" for array in arrays):
        return None  # numba then reports that there is no such function
    if {*(array.dtype for array in arrays), steps, row} != {types.uint64} or not digests.mutable:
        return None
    return types.void(words, counts, steps, secret, digests, row), compiled


hash_lanes: Callable[[Words, Words, np.uint64, Words, Words, np.uint64], None] = intrinsic(_hashing)
"""In a kernel, `hash_lanes(words, counts, steps, secret, digests, row)` writes the digests of LANES keys.

`words` has word i of the key of lane l at i * LANES + l. The key of lane l has counts[l] whole words, and then the last
one, with its size; `steps` is one more than the greatest count. `digests` (n, 2) has room for LANES rows from `row` on.
`secret` (2,) is the key of the hash. All arrays are contiguous; they and the numbers are uint64. No bound is checked.
"""
