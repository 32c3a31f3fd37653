"""Keys as the worker reads them: of a single text, and of a column, which are held against the exact reader."""

from collections.abc import Callable, Sequence

from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.extract import json_keys
from streamdedup.keys.normalizers.base import Normalizer


def json_reader(
    fields: Sequence[str], normalizer: Normalizer | None = None
) -> Callable[[bytes | None], bytes]:
    """Return a function from a JSON text to its key, by `json_keys`; it raises MalformedError with the reason."""

    def read(text: bytes | None) -> bytes:
        (key,), malformed = json_keys(fields, Column.of([text]), normalizer)
        if key is None:
            raise MalformedError(malformed[0])
        assert not malformed
        return key

    return read


def agrees(normalizer: Normalizer, plain: Callable[[Column], Column], texts: Sequence[str]) -> None:
    """Compare what the kernel knows, and a column, with what the exact reader makes of each text, reasons included."""
    cells: list[bytes | None] = [None, *(text.encode("utf-8", "replace") for text in texts)]
    known, (keys, malformed) = plain(Column.of(cells)), normalizer.of_column(Column.of(cells))
    for row, cell in enumerate(cells):
        try:
            expected, reason = None if cell is None else normalizer.of_key(cell), None
        except MalformedError as refused:
            expected, reason = None, str(refused)
        assert known[row] in (None, expected)
        assert (keys[row], malformed.get(row)) == (expected, reason)
