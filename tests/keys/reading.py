"""The key of a single text, as the worker reads it."""

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
