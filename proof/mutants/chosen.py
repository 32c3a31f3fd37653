"""Promises against those who choose keys, broken."""

import numpy as np

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.delivery.lifecycle import Delivery
from streamdedup.filters.strain import chosen_keys
from streamdedup.kernel import Words
from streamdedup.keys.hashing import Hash
from streamdedup.keys.multilinear import drawn_words

MUTANTS = (
    Mutant(
        "places-not-drawn",
        "nobody chooses the places of what waits for its commit",
        lambda: replaced(drawn_words, _known_words),
        ("test_chosen_digests_that_wait_take_no_more_work_than_others",),
    ),
    Mutant(
        "chosen-keys-are-a-doubt",
        "a refused key stops its partition by name: every fold would meet it again",
        lambda: replaced(chosen_keys, _an_accident),
        ("test_a_refused_key_stops_the_shard_by_name",),
    ),
    Mutant(
        "strain-not-said",
        "there is a warning before a partition stops for chosen keys",
        lambda: replaced(Delivery._warn_strained, lambda *_: None),
        ("test_half_of_that_is_said_once",),
    ),
)


def _known_words(*_: object) -> Words:
    return np.zeros(5, dtype=np.uint64)


def _an_accident(_kind: str, _hash: Hash) -> Exception:
    return RuntimeError("refused")
