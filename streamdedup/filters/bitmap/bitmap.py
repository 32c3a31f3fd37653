"""The kind `bitmap`: one bit a position. It takes keys of any kind, by their hash, or integers of a range, directly."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from streamdedup.filters.bitmap.direct import DirectBitmap
from streamdedup.filters.bitmap.hashed import HashedBitmap
from streamdedup.keys.hashing import MURMUR3, Hash


class Bitmap:
    """The kind `bitmap`. It builds a `DirectBitmap` if the option `range` is given, and a `HashedBitmap` otherwise."""

    kind: ClassVar[str] = "bitmap"

    def __new__(cls, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the arguments of either class
        """Build the filter that the options ask for. The arguments are those of its class."""
        chosen = HashedBitmap if options.get("range") is None else DirectBitmap
        return chosen(*arguments, **options)

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> HashedBitmap | DirectBitmap:
        """Restore the filter that gave these parts, over these very buffers.

        Raises ValueError if the parts contradict one another.
        """
        chosen = DirectBitmap if "range" in header else HashedBitmap
        return chosen.from_parts(header, buffers, hash_)
