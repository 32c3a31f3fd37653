"""What a worker does around a shard, on the loop: it makes the digests, and asks the lists before the shard decides."""

from collections.abc import Iterator, Sequence

import numpy as np

from streamdedup.delivery.shard import Decided, Shard, verdicts_without_rules
from streamdedup.events import Column, Integers
from streamdedup.keys.extract import Keys
from streamdedup.rules.lists import NO_LISTS, Lists


def decided(
    shard: Shard,
    keys: Keys,
    times: Integers,
    rejected: Sequence[int] = (),
    lists: Lists = NO_LISTS,
) -> Decided:
    """Decide the events of these keys and times, of which the output would refuse the rows `rejected`."""
    verdicts, rows = verdicts_without_rules(keys, rejected)
    judged, hash_ = keys.keys.take(rows), shard.filter.hash
    digests = hash_.of_column(judged)
    blocked = lists.screen(rows, judged, digests, hash_)
    return shard.decide(verdicts, rows, digests, times, blocked)


def folded(shard: Shard, keys: Column, times: Integers, label: int) -> Iterator[None]:
    """Fold the events of these keys and times below `label`; those without a key are left out."""
    rows = np.flatnonzero(keys.sizes >= 0)
    return shard.fold(shard.filter.hash.of_column(keys.take(rows)), times[rows], label)
