"""Claims about keys of megabytes: they are normalized as short ones are, and the GIL is never held for long."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers import base, long_text
from streamdedup.keys.normalizers.base import NO_TEXT, NOT_UTF8
from streamdedup.keys.normalizers.email import TOO_LONG
from streamdedup.keys.options import Normalization
from tests.keys.test_normalizers import BLANKS, named

NAMES: list[Normalization] = ["trim", "lowercase", "email", "url"]
SIZE = 4 << 20
# Sigmas, marks that do not count in a word, letters, white space, and what becomes longer in lowercase.
WORDS = "ΣΣΣ\u0301\u0301'.aΔ-1İ 🦉" + BLANKS[-2:]
texts = st.text(st.sampled_from(WORDS), max_size=30)


def outcome(call: Callable[[], Any]) -> Any:
    """What `call` returns, or why it does not."""
    try:
        return call(), {}
    except MalformedError as reason:
        return None, {0: str(reason)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("piece_bytes", [1, 2, 5])
@given(key=texts.map(str.encode) | st.binary(max_size=12))
@settings(deadline=None)  # compiled within
@example(key="ΔΣ\u0301\u0301\u0301\u0301".encode())
@example(key="ΔΣ\u0301\u0301\u0301\u0301a".encode())
@example(key="ΔΣ\u0301\u0301\u0301\u0301 a".encode())
@example(key="\u0301Σ".encode())
@example(key=b"\xffabc\0")
@example(key=b"\0\0\0\0\x07\xff")
@example(key="  anna@exämple.org \u3000".encode())
@example(key="\x01 http://exämple.org/ x\n ".encode())
def test_piece_by_piece_it_is_the_same(name: Normalization, piece_bytes: int, key: bytes) -> None:
    """Wherever a text is cut, its key and the reason why there is none are those of the whole text."""
    with ExitStack() as patched:
        patched.enter_context(patch.object(base, "LONG_BYTES", 0))
        patched.enter_context(patch.object(long_text, "TEXT_PIECE_BYTES", piece_bytes))
        (found,), reasons = named(name).of_column(Column.of([key]))
    assert (found, reasons) == outcome(lambda: named(name).of_key(key))


def test_the_reasons_of_long_keys() -> None:
    """They are those of short ones, and hold nothing of the key."""
    keys = Column.of([b"\xff" * SIZE, b"a" * SIZE + b"\0\xff", ("É" * SIZE).encode()])
    _, reasons = named("email").of_column(keys)
    assert reasons == {0: NOT_UTF8, 1: NO_TEXT, 2: TOO_LONG}
