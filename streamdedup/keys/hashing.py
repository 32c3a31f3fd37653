"""Digests: 128 bits a key, two uint64, by a hash that a filter keeps for life.

`murmur3` is MurmurHash3 x64 128 with seed 0: fast, but without a secret, so anybody who chooses keys can
make them collide. `siphash` is SipHash-2-4 with 128 bits under a secret of 16 bytes, which is configured, or
*drawn* for one filter and saved with it. An error of this module names a key by its row and type only.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from typing import Any, NamedTuple, Self
from uuid import UUID

import mmh3
import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError
from streamdedup.events import Column
from streamdedup.keys import murmur, siphash
from streamdedup.keys.encoding import TAG, TAG_BYTES, Key, encoded, named, utf8

Bytes = npt.NDArray[np.uint8]
Digests = npt.NDArray[np.uint64]
RandomSource = Callable[[int], bytes]  # returns so many random bytes
Offsets = npt.NDArray[np.int32] | npt.NDArray[np.int64]

HASHES = ("murmur3", "siphash")
SYSTEM: RandomSource = os.urandom
SECRET_BYTES = 16
CHECKED_TEXT = b"streamdedup"
ROWS_A_CALL = 1 << 15  # rows in one call of a kernel: below 5 ms; it stops earlier if keys are long
KEYS_A_PIECE = 1 << 12  # keys of a list that are joined at once: they stay in the processor's cache
# The fewest keys in a list that the kernel hashes. It is faster than mmh3 from 150 `str` or 1000 `bytes` on.
KERNEL_FROM = 500


@dataclass(frozen=True)
class Hash:
    """One hash: `name`, and for `siphash` its secret `key` of 16 bytes.

    `drawn` says that the secret was drawn for one filter: it is known nowhere else, and is saved with that filter.
    """

    name: str = "murmur3"
    key: bytes = field(default=b"", repr=False)
    drawn: bool = False

    def __post_init__(self) -> None:
        if self.name not in HASHES:
            raise ConfigError(f"hash {self.name!r} is unknown; choose one of: {', '.join(HASHES)}")
        if not isinstance(self.key, bytes):
            raise ConfigError(
                f"hash {self.name}: its key is {named(self.key)}, not bytes; convert 32 hexadecimal digits by "
                'bytes.fromhex("...")'
            )
        if len(self.key) != (SECRET_BYTES if self.name == "siphash" else 0):
            raise ConfigError(
                f"hash {self.name}: a key of {len(self.key)} bytes; siphash takes 16 bytes"
                " (filter.hash_key_file, --hash-key-file), murmur3 none"
            )

    @classmethod
    def draw(cls, random: RandomSource = SYSTEM) -> Self:
        """Return siphash under a new secret, drawn from `random`."""
        return cls("siphash", random(SECRET_BYTES), drawn=True)

    @classmethod
    def under(cls, secret: bytes) -> Self:
        """Return siphash under a configured `secret`; murmur3 if it is empty."""
        return cls("siphash", secret) if secret else cls()

    @cached_property
    def check(self) -> str:
        """The digest of a fixed text, in hex. Two hashes are the same if their names and checks are equal."""
        a, b = self.digest(CHECKED_TEXT)
        return (a.to_bytes(8, "little") + b.to_bytes(8, "little")).hex()

    @property
    def facts(self) -> Mapping[str, Any]:
        """What a filter saves of it besides its name and check, as plain JSON values."""
        return {}

    def digest(self, key: Key) -> tuple[int, int]:
        """Return the digest of one key as two unsigned integers. Raises what `encoded` does."""
        a, b = self.signed(key)
        return a & _WORD, b & _WORD

    def signed(self, key: Key) -> tuple[int, int]:
        """Return the digest of one key as two signed integers, so that a kernel needs only one signature."""
        return self._signed(encoded(key))

    def digests(self, keys: Any) -> Digests:  # noqa: ANN401 - a pyarrow array has no type without pyarrow
        """Return the digests of `keys`, shape (n, 2), dtype uint64.

        `keys` is a sequence of keys, each as `digest` takes it; a pyarrow (large) string or binary
        array, chunked or not; or a tuple of a buffer and n + 1 ascending offsets into it, which are an
        array of int32 or int64, or a list. Raises TypeError for anything else, and ValueError if a key is
        null, is not within its buffer, has no UTF-8, or is beyond the limits of `encoded`.
        """
        if self.name == "murmur3" and isinstance(keys, list) and len(keys) < KERNEL_FROM:
            found, is_encoded = _all_bytes(keys)
            if not is_encoded and max(found, default=b"") >= TAG:
                found = list(map(encoded, found))
            return digests(found)
        return self._of_chunks(*columns_of(keys))

    def of_column(self, keys: Column) -> Digests:
        """Return the digests, shape (n, 2), dtype uint64, of `keys`.

        Raises ValueError if a row is null, since a null has no digest, or does not lie within the column's buffer.
        """
        starts, sizes = _integers("starts", keys.starts), _integers("sizes", keys.sizes)
        if len(starts) != len(sizes):
            raise ValueError(f"{len(starts)} starts, but {len(sizes)} sizes")
        nulls = np.flatnonzero(sizes < 0)
        if len(nulls):
            raise ValueError(f"row {nulls[0]} is null; a null has no digest")
        ends = starts.astype(np.int64) + sizes
        return self._of_chunks(len(starts), [KeyColumn(_bytes_of(keys.buffer), starts, ends)])

    def warm_up(self) -> None:
        """Compile this hash's kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
        self.digests((b"", np.zeros(2, dtype=np.int64)))
        self.signed(b"")

    def _of_chunks(self, rows: int, columns: "Iterable[KeyColumn]") -> Digests:
        made = np.empty((rows, 2), dtype=np.uint64)
        at = 0
        for column in columns:
            self._fill_in(made[at : at + len(column.starts)], column, at)
            at += len(column.starts)
        return made

    def _fill_in(self, made: Digests, column: "KeyColumn", before: int) -> None:
        """Write the digests of `column`, in short calls of a kernel; `before` other rows precede it."""
        buffer, at = frozen(column.buffer, np.uint8), 0
        while at < len(made):
            part = slice(at, at + ROWS_A_CALL)
            starts, ends = (frozen(each[part], np.int64) for each in (column.starts, column.ends))
            done = self._fill(buffer, starts, ends, made[part], column.is_encoded)
            if not done:
                raise ValueError(
                    f"row {before + at} lies from byte {starts[0]} to {ends[0]} of a buffer of {len(buffer)} bytes"
                )
            at += done

    @cached_property
    def _fill(self) -> Callable[..., int]:
        """`murmur.fill`, or `siphash.fill` under our key."""
        if self.name == "murmur3":
            return murmur.fill
        return partial(siphash.fill, siphash.secret(self.key))

    @cached_property
    def _signed(self) -> Callable[[bytes], tuple[int, int]]:
        if self.name == "murmur3":
            return mmh3.mmh3_x64_128_stupledigest
        return partial(siphash.signed, siphash.secret(self.key))


MURMUR3 = Hash()


def columns_of(
    keys: Any,  # noqa: ANN401 - see `Hash.digests`
    *,
    texts_only: bool = False,
) -> "tuple[int, Iterable[KeyColumn]]":
    """Return how many keys there are, and their columns, one after the other. Raises what `Hash.digests` does.

    With `texts_only`, a key that is neither `str` nor `bytes` is a TypeError, and none is encoded.
    """
    if is_arrow(keys):
        chunks = _chunks(keys)  # a scalar, which has no length, is refused
        return len(keys), map(_from_arrow, chunks)
    if _is_buffer_with_offsets(keys):
        column = _from_offsets(*keys)
        return len(column.starts), [column]
    if not isinstance(keys, Sequence) or isinstance(keys, str | bytes | bytearray | memoryview):
        raise TypeError(
            "keys are a list of str, bytes, int, uuid.UUID or tuples of these, a pyarrow array or (buffer, offsets),"
            f" not {named(keys)}{_remedy(keys)}"
        )
    keys = keys if isinstance(keys, list | tuple) else list(keys)
    pieces = ((at, keys[at : at + KEYS_A_PIECE]) for at in range(0, len(keys), KEYS_A_PIECE))
    return len(keys), (_joined(piece, at, texts_only) for at, piece in pieces)


def is_arrow(keys: object) -> bool:
    """Return whether `keys` is an object of pyarrow, which may not be installed."""
    return type(keys).__module__.partition(".")[0] == "pyarrow"


def digests(keys: Sequence[bytes]) -> Digests:
    """Return the murmur3 digests of `keys`, shape (n, 2), dtype uint64, by a loop without a kernel."""
    joined = bytearray(b"".join(map(mmh3.mmh3_x64_128_digest, keys)))
    return np.frombuffer(joined, dtype="<u8").reshape(-1, 2)


def checked(array: Digests) -> Digests:
    """Return `array`, contiguous and read-only. Raises TypeError if it does not hold digests.

    A kernel would compile for any other type or shape, too, and then miss keys that are present. It would
    also compile again for a read-only array, in the middle of a stream; so kernels get read-only arrays
    only.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"digests are uint64, shape (n, 2), not {named(array)}; {_SEE}")
    if array.dtype != np.uint64 or array.shape[1:] != (2,):
        raise TypeError(
            f"digests are uint64, shape (n, 2), not {array.dtype}, shape {array.shape}; {_SEE}"
        )
    return frozen(array, np.uint64)


def frozen(array: npt.NDArray[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return a view of `array` in the one form that kernels get, so that they compile only once.

    The view has the given `dtype` and is aligned, contiguous and read-only.
    """
    view = np.asarray(array, dtype=dtype, order="C").view()
    view = view if view.flags.aligned else view.copy()
    view.flags.writeable = False
    return view


class KeyColumn(NamedTuple):
    """Keys in one buffer, each from its start to its end. It is not yet known whether they are within it."""

    buffer: Bytes
    starts: Offsets
    ends: Offsets
    is_encoded: bool = False
    """Whether they are as `encoded` gives them; if not, those that begin with its tag have none of their own."""


_WORD = (1 << 64) - 1
_SIZE_BORDERS = 1 << np.arange(7, 63, 8)  # the first numbers that need one byte more
_SEE = "see f.digests, which makes them of keys: f.add_many(f.digests(keys))"


def _remedy(keys: object) -> str:
    """Return, for a message, what turns `keys` into an argument of `Hash.digests`."""
    if isinstance(keys, str | bytes | bytearray | memoryview):
        return "; of a single key: [key]"
    if hasattr(keys, "tolist"):  # a numpy array, a pandas column
        return "; give keys.tolist()"
    return "; give list(keys)" if isinstance(keys, Iterable) else ""


def _is_buffer_with_offsets(keys: object) -> bool:
    """Return whether `keys` are meant as these two, and not as two keys."""
    return (
        isinstance(keys, tuple)
        and len(keys) == 2
        and not isinstance(keys[0], str | int | UUID | tuple)
        and not isinstance(keys[1], str | bytes | int | UUID)
    )


def _all_bytes(
    keys: Sequence[Any], before: int = 0, *, texts_only: bool = False
) -> tuple[Sequence[bytes], bool]:
    """Return `keys` as bytes, and whether these are encoded; `before` other keys precede them."""
    kinds = set(map(type, keys))
    if kinds <= {bytes}:
        return keys, False
    if kinds == {str}:
        with suppress(UnicodeEncodeError):
            return list(map(str.encode, keys)), True
    return list(map(utf8 if texts_only else encoded, keys, count(before))), True


def _joined(keys: Sequence[Any], before: int, texts_only: bool) -> KeyColumn:
    """Return the column of a piece of a list; `before` other keys precede it."""
    if not texts_only and (column := _of_integers(keys)):
        return column
    text, is_encoded = _ascii(keys), True
    if text is None:
        keys, is_encoded = _all_bytes(keys, before, texts_only=texts_only)
    buffer = b"".join(keys) if text is None else text.encode()
    sizes = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    ends = sizes.cumsum()
    return KeyColumn(np.frombuffer(buffer, dtype=np.uint8), ends - sizes, ends, is_encoded)


def _of_integers(keys: Sequence[Any]) -> KeyColumn | None:
    """Return the column of integers, or None if not all `keys` are integers of 64 bits. A list of them is common."""
    if type(keys[0]) is not int or set(map(type, keys)) != {int}:
        return None
    try:
        numbers = np.array(keys, dtype=np.int64)
    except OverflowError:
        return None
    cells = np.empty((len(keys), TAG_BYTES + 8), dtype=np.uint8)
    cells[:, TAG_BYTES:] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
    sizes = np.searchsorted(_SIZE_BORDERS, numbers ^ numbers >> 63, side="right") + 1
    ends = np.arange(1, len(keys) + 1) * (TAG_BYTES + 8)
    starts, buffer = ends - sizes - TAG_BYTES, cells.ravel()
    buffer[starts], buffer[starts + 1] = TAG[0], ord("i")
    return KeyColumn(buffer, starts, ends, is_encoded=True)


def _ascii(keys: Sequence[Any]) -> str | None:
    """Return the joined text of all `keys`, or None if they are not all ASCII `str`."""
    try:
        text = "".join(keys)
    except TypeError:  # some key is not a `str`
        return None
    return text if text.isascii() else None


def _from_offsets(buffer: object, offsets: object) -> KeyColumn:
    found = _integers("offsets", np.array(offsets) if isinstance(offsets, list) else offsets)
    if not len(found):
        raise ValueError("no offsets; of n keys there are n + 1")
    return KeyColumn(_bytes_of(buffer), found[:-1], found[1:])


_ARROW = {
    "string": np.int32,
    "binary": np.int32,
    "large_string": np.int64,
    "large_binary": np.int64,
}


def _chunks(keys: Any) -> Sequence[Any]:  # noqa: ANN401 - pyarrow may not be there
    """Return the arrays of strings or binaries of which a pyarrow object consists. None of them has nulls."""
    kind = str(getattr(keys, "type", "none"))
    if kind not in _ARROW or not hasattr(keys, "null_count"):
        raise TypeError(
            f"keys are a pyarrow array of {', '.join(_ARROW)}, not {named(keys)} of {kind}; cast it to one of these"
        )
    if keys.null_count:
        raise ValueError(f"{keys.null_count} of {len(keys)} keys are null; drop them first")
    return [chunk for chunk in getattr(keys, "chunks", [keys]) if len(chunk)]


def _from_arrow(chunk: Any) -> KeyColumn:  # noqa: ANN401
    """Return the column over the buffers of a pyarrow array, which may be a slice of a larger one."""
    _, positions, data = chunk.buffers()
    offsets = np.frombuffer(positions, dtype=_ARROW[str(chunk.type)])
    offsets = offsets[chunk.offset : chunk.offset + len(chunk) + 1]
    return KeyColumn(_bytes_of(data or b""), offsets[:-1], offsets[1:])


def _bytes_of(buffer: Any) -> Bytes:  # noqa: ANN401 - bytes, bytearray, memoryview, mmap, an array of uint8
    try:
        view = memoryview(buffer)
    except TypeError:
        raise TypeError(f"the buffer of the keys is {named(buffer)}; bytes are needed") from None
    if view.itemsize != 1 or view.ndim != 1 or not view.c_contiguous:
        raise TypeError("the buffer of the keys is not one row of bytes")
    return np.frombuffer(view, dtype=np.uint8)


def _integers(name: str, numbers: object) -> Offsets:
    if not isinstance(numbers, np.ndarray):
        raise TypeError(f"{name} are {named(numbers)}; an array of int32 or int64 is needed")
    if numbers.dtype not in (np.int32, np.int64) or numbers.ndim != 1:
        raise TypeError(
            f"{name} are int32 or int64, shape (n,), not {numbers.dtype}, shape {numbers.shape}"
        )
    return numbers
