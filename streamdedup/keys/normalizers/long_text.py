"""Long texts, read piece by piece: on 100 MB, `str.lower` would hold the GIL for half a second, even in a thread.

The results are those of Python's `str` methods on the whole text. White space and capitals are matters of single
characters, except for the capital sigma, which becomes another letter at the end of a word. The word may go on in a
later piece, after any number of marks that do not count.
"""

import codecs
from collections.abc import Iterable, Iterator

import numpy as np

from streamdedup.errors import MalformedError
from streamdedup.keys.normalizers.base import no_text, not_utf8

TEXT_PIECE_BYTES = 1 << 16  # takes less than 1 ms
_SIGMA, _FINAL_SIGMA = "Σ", "ς"
# A character that a word may begin with, and one that ends it; `lower` changes neither.
_LETTER, _NO_LETTER = "a", " "


def texts_of(key: memoryview) -> Iterator[str]:
    """Yield the text of a key in pieces. Raises MalformedError where `base.text_of` does."""
    if not np.frombuffer(key, dtype=np.uint8).all():
        raise MalformedError(no_text(key))
    decode = codecs.getincrementaldecoder("utf-8")().decode
    for at in range(0, len(key), TEXT_PIECE_BYTES):
        is_last = at + TEXT_PIECE_BYTES >= len(key)
        try:
            yield decode(bytes(key[at : at + TEXT_PIECE_BYTES]), is_last)
        except UnicodeDecodeError:
            raise MalformedError(not_utf8(key)) from None


def stripped(pieces: Iterable[str], characters: str | None = None) -> Iterator[str]:
    """Yield the pieces of `str.strip` of the whole text; of white space if no `characters` are given."""
    blanks, begun = list[str](), False  # what ends the text, unless more follows
    for whole in pieces:
        piece = whole if begun else whole.lstrip(characters)
        kept = piece.rstrip(characters)
        if kept:
            yield from blanks
            yield kept
            blanks, begun = [], True
        if begun:
            blanks.append(piece[len(kept) :])


def lowered(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of `str.lower` of the whole text.

    `before` stands for all pieces that came: whether the last character that counts is a letter. `waiting` are pieces
    from the last sigma on, each as it is if the text ends here, and as it is if a letter follows.
    """
    before, waiting = _NO_LETTER, list[tuple[str, str]]()
    for piece in pieces:
        if waiting and (at := _word_ends(piece)) is not None:
            yield from (readings[at] for readings in waiting)
            waiting = []
        followed = (before + piece + _SIGMA).lower()
        ends = (before + piece).lower()[1:] if _SIGMA in piece else followed[1:-1]
        if waiting or ends != followed[1:-1]:
            waiting.append((ends, followed[1:-1]))
        else:
            yield ends
        before = _LETTER if followed[-1] == _FINAL_SIGMA else _NO_LETTER
    yield from (ends for ends, _ in waiting)


def _word_ends(piece: str) -> int | None:
    """Return 0 if a word before `piece` ends there, 1 if it goes on, None if nothing in `piece` decides it."""
    alone = (_LETTER + _SIGMA + piece).lower()[1]
    followed = (_LETTER + _SIGMA + piece + _LETTER).lower()[1]
    return None if alone != followed else int(alone != _FINAL_SIGMA)
