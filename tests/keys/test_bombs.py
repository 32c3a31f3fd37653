"""Claims about bombs in JSON: their keys are the right ones, and cost the loop no turn, and memory little.

Work is counted here; `python -m bench bombs` measures how long the loop stands still.
"""

import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

from streamdedup.events import Column
from streamdedup.keys.extract import json_keys
from tests import bombs
from tests.rows import every

MIB = 1 << 20
TIMES_MAX = 4  # decoded, joined and copied: far below 10 times what was decompressed
BESIDES = 64 << 10  # bytes that do not depend on the text
CALLS_MAX = 500  # of Python functions and of C functions by Python code, however long the text is

# One of each way to be dear: containers, depth, an open end, escapes, repeated names, digits, no JSON.
SOME = [
    "arrays beside an escaped key",
    "objects",
    "deep but allowed",
    "deep objects",
    "never closed",
    "a key of surrogate pairs",
    "an escaped name repeated",
    "a name repeated with objects",
    "a long integer as the key",
    "many large integers",
    "no JSON",
]
PATHS = [("id",), ("id", "x.0"), ("x.99999.0",)]

Row = tuple[str, tuple[str, ...]]  # the name of a bomb, and paths


def test_it_takes_little_memory() -> None:
    """Of a text of 2 MiB, at most four times its bytes are taken beside it, for keys that are decoded and joined.

    A list in Python takes 21 times the bytes of `[],`.
    """
    every(product(SOME, PATHS[:2]), takes_little_memory)


def takes_little_memory(row: Row) -> None:
    """Hold the most bytes that are taken at a time against the bytes of the text; a short key takes some kB."""
    name, fields = row
    texts = Column.of([bombs.JSON[name](2 * MIB)])
    json_keys(fields, Column.of([b"{}", b'{"id":"\\u0061"}']))  # loads the kernels
    with _memory() as taken:
        json_keys(fields, texts)
    times = 0 if len(fields) == 1 and name not in bombs.LONG_KEYS else TIMES_MAX * len(fields)
    assert taken[0] <= BESIDES + times * len(texts.buffer)


def test_python_runs_no_longer_than_for_a_small_one() -> None:
    """However long the text is, Python code makes some hundred calls. All else is done by kernels, without the GIL."""
    every(product(SOME, PATHS[1:2]), python_runs_no_longer)


def python_runs_no_longer(row: Row) -> None:
    """Count the calls that Python code makes for a small and for a large one."""
    name, fields = row
    json_keys(fields, Column.of([b"{}"]))
    calls = {size: _calls(fields, bombs.JSON[name](size)) for size in (4_000, 2 * MIB)}
    assert calls[2 * MIB] <= calls[4_000] + 20  # pieces of 1 MiB are copied
    assert calls[2 * MIB] < CALLS_MAX


def test_of_many_schema_ids_python_reads_none_by_itself() -> None:
    """A turn takes 8,192 values: if each looked like one of another schema, that held the loop for 10 ms."""
    framed = [b"\0" + number.to_bytes(4, "big") for number in range(5_000)]
    json_keys(["id"], Column.of(framed))
    assert _calls(("id",), *framed) < CALLS_MAX


def test_kernels_hold_no_gil() -> None:
    """The kernels that read JSON release the GIL, so other threads go on meanwhile."""
    from streamdedup.keys import join
    from streamdedup.keys.formats import json_column, json_exact

    kernels: list[Any] = [json_column.fill, json_exact.fill, json_exact.decode, join.append]
    assert all(kernel.targetoptions["nogil"] for kernel in kernels)


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
