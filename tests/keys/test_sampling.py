"""Claims about the sample of keys: what belongs to it, what it knows, what it costs."""

import numpy as np
import pytest

from streamdedup.events import Column, Verdict, Verdicts
from streamdedup.keys import sampling
from streamdedup.keys.sampling import AGAIN, ELSEWHERE, NEW, Sample


def keys(numbers: range | list[int]) -> Column:
    """Make the keys of `numbers`."""
    return Column.of([b"key %d" % number for number in numbers])


def passing(column: Column) -> Verdicts:
    """Make as many verdicts."""
    return np.full(len(column), Verdict.PASS, dtype=np.uint8)


def places(sample: Sample, partition: int, column: Column) -> list[int]:
    """Return what the sample knew, of a small one in which every row is sampled."""
    looked = sample.look(partition, column, passing(column))
    assert looked.rows.tolist() == list(range(len(column)))
    return [int(place) for place in looked.places]


def test_few_keys_are_sampled_in_full() -> None:
    """Up to the bound nothing is left out, whatever the keys, and each is known by its partitions."""
    sample = Sample(1000)
    assert places(sample, 3, keys(range(1000))) == [NEW] * 1000
    assert (sample.kept, sample.halvings, sample.in_several) == (1000, 0, 0)
    assert places(sample, 3, keys(range(1000))) == [AGAIN] * 1000
    assert places(sample, 5, keys(range(300))) == [ELSEWHERE] * 300
    assert (sample.kept, sample.halvings, sample.in_several) == (1000, 0, 300)


def test_more_keys_halve_the_share_and_nothing_sampled_is_forgotten() -> None:
    """The bound holds; of what is still sampled, each key is known, however long ago it came."""
    sample = Sample(1000)
    for start in range(0, 20_000, 500):
        column = keys(range(start, start + 500))
        sample.look(0, column, passing(column))
        assert sample.kept <= 1000
    assert sample.halvings in (4, 5, 6)
    everything = keys(range(20_000))
    looked = sample.look(1, everything, passing(everything))
    assert len(looked.rows) == sample.kept == sample.in_several
    assert set(looked.places.tolist()) == {ELSEWHERE}
    assert sample.kept == pytest.approx(20_000 / 2**sample.halvings, rel=0.2)


def test_a_key_is_known_in_each_of_its_partitions() -> None:
    """What comes again in any partition that had it is no news; partitions above 64 are others than those below."""
    sample = Sample(10)
    one = keys([1])
    assert [places(sample, partition, one)[0] for partition in (70, 6, 9, 6, 70, 9)] == [
        NEW, ELSEWHERE, ELSEWHERE, AGAIN, AGAIN, AGAIN,
    ]  # fmt: skip
    assert sample.in_several == 1


def test_only_what_was_judged_is_sampled() -> None:
    """Nulls, rows out of bounds, long keys and verdicts of other rules are passed over."""
    sample = Sample(10)
    column = Column(b"ab", np.array([0, 1, -1, 0, 2**62]), np.array([-1, 2, 1, 3, 2**62]))
    assert len(sample.look(0, column, passing(column)).rows) == 0
    none = Column(b"", np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert len(sample.look(0, none, passing(none)).rows) == 0
    long = Column.of([bytes(sampling.SIZE_MAX + 1)])
    assert len(sample.look(0, long, passing(long)).rows) == 0
    verdicts = np.array([*Verdict], dtype=np.uint8)
    looked = sample.look(0, keys(range(100)), verdicts)
    assert looked.rows.tolist() == [Verdict.PASS, Verdict.DUPLICATE]


def test_record_keys_are_compared() -> None:
    """Events without one are counted, and keys that come under several, each once, in whatever partition."""
    sample = Sample(100)

    def look(partition: int, *pairs: tuple[bytes, bytes | None]) -> tuple[int, int]:
        column = Column.of([key for key, _ in pairs])
        records = Column.of([record for _, record in pairs])
        sample.look(partition, column, passing(column), records)
        return sample.without_record_key, sample.under_several

    assert look(0, (b"a", b"r"), (b"b", b"r"), (b"a", b"r")) == (0, 0)
    assert look(1, (b"a", b"r")) == (0, 0)
    assert look(0, (b"c", b"r"), (b"c", b"s"), (b"c", b"t")) == (0, 1)
    assert look(1, (b"b", b"s")) == (0, 2)
    assert look(0, (b"d", None), (b"d", None)) == (2, 2)
    assert look(0, (b"d", b"")) == (2, 3)
    column = keys([77, 77])
    sample.look(0, column, passing(column))
    assert (sample.without_record_key, sample.under_several) == (2, 3)
