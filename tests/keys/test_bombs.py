"""Claims about bombs in JSON: their keys are the right ones, and cost the loop no turn, and memory little.

Work is counted here; `python -m bench.bombs` measures how long the loop stands still.
"""

import sys
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from streamdedup.delivery.turns import keys_of
from streamdedup.errors import MalformedError
from streamdedup.events import Column, EventBatch
from streamdedup.keys import extract
from streamdedup.keys.extract import BYTES_A_TURN, Extractor, json_keys
from streamdedup.keys.formats.json_fields import json_reader
from streamdedup.threads import Lane
from tests import bombs
from tests.keys.exact import are_alike, exact_reader

MIB = 1 << 20
TIMES_MAX = 4  # decoded, joined and copied: far below 10 times what was decompressed
BESIDES = 64 << 10  # bytes that do not depend on the text
CALLS_MAX = 500  # of Python functions and of C functions by Python code, however long the text is

every_bomb = pytest.mark.parametrize("name", bombs.JSON)
every_path = pytest.mark.parametrize("fields", [("id",), ("id", "x.0"), ("x.99999.0",)], ids=str)


@every_bomb
@pytest.mark.parametrize("size", [4_000, 60_000])
@pytest.mark.parametrize("field", ["id", "id.id", "x.1", "x"])
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


@every_bomb
@every_path
def test_it_takes_little_memory(name: str, fields: tuple[str, ...]) -> None:
    """Of a text of 2 MiB, at most four times its bytes are taken beside it, for keys that are decoded and joined.

    A list in Python takes 21 times the bytes of `[],`.
    """
    texts = Column.of([bombs.JSON[name](2 * MIB)])
    json_keys(fields, Column.of([b"{}"]))  # loads the kernels
    with _memory() as taken:
        json_keys(fields, texts)
    assert taken[0] <= BESIDES + TIMES_MAX * len(fields) * len(texts.buffer)


@pytest.mark.parametrize("name", sorted(set(bombs.JSON) - bombs.LONG_KEYS))
def test_beside_its_key_it_takes_no_memory(name: str) -> None:
    """A text of 2 MiB with a short key, or none, takes some kB, whatever else it holds."""
    texts = Column.of([bombs.JSON[name](2 * MIB)])
    json_keys(["id"], Column.of([b"{}"]))
    with _memory() as taken:
        json_keys(["id"], texts)
    assert taken[0] <= BESIDES


@every_bomb
@every_path
def test_python_runs_no_longer_than_for_a_small_one(name: str, fields: tuple[str, ...]) -> None:
    """However long the text is, Python code makes some hundred calls. All else is done by kernels, without the GIL."""
    json_keys(fields, Column.of([b"{}"]))
    calls = {size: _calls(fields, bombs.JSON[name](size)) for size in (4_000, 2 * MIB)}
    assert calls[2 * MIB] <= calls[4_000] + 20  # pieces of 1 MiB are copied
    assert calls[2 * MIB] < CALLS_MAX


def test_of_many_schema_ids_python_reads_none_by_itself() -> None:
    """A turn takes 8,192 values: if each looked like one of another schema, that held the loop for 10 ms."""
    framed = [b"\0" + number.to_bytes(4, "big") for number in range(5_000)]
    json_keys(["id"], Column.of(framed))
    assert _calls(("id",), *framed) < CALLS_MAX


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
        found = await keys_of(_batch(values), Extractor("json", fields), Lane(1))
        assert len(found.keys) == events
        assert [thread != threading.get_ident() for thread in threads] == [beside]


def test_kernels_hold_no_gil() -> None:
    """The kernels that read JSON release the GIL, so other threads go on meanwhile."""
    from streamdedup.keys import join
    from streamdedup.keys.formats import json_column, json_exact

    kernels: list[Any] = [json_column.fill, json_exact.fill, json_exact.decode, join.append]
    assert all(kernel.targetoptions["nogil"] for kernel in kernels)


def _batch(values: list[bytes]) -> EventBatch:
    count = len(values)
    return EventBatch(
        topic="t",
        partition=0,
        offsets=np.arange(count),
        timestamps=np.zeros(count, np.int64),
        keys=Column.of([None] * count),
        values=Column.of(values),
        headers=[[] for _ in range(count)],
        next_offset=count,
    )


@contextmanager
def _memory() -> Iterator[list[int]]:
    """Leave in the list the most bytes that Python and numpy held at a time beside those of the beginning."""
    taken = [0]
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        yield taken
        taken[0] = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def _calls(fields: tuple[str, ...], *cells: bytes) -> int:
    """How many calls Python code makes to read `cells`."""
    texts, calls = Column.of(cells), 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        json_keys(fields, texts)
    finally:
        sys.setprofile(None)
    return calls
