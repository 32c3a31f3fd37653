"""Claims about bombs in JSON: those of tests/keys/test_bombs.py, of every bomb, at every size and path."""

import threading
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from streamdedup.delivery.turns import keys_of
from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys import extract
from streamdedup.keys.extract import BYTES_A_TURN, Extractor, json_keys
from streamdedup.keys.formats.json_fields import json_reader
from streamdedup.threads import Lane
from tests import bombs
from tests.keys.exact import are_alike, exact_reader
from tests.keys.test_bombs import PATHS, python_runs_no_longer, takes_little_memory
from tests.keys.test_extract import batch_of
from tests.rows import every, table


@table(product(bombs.JSON, [4_000, 60_000], ["id", "id.id", "x.1", "x"]))
def test_its_key_is_that_of_the_exact_reader(name: str, size: int, field: str) -> None:
    """The kernels find what Python code over `json` finds, and give the same reasons."""
    text = bombs.JSON[name](size)
    assert size / 2 < len(text) <= size
    (key,), malformed = json_keys([field], Column.of([text]))
    try:
        assert (exact_reader(field)(text), {}) == (key, malformed)
    except MalformedError as reason:
        assert key is None
        assert are_alike(malformed[0], str(reason), len(text))


def test_it_takes_little_memory() -> None:
    """A few times its bytes for keys that are decoded and joined; some kB beside a short key, or none."""
    every(product(bombs.JSON, PATHS), takes_little_memory)


def test_python_runs_no_longer_than_for_a_small_one() -> None:
    """However long the text is."""
    every(product(bombs.JSON, PATHS), python_runs_no_longer)


@pytest.mark.parametrize("fields", [("id",), ("id", "x.0")], ids=str)
@pytest.mark.parametrize("events", [1, 1_000])
async def test_it_is_read_beside_the_loop(
    fields: tuple[str, ...], events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than BYTES_A_TURN bytes are read in a thread, in one event or in many; fewer are read at once."""
    threads = []

    def noted(fields: Sequence[str], texts: Column) -> Any:
        threads.append(threading.get_ident())
        return json_reader(fields, texts)

    monkeypatch.setattr(extract, "json_reader", noted)
    for size, beside in ((BYTES_A_TURN // len(fields) - 100, False), (BYTES_A_TURN + 100, True)):
        threads.clear()
        text = b'{"id":"a","x":[0]}'
        values = [text] * (events - 1)
        values.append(text + b" " * (size - len(text) * events))
        found = await keys_of(batch_of([*values]), Extractor("json", fields), Lane(1))
        assert len(found.keys) == events
        assert [thread != threading.get_ident() for thread in threads] == [beside]
