"""Claims about digests: those of SipHash are the published algorithm's under any secret."""

import mmap
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.keys.hashing import Hash
from tests.keys.test_hashing import (
    HASHES,
    KEYS,
    Way,
    arrow_as,
    buffer_as,
    has_their_digests,
    with_offsets,
)
from tests.rows import table

WORD = (1 << 64) - 1


@given(st.lists(st.binary(max_size=70), max_size=20), st.binary(min_size=16, max_size=16))
@settings(deadline=None)
def test_agrees_with_the_algorithm_written_out(keys: list[bytes], secret: bytes) -> None:
    """Keys of any length, at any address, under any secret, hash as the published algorithm says."""
    siphash = Hash("siphash", secret)
    expected = [_siphash_2_4_128(secret, key) for key in keys]
    assert list(map(siphash.digest, keys)) == expected
    for given_as in (keys, with_offsets(keys)):
        assert list(map(tuple, siphash.digests(given_as).tolist())) == expected


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & WORD


def _siphash_2_4_128(secret: bytes, key: bytes) -> tuple[int, int]:
    """SipHash-2-4 with 128 bits in Python's own integers."""
    low, high = (int.from_bytes(half, "little") for half in (secret[:8], secret[8:]))
    state = [
        int.from_bytes(text, "big") for text in (b"somepseu", b"dorandom", b"lygenera", b"tedbytes")
    ]
    state = [word ^ half for word, half in zip(state, (low, high, low, high), strict=True)]
    state[1] ^= 0xEE
    padded = key + bytes(-(len(key) + 1) % 8) + bytes([len(key) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        state[3] ^= word
        _sip_rounds(state, 2)
        state[0] ^= word
    halves = []
    for where, constant in ((2, 0xEE), (1, 0xDD)):
        state[where] ^= constant
        _sip_rounds(state, 4)
        halves.append(state[0] ^ state[1] ^ state[2] ^ state[3])
    return halves[0], halves[1]


def _sip_rounds(state: list[int], count: int) -> None:
    for _ in range(count):
        for into, other, by, turned in (
            (0, 1, 13, True),
            (2, 3, 16, False),
            (0, 3, 21, False),
            (2, 1, 17, True),
        ):
            state[into] = (state[into] + state[other]) & WORD
            state[other] = _rotated(state[other], by) ^ state[into]
            if turned:
                state[into] = _rotated(state[into], 32)


def _unaligned(keys: Sequence[bytes]) -> tuple[bytes, npt.NDArray[np.int64]]:
    buffer, offsets = with_offsets(keys)
    moved = np.frombuffer(b"x" + offsets.tobytes(), dtype=np.int64, offset=1)
    assert not moved.flags.aligned
    return buffer, moved


def _with_gaps(keys: Sequence[bytes]) -> tuple[bytes, npt.NDArray[np.int64]]:
    buffer, offsets = with_offsets(keys)
    return b"before" + buffer + b"after", offsets + 6


def _in_a_file(keys: Sequence[bytes]) -> tuple[mmap.mmap, npt.NDArray[np.int64]]:
    buffer, offsets = with_offsets(keys)
    with tempfile.TemporaryFile() as file:
        file.write(buffer or b"x")
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), offsets


RARE: dict[str, Way] = {
    "deque": deque,
    "numpy bytes": lambda keys: [np.bytes_(key) for key in keys],
    "numpy strings": lambda keys: [np.str_(key.decode()) for key in keys],
    "strided offsets": lambda keys: (b"".join(keys), np.repeat(with_offsets(keys)[1], 2)[::2]),
    "unaligned offsets": _unaligned,
    "gaps": _with_gaps,
    "bytearray": buffer_as(bytearray),
    "bytes array": buffer_as(lambda buffer: np.frombuffer(buffer, np.uint8)),
    "arrow buffer": buffer_as(pa.py_buffer),
    "file": _in_a_file,
    "arrow slice of a slice": lambda keys: pa.array([b"x", *keys])[1:][: len(keys)],
    "arrow sliced chunks": lambda keys: pa.chunked_array([[b"x", *keys[:2]], keys[2:]])[1:],
    "arrow large_binary": arrow_as(pa.large_binary()),
}


@table(product(HASHES, RARE.values(), KEYS))
def test_every_way_in_gives_the_same_digests(hash_: Hash, way: Way, keys: list[str]) -> None:
    """However keys are given, also as no other library gives them."""
    has_their_digests(hash_, way, keys)


@table(
    [
        ("import streamdedup", {"numpy", "numba", "mmh3", "pyarrow"}),
        ("import streamdedup.keys.hashing", {"numba", "pyarrow"}),
        (
            "from streamdedup.keys.hashing import MURMUR3; MURMUR3.digests(['a'])",
            {"numba", "pyarrow"},
        ),
        (
            "from streamdedup.keys.hashing import MURMUR3; MURMUR3.digests(['a'] * 1000)",
            {"pyarrow"},
        ),
    ]
)
def test_only_what_is_needed_is_imported(source: str, absent: set[str]) -> None:
    """The compiler is imported where a kernel is called, pyarrow by whoever has such an array."""
    told = f"{source}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert not absent & set(done.stdout.split())
