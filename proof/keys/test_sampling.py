"""Claims about the sample of keys: which bytes decide, of keys of each size, and that the share is halved."""

import numpy as np
import pytest

from streamdedup.events import Column
from streamdedup.keys import sampling
from streamdedup.keys.hashing import MURMUR3, Hash
from streamdedup.keys.sampling import AGAIN, NEW, Sample
from streamdedup.keys.words import BYTES_A_CALL
from tests.keys.test_sampling import keys, passing, places
from tests.rows import table


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


@table([*range(40), 100, sampling.SIZE_MAX])
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


def test_what_a_batch_costs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of long keys, only so many bytes are digested; of keys that are known already, none."""
    hashed: list[int] = []
    of_column = Hash.of_column

    def counting(self: Hash, column: Column) -> object:
        hashed.append(int(column.sizes.sum()))
        return of_column(self, column)

    monkeypatch.setattr(Hash, "of_column", counting)
    sample = Sample()
    keys_of_the_most = [b"%0*d" % (sampling.SIZE_MAX, number) for number in range(4000)]
    batch = Column.of(keys_of_the_most)
    for _ in range(3):
        sample.look(0, batch, passing(batch), None, MURMUR3)
    assert hashed == [BYTES_A_CALL // sampling.SIZE_MAX * sampling.SIZE_MAX]
