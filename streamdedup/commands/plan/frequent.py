"""The most frequent of many words in bounded memory: the summary of Misra and Gries, merged batch by batch.

Agarwal et al., "Mergeable Summaries" (PODS 2012): with K counters a count is too low by at most n / (K + 1).
"""

import numpy as np

from streamdedup.events import Integers
from streamdedup.kernel import Words

COUNTERS = 1024  # so a share is too low by at most 0.1 %


class Frequent:
    """Counts words (n,) of uint64."""

    def __init__(self) -> None:
        self._words: Words = np.empty(0, np.uint64)
        self._counts: Integers = np.empty(0, np.int64)

    def add(self, words: Words) -> None:
        """Count `words`."""
        given = np.concatenate((self._words, words))
        weights = np.concatenate((self._counts, np.ones(len(words), np.int64)))
        distinct, places = np.unique(given, return_inverse=True)
        counts = np.bincount(places, weights, len(distinct)).astype(np.int64)
        if len(counts) > COUNTERS:
            counts -= np.partition(counts, -COUNTERS - 1)[-COUNTERS - 1]
        kept = counts > 0
        self._words, self._counts = distinct[kept], counts[kept]

    @property
    def most(self) -> int:
        """How often the most frequent word came, at least."""
        return int(self._counts.max(initial=0))
