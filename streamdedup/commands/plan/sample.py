"""A sample of a stream: how many of its lines are new, duplicate or malformed, in bounded memory and one pass."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdedup.commands.lines import LineReader, LineSource, digests_of
from streamdedup.commands.plan.frequent import Frequent
from streamdedup.errors import ConfigError
from streamdedup.keys.hashing import MURMUR3

# 256 KiB, and a standard error of 0.16 %; small numbers of keys are counted exactly.
LOG2_REGISTERS = 18
DEVIATIONS = 2  # the bounds are this many standard deviations away: 95 %


@dataclass(frozen=True)
class Sample:
    """Numbers of lines. `distinct`, the number of keys, is an estimate, with 95 % between `low` and `high`.

    `most_frequent` lines, or up to 0.1 % more, have the most frequent key, and `empty` ones the empty key.
    """

    lines: int
    malformed: int
    distinct: int
    distinct_low: int
    distinct_high: int
    most_frequent: int = 0
    empty: int = 0

    @property
    def duplicates(self) -> int:
        """The lines whose key came before."""
        return self.lines - self.malformed - self.distinct

    @property
    def new_share(self) -> float:
        """The share of all lines that bring a new key."""
        return self.distinct / self.lines


def read(source: LineSource, read_lines: LineReader) -> Sample:
    """Count the lines of `source` to its end. ConfigError if none of them has a key."""
    sketch = _sketch()
    frequent, empty_digest = Frequent(), np.array(MURMUR3.digest(b""), np.uint64)
    count = keyed = empty = 0
    reason = ""
    for chunk in read_lines(source):
        if chunk.is_header:
            continue
        found = digests_of(chunk, MURMUR3)
        words = np.ascontiguousarray(found.digests[:, 0])
        hashes = words.view(np.int64).tolist()
        deque(map(sketch.update, hashes), maxlen=0)  # at the speed of C
        frequent.add(words)
        empty += int(np.count_nonzero((found.digests == empty_digest).all(axis=1)))
        count, keyed = count + len(found.rows), keyed + len(hashes)
        reason = reason or next(iter(chunk.malformed.values()), "")
    if not count:
        raise ConfigError(
            "--sample has no lines; give it some, for example: kcat -C -e ... | streamdedup plan --sample -"
        )
    if not keyed:
        raise ConfigError(f"--sample: no line had the key; in the first, {reason}; check --key")
    estimates = sketch.get_lower_bound(DEVIATIONS), sketch.get_upper_bound(DEVIATIONS)
    low, high = (min(max(1, round(estimate)), keyed) for estimate in estimates)
    distinct = min(max(low, round(sketch.get_estimate())), high)
    return Sample(count, count - keyed, distinct, low, high, frequent.most, empty)


def _sketch() -> Any:  # noqa: ANN401 - datasketches has no types
    try:
        from datasketches import hll_sketch, tgt_hll_type
    except ImportError:
        raise ConfigError(
            "--sample counts with the package datasketches, which is not installed; run: pip install datasketches"
        ) from None
    return hll_sketch(LOG2_REGISTERS, tgt_hll_type.HLL_8)
