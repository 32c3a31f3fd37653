"""A sample of a stream: how many of its lines are new, duplicates or malformed, in bounded memory and one pass."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdedup.commands.lines import LineSource, digests_of_lines, key_reader, texts
from streamdedup.errors import ConfigError
from streamdedup.keys.hashing import MURMUR3
from streamdedup.keys.options import Normalization

LOG2_REGISTERS = 18  # 256 KiB, and a standard error of 0.16 %; a few keys are counted exactly
DEVIATIONS = 2  # of the bounds: 95 %


@dataclass(frozen=True)
class Sample:
    """Lines by what they are. `distinct` keys are an estimate, and lie between `low` and `high` with 95 %."""

    lines: int
    malformed: int
    distinct: int
    distinct_low: int
    distinct_high: int

    @property
    def duplicates(self) -> int:
        """The lines whose key came before."""
        return self.lines - self.malformed - self.distinct

    @property
    def new_share(self) -> float:
        """The share of all lines that bring a new key."""
        return self.distinct / self.lines


def read(source: LineSource, keys: Sequence[str], normalize: Normalization = "none") -> Sample:
    """Count `source` to its end; `keys` and `normalize` as for `pipe`. ConfigError where no line has one."""
    sketch, take = _sketch(), key_reader(keys, normalize)
    count = keyed = 0
    reason = ""
    for text, _ in texts(source):
        found = digests_of_lines(text, take, MURMUR3)
        hashes = found.digests[:, 0].view(np.int64).tolist()
        deque(map(sketch.update, hashes), maxlen=0)  # at the speed of C
        count, keyed, reason = count + len(found.rows), keyed + len(hashes), reason or found.reason
    if not count:
        raise ConfigError(
            "--sample has no lines; give it some, as in: kcat -C -e ... | streamdedup plan --sample -"
        )
    if not keyed:
        raise ConfigError(f"--sample: no line had the key; in the first, {reason}; check --key")
    estimates = sketch.get_lower_bound(DEVIATIONS), sketch.get_upper_bound(DEVIATIONS)
    low, high = (min(max(1, round(estimate)), keyed) for estimate in estimates)
    distinct = min(max(low, round(sketch.get_estimate())), high)
    return Sample(count, count - keyed, distinct, low, high)


def _sketch() -> Any:  # noqa: ANN401 - datasketches has no types
    try:
        from datasketches import hll_sketch, tgt_hll_type
    except ImportError:
        raise ConfigError(
            "--sample counts with the package datasketches, which is not installed; run: pip install datasketches"
        ) from None
    return hll_sketch(LOG2_REGISTERS, tgt_hll_type.HLL_8)
