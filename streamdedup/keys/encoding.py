"""The bytes of a key, which are hashed: of a text its UTF-8, of `bytes` these, of all others a tag and what follows.

No UTF-8 begins with the byte FF. After it comes a letter for the type, and then

- `i`, an integer: two's complement, big-endian, in as few bytes as hold it. 0 is 00, 127 is 7F, 128 is 0080, -1 is FF.
- `u`, a `uuid.UUID`: its 16 bytes, in the order of its text.
- `t`, a `tuple`: the bytes of each part, which is a key itself, after their number in 4 bytes, little-endian.
- `b`, `bytes` that begin with FF: these, FF included.

So two keys have the same bytes only if Python calls them equal, or if one is a text and the other its UTF-8.
"""

from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    import numpy as np

Key: TypeAlias = "str | bytes | int | np.integer[Any] | UUID | tuple[Key, ...]"

TAG = b"\xff"
OF_BYTES = b"\xffb"
TAG_BYTES = 2  # with the letter
LENGTH_BYTES = 4  # before each part of a tuple, as in `keys.join`
SIZE_MAX = 1 << 20  # bytes of an integer or a tuple
DEPTH_MAX = 16  # tuples, each in the one before


def encoded(key: object, row: int | None = None, depth: int = 0) -> bytes:
    """Return the bytes of one key; `row` is its row if there are several, `depth` how many tuples it is in.

    Whatever else is an integer for `numbers.Integral`, such as those of numpy, is the equal `int`. Raises TypeError for
    any other type and for `bool`; ValueError for a text without UTF-8, and for integers and tuples beyond the limits.
    """
    if isinstance(key, str | bytes):
        text = utf8(key, row, depth)
        return OF_BYTES + text if text.startswith(TAG) else text
    if isinstance(key, bool):
        raise TypeError(
            f"{_name(row, depth)} is of type bool, and True would be the integer 1; give int(key) or str(key)"
        )
    if isinstance(key, int):
        return _of_integer(index(key), row, depth)
    if isinstance(key, UUID):
        return b"\xffu" + key.bytes
    if isinstance(key, tuple):
        return _of_tuple(key, row, depth)
    if isinstance(key, Integral):  # slow to ask
        return _of_integer(index(key), row, depth)
    raise TypeError(
        f"{_name(row, depth)} is {named(key)}, not str, bytes, int, uuid.UUID or a tuple of these"
    )


def utf8(key: object, row: int | None = None, depth: int = 0) -> bytes:
    """Return the bytes of a text without a tag, as what changes texts takes them. Raises what `encoded` does."""
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError:  # its message holds the key
            raise ValueError(
                f"{_name(row, depth)} has a lone surrogate, which has no UTF-8"
            ) from None
    if isinstance(key, bytes):
        return bytes(key)
    raise TypeError(f"{_name(row, depth)} is {named(key)}; only str and bytes can be normalized")


def named(found: object) -> str:
    """Return the type of `found` for a message, without its content."""
    return f"of type {type(found).__module__}.{type(found).__qualname__}".replace("builtins.", "")


def _of_integer(number: int, row: int | None, depth: int) -> bytes:
    size = (number + (number < 0)).bit_length() // 8 + 1
    if size > SIZE_MAX:
        raise ValueError(
            f"{_name(row, depth)} is an integer of {size:,} bytes, above {SIZE_MAX:,}; give a digest of it"
        )
    return b"\xffi" + number.to_bytes(size, "big", signed=True)


def _of_tuple(parts: tuple[object, ...], row: int | None, depth: int) -> bytes:
    if depth == DEPTH_MAX:
        raise ValueError(
            f"{_name(row, depth)} is the {depth + 1}th tuple within another, above {DEPTH_MAX}; make it flat"
        )
    found, size = [b"\xfft"], 0
    for part in parts:
        each = encoded(part, row, depth + 1)
        size += LENGTH_BYTES + len(each)
        if size > SIZE_MAX:
            raise ValueError(
                f"{_name(row, depth)} is a tuple of more than {SIZE_MAX:,} bytes; give digests of its long parts"
            )
        found += len(each).to_bytes(LENGTH_BYTES, "little"), each
    return b"".join(found)


def _name(row: int | None, depth: int) -> str:
    name = "the key" if row is None else f"key {row}"
    return f"a part of {name}" if depth else name
