"""Claims about the watch for keys that come in two partitions."""

from functools import cache
from itertools import count

import numpy as np
import pytest

from streamdedup.delivery.cross_partition import ROWS_MAX, Watch
from streamdedup.events import Column, Verdict
from streamdedup.keys import sampling
from streamdedup.keys.hashing import MURMUR3, Hash
from streamdedup.keys.sampling import sampled

KEYS = [f"key {number}".encode() for number in range(500_000)]


@cache
def all_sampled() -> list[bytes]:
    """Those of KEYS that are sampled."""
    return [KEYS[row] for row in sampled(Column.of(KEYS), len(KEYS))]


def keys(numbers: list[int]) -> Column:
    """Sampled keys, by their numbers."""
    return Column.of([all_sampled()[number] for number in numbers])


def verdicts(*given: Verdict) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """As a column."""
    return np.array(given, dtype=np.uint8)


def test_a_key_in_two_partitions_is_noticed() -> None:
    """Passed here, passed there: a duplicate that nobody saw; its share is estimated from those that were seen."""
    watch = Watch()
    watch.look(0, keys([1, 2, 3, 1]), verdicts(*[Verdict.PASS] * 3, Verdict.DUPLICATE))
    assert watch.unseen_share == 0
    watch.look(1, keys([2, 4]), verdicts(Verdict.PASS, Verdict.PASS))
    assert (watch.unseen, watch.seen) == (1, 1)
    assert watch.unseen_share == 0.5


def test_what_one_partition_sees_again_is_none() -> None:
    """An event that was taken back and decided anew passes twice, in its own partition."""
    watch = Watch()
    for _ in range(2):
        watch.look(3, keys([1, 2]), verdicts(Verdict.PASS, Verdict.PASS))
    assert watch.unseen == 0


def test_only_a_sample_is_kept_and_it_is_bounded() -> None:
    """One key in 4,096, by its bytes; the oldest leave first."""
    assert len(all_sampled()) == pytest.approx(len(KEYS) / 4096, rel=0.3)
    unsampled = Column.of([next(key for key in KEYS if key not in all_sampled())])
    watch = Watch(kept_max=10)
    watch.look(0, unsampled, verdicts(Verdict.PASS))
    watch.look(1, unsampled, verdicts(Verdict.PASS))
    assert watch.unseen == 0
    watch.look(0, keys(list(range(50))), verdicts(*[Verdict.PASS] * 50))
    watch.look(1, keys([40, 49, 39]), verdicts(*[Verdict.PASS] * 3))
    assert watch.unseen == 2


def test_keys_that_somebody_chose_buy_no_more_than_a_few_digests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch of sampled keys alone costs ROWS_MAX digests, and a long key none."""
    hashed: list[int] = []
    of_column = Hash.of_column

    def counting(self: Hash, column: Column) -> object:
        hashed.append(len(column))
        return of_column(self, column)

    monkeypatch.setattr(Hash, "of_column", counting)
    watch, chosen = Watch(), all_sampled() * 10
    watch.look(0, Column.of(chosen), verdicts(*[Verdict.PASS] * len(chosen)))
    assert hashed == [ROWS_MAX]
    long = (b"%d" % number + bytes(sampling.SIZE_MAX) for number in count())
    for _ in range(8):
        batch = Column.of([next(long) for _ in range(2048)])
        watch.look(0, batch, verdicts(*[Verdict.PASS] * 2048))
    assert hashed == [ROWS_MAX]


def test_shards_with_secrets_of_their_own_are_compared() -> None:
    """The watch hashes by one hash for all, whatever those of the shards are."""
    for common in (MURMUR3, Hash("siphash", bytes(16))):
        watch = Watch()
        watch.hash = common
        for partition in (0, 1):
            watch.look(partition, keys([1, 2, 3]), verdicts(*[Verdict.PASS] * 3))
        assert watch.unseen == 3


@pytest.mark.parametrize("size", [*range(18), 100, sampling.SIZE_MAX])
def test_only_the_bytes_of_a_key_decide(size: int) -> None:
    """Whatever lies around it, and wherever in the buffer it is, a key is sampled or not."""
    chance = np.random.default_rng(size)
    rows = [chance.bytes(size) for _ in range(20_000 if size < 200 else 2_000)]
    apart = sampled(Column.of([cell for key in rows for cell in (b"around", key)]), len(rows))
    alone = sampled(Column.of(rows), len(rows))
    assert [row // 2 for row in apart.tolist() if row % 2] == alone.tolist()


def test_nulls_and_rows_out_of_bounds_are_passed_over() -> None:
    """The kernel reads only what lies in the buffer."""
    column = Column(b"ab", np.array([0, 1, -1, 0, 2**62]), np.array([-1, 2, 1, 3, 2**62]))
    assert len(sampled(column, 5)) == 0
    assert len(sampled(Column(b"", np.zeros(0, np.int64), np.zeros(0, np.int64)), 5)) == 0
