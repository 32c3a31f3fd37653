"""Claims about normalization: the kernels do to ASCII what Python does, and to nothing else anything."""

from itertools import product
from typing import get_args
from unicodedata import unidata_version
from zlib import crc32

import numpy as np
import pytest
from idna import idnadata

import streamdedup
from streamdedup.keys.hashing import Hash
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import Normalization
from tests.keys.test_normalizers import named
from tests.rows import table


def test_an_identity_says_what_was_done_and_by_which_unicode() -> None:
    """A snapshot of another normalization is not used, nor one by a Unicode that knows other letters."""
    ids = {
        name: named(name).id
        for name in get_args(Normalization)
        if name not in {"none", "email", "url"}
    }
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    blanks = {character for character in every if not character.strip()}
    kept = every.translate(dict.fromkeys(map(ord, blanks)))
    assert ids == {
        "trim": f"trim 1, CRC-32 {crc32(kept.encode()):08x}",
        "lowercase": f"lowercase 1, CRC-32 {crc32(kept.lower().encode()):08x}",
    }
    assert (
        f"CRC-32 {crc32(kept.lower().encode()):08x}, IDNA {idnadata.__version__}"
        in named("email").id
    )
    assert named("url").id == f"url/1, Unicode {unidata_version}"
    assert normalizer("none") is None


@table(
    product(
        [[3, 0], [0, 3, 2, 3], [0, 99], [-2, 1], [-(1 << 63), 2], [(1 << 63) - 1, 1 << 62]],
        ["trim", "lowercase", "email", "url"],
    )
)
def test_offsets_outside_of_the_buffer_are_refused(offsets: list[int], name: str) -> None:
    """As by `digests`: no row is left out without a word."""
    made = streamdedup.normalizer(name)
    for call in (made.column, Hash().digests):
        with pytest.raises(ValueError, match=r"row \d (is not within|lies from)"):
            call((b"a@b.example", np.array(offsets, dtype=np.int64)))
