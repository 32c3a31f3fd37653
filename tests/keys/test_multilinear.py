"""Claims about the secret bits of a digest: which they are, and that nobody chooses digests that share them."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.kernel import Words, kernel
from streamdedup.keys.hashing import MURMUR3, Digests
from streamdedup.keys.multilinear import WORDS, drawn_words, secret_bits, words_of
from tests.chosen import WORD, murmur3_key

words = st.integers(0, WORD)
LOW = (1 << 32) - 1


@kernel
def _filled(secret: Words, digests: Digests, bits: Words) -> None:
    for i in range(digests.shape[0]):
        bits[i] = secret_bits(words_of(secret), digests[i, 0], digests[i, 1])


def bits_of(secret: Words, digests: Digests) -> Words:
    """The secret bits of each digest, shape (n,)."""
    bits = np.empty(len(digests), dtype=np.uint64)
    _filled(secret, digests, bits)
    return bits


@given(st.tuples(*[words] * WORDS), st.tuples(words, words))
def test_the_bits_are_those_of_the_paper(m: tuple[int, ...], digest: tuple[int, int]) -> None:
    """Multilinear-HM over the four halves, then a bijection of 32 bits."""
    (a, b) = digest
    first, second = (m[1] + (a & LOW)) * (m[2] + (a >> 32)), (m[3] + (b & LOW)) * (m[4] + (b >> 32))
    x = ((m[0] + first + second) & WORD) >> 32
    x = (x ^ x >> 16) * 0x85EBCA6B & LOW
    expected = x ^ x >> 15
    assert bits_of(np.array(m, np.uint64), np.array([digest], np.uint64)).tolist() == [expected]


def test_the_words_come_from_the_source() -> None:
    """Equal sources, equal words; the system's are new each time."""
    one, other = (drawn_words(random.Random(62).randbytes) for _ in range(2))
    assert one.tolist() == other.tolist()
    assert one.dtype == np.uint64
    assert drawn_words().tolist() != drawn_words().tolist()


@given(words, words)
def test_murmur3_gives_any_digest_that_somebody_wants(a: int, b: int) -> None:
    """Why places must not be taken from a digest of murmur3 alone."""
    assert MURMUR3.digest(murmur3_key(a, b)) == (a, b)
