"""Claims about digests: they are the same in every way in, also in ways of no other library."""

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
