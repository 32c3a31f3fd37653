"""Bitmap: one bit a position. By hash, for any key, or direct, for integers of a range."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from streamdedup.filters.bitmap.direct import DirectBitmap
from streamdedup.filters.bitmap.hashed import HashedBitmap
from streamdedup.keys.hashing import MURMUR3, Hash


class Bitmap:
    """The kind `bitmap`: makes a `DirectBitmap` where it is given a `range`, else a `HashedBitmap`."""

    kind: ClassVar[str] = "bitmap"

    def __new__(cls, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - those of the class that serves
        """The filter that serves the options."""
        chosen = HashedBitmap if options.get("range") is None else DirectBitmap
        return chosen(*arguments, **options)

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> HashedBitmap | DirectBitmap:
        """The filter that gave these parts, over these very buffers; ValueError where they contradict one another."""
        chosen = DirectBitmap if "range" in header else HashedBitmap
        return chosen.from_parts(header, buffers, hash_)
