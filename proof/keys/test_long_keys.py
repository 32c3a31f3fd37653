"""Claims about keys of megabytes: no call takes so much of one that it would keep the GIL for long."""

import sys
from itertools import product
from typing import Any

from streamdedup.events import Column
from streamdedup.keys.normalizers import long_text
from streamdedup.keys.normalizers.base import LONG_BYTES
from streamdedup.keys.options import Normalization
from tests.keys.test_long_keys import NAMES, SIZE, outcome
from tests.keys.test_normalizers import named
from tests.rows import table


@table(
    product(
        NAMES,
        [
            ("É" * (SIZE // 2)).encode(),
            ("ΔΣ\u0301" * (SIZE // 6)).encode(),
            ("Σ" + "\u0301" * (SIZE // 2)).encode(),
            ("\u3000" * (SIZE // 3) + "É").encode(),
            ("É" + "\u3000" * (SIZE // 3)).encode(),
            b"a" * SIZE + b"\xff",
            b"\xff" + b"a" * SIZE + b"\0",
        ],
    )
)
def test_no_call_takes_more_than_a_piece(name: Normalization, key: bytes) -> None:
    """No method of a text or of bytes gets more than a piece: such a call never gives up the GIL."""
    expected = outcome(lambda: named(name).of_key(key))
    longest = 0

    def noted(_frame: object, event: str, called: Any) -> None:
        nonlocal longest
        owner = getattr(called, "__self__", None)
        if event == "c_call" and isinstance(owner, str | bytes):
            longest = max(longest, len(owner))

    named(name).of_column(Column.of([b"\xc3\x89"]))  # loads the kernels
    keys = Column.of([b"short", key])
    sys.setprofile(noted)
    try:
        (_, found), reasons = named(name).of_column(keys)
    finally:
        sys.setprofile(None)
    assert longest <= long_text.TEXT_PIECE_BYTES + 2 < 2 * LONG_BYTES
    assert (found, {row - 1: why for row, why in reasons.items() if row}) == expected
