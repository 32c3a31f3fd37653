"""Claims about the secret bits of a digest: nobody chooses digests that share them."""

import random

import numpy as np

from streamdedup.keys.multilinear import drawn_words
from tests.chosen import CHOSEN
from tests.keys.test_multilinear import bits_of
from tests.rows import table


@table(CHOSEN)
def test_chosen_digests_share_their_bits_as_seldom_as_others(name: str) -> None:
    """Each pair does with 2^-32: of 20 tables with 20,000 digests each, one pair is expected."""
    digests, pairs = CHOSEN[name], 0
    source = random.Random(61).randbytes
    for _ in range(20):
        bits = bits_of(drawn_words(source), digests)
        pairs += len(bits) - len(np.unique(bits))
    assert pairs <= 7  # of a Poisson number with mean 0.93, more come with 1 in 10^5
