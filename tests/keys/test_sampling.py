"""Claims about the sample of keys: what belongs to it, what it knows, what it costs."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from streamdedup.events import Column, Verdict, Verdicts
from streamdedup.keys import sampling
from streamdedup.keys.hashing import MURMUR3, Hash
from streamdedup.keys.sampling import AGAIN, ELSEWHERE, NEW, Sample
from streamdedup.keys.words import BYTES_A_CALL


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


def test_within_one_batch_the_share_is_halved_too() -> None:
    """What left the sample while its batch was looked at is not returned."""
    sample = Sample(100)
    column = keys(range(100_000))
    looked = sample.look(0, column, passing(column))
    assert 20 <= sample.kept <= 100  # just after a halving about half are left, by chance
    assert len(looked.rows) == sample.kept
    again = sample.look(0, column, passing(column))
    assert again.rows.tolist() == looked.rows.tolist()
    assert set(again.places.tolist()) == {AGAIN}


def test_a_key_is_known_in_each_of_its_partitions() -> None:
    """What comes again in any partition that had it is no news; partitions above 64 are others than those below."""
    sample = Sample(10)
    one = keys([1])
    assert [places(sample, partition, one)[0] for partition in (70, 6, 9, 6, 70, 9)] == [
        NEW, ELSEWHERE, ELSEWHERE, AGAIN, AGAIN, AGAIN,
    ]  # fmt: skip
    assert sample.in_several == 1


@pytest.mark.parametrize("size", [*range(40), 100, sampling.SIZE_MAX])
def test_only_the_bytes_of_a_key_decide(size: int) -> None:
    """Whatever lies around it, and wherever in the buffer it is, a key is known again, and no other is."""
    chance = np.random.default_rng(size)
    rows = list(dict.fromkeys(chance.bytes(size) for _ in range(500)))
    sample = Sample(1000)
    assert places(sample, 0, Column.of(rows)) == [NEW] * len(rows)
    apart = Column.of([cell for key in rows for cell in (b"around", key)])
    assert places(sample, 0, apart.take(slice(1, None, 2))) == [AGAIN] * len(rows)
    changed = [bytes([key[0] ^ 1]) + key[1:] for key in rows if size > 2]
    new = [key not in rows for key in changed]
    assert places(sample, 0, Column.of(changed)) == [NEW if each else AGAIN for each in new]


def test_a_change_of_any_byte_makes_another_key() -> None:
    """Keys that differ in one byte only, wherever that is, are not sampled alike."""
    for size in (7, 8, 15, 16, 17, 24, 33, 64, 100, 333):
        rows = [bytes(at) + b"x" + bytes(size - at - 1) for at in range(size)]
        assert places(Sample(1000), 0, Column.of(rows)) == [NEW] * size


def test_nobody_knows_what_is_sampled() -> None:
    """Two samples take different keys: those that stay out of one are in another."""
    column, taken = keys(range(5000)), set[tuple[int, ...]]()
    for _ in range(3):
        looked = Sample(100).look(0, column, passing(column))
        taken.add(tuple(looked.rows.tolist()))
    assert len(taken) == 3


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


def test_what_a_batch_costs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of long keys, only so many bytes are digested; of keys that are known already, none."""
    hashed: list[int] = []
    of_column = Hash.of_column

    def counting(self: Hash, column: Column) -> object:
        hashed.append(int(column.sizes.sum()))
        return of_column(self, column)

    monkeypatch.setattr(Hash, "of_column", counting)
    sample = Sample()
    batch = Column.of(list(_long(4000)))
    for _ in range(3):
        sample.look(0, batch, passing(batch), None, MURMUR3)
    assert hashed == [BYTES_A_CALL // sampling.SIZE_MAX * sampling.SIZE_MAX]


def _long(most: int) -> Iterator[bytes]:
    for number in count():
        if number == most:
            return
        yield b"%d" % number + bytes(sampling.SIZE_MAX - len(b"%d" % number))


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
