"""White space trimmed, letters lowered: the normalizers `trim` and `lowercase`."""

from collections.abc import Callable
from dataclasses import dataclass

from streamdedup.events import Column, concatenated
from streamdedup.keys.normalizers import long_text
from streamdedup.keys.normalizers.base import text_of, with_rest
from streamdedup.keys.steps import Steps, drained

VERSION = 1  # increased by every change of this module that could change a key


@dataclass(frozen=True)
class TextNormalizer:
    """Takes white space off both ends; if it `lowers`, it also makes the text lowercase."""

    id: str
    rules_id: str
    of_text: Callable[[str], str]
    lowers: bool
    takes_long = False

    def of_key(self, key: bytes) -> bytes:
        """Return the normalized key. Raises MalformedError if the key is not UTF-8 text."""
        return self.of_text(text_of(key)).encode()

    def of_column(self, keys: Column) -> tuple[Column, dict[int, str]]:
        """Return the normalized key of each row, and why a row has none, in ascending order.

        Nulls stay nulls.
        """
        return drained(self.steps(keys))

    def steps(self, keys: Column) -> Steps[tuple[Column, dict[int, str]]]:
        """Return the same, in steps."""
        # Imported here, since one key needs no kernels.
        from streamdedup.keys.normalizers.ascii_text import lower_column, trim_column

        found = trim_column(keys)
        if self.lowers:
            found = lower_column(found)
        return with_rest(found, keys, self.of_key, self._of_long_key)

    def _of_long_key(self, key: memoryview) -> Steps[bytes]:
        pieces = long_text.stripped(long_text.texts_of(key))
        encoded = []
        for piece in long_text.lowered(pieces) if self.lowers else pieces:
            encoded.append(piece.encode())
            yield
        return concatenated(encoded)


def lowercase(text: str) -> str:
    """Trim white space at both ends and lower all letters."""
    return text.strip().lower()
