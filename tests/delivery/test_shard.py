"""Claims about one partition's decisions: what passes, what waits, what is in the filter, and from where on it is not.

The model is a set of the keys that were admitted and a list of those that wait.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamdedup.delivery.shard import Shard
from streamdedup.events import Column, Verdict, Verdicts
from streamdedup.filters import build
from streamdedup.filters.base import Mask
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.keys.extract import Keys
from streamdedup.keys.hashing import Digests, Hash, digests
from streamdedup.metrics.counts import Tally
from tests.delivery.deciding import decided, folded

PASS, DUPLICATE, BLOCKED, MALFORMED, REJECTED = Verdict
CAPACITY = 1000

# A row is a key, or what stands in its place.
TOMBSTONE, DROPPED, BROKEN = "tombstone", "dropped", "broken"
Row = bytes | str

names = st.sampled_from([b"", b"a", b"b", b"c", b"d", b"e"])
odd = st.sampled_from([TOMBSTONE, DROPPED, BROKEN])
rows = st.lists(names | odd, max_size=12)
rejections = st.sets(st.integers(0, 11), max_size=3)


def keys_of(batch: Sequence[Row]) -> Keys:
    """The batch as extraction gives it."""
    where = {kind: [i for i, row in enumerate(batch) if row == kind] for kind in _KINDS}
    return Keys(
        Column.of([row if isinstance(row, bytes) else None for row in batch]),
        dict.fromkeys(where[BROKEN], "the value is not valid JSON"),
        where[TOMBSTONE],
        where[DROPPED],
    )


_KINDS = (TOMBSTONE, DROPPED, BROKEN)


def shard_of(capacity: int = CAPACITY, *, stop_when_full: bool = True) -> Shard:
    """An empty shard with hardly any false positives."""
    return Shard(3, Bloom(capacity, 1e-9), stop_when_full=stop_when_full)


def decide(shard: Shard, batch: Sequence[Row], rejected: Sequence[int] = ()) -> Verdicts:
    """The verdicts on a batch of no particular time."""
    times = np.zeros(len(batch), dtype=np.int64)
    return decided(shard, keys_of(batch), times, rejected).verdicts


def admit(shard: Shard, label: int) -> None:
    """Admit what waits, at once."""
    for _ in shard.admit(label):
        assert shard.moving
    assert not shard.moving


def fold(shard: Shard, batch: Sequence[Row], label: int) -> None:
    """Fold a batch of no particular time, at once."""
    for _ in folded(shard, keys_of(batch).keys, np.zeros(len(batch), dtype=np.int64), label):
        assert shard.moving


def contents(shard: Shard) -> tuple[bytes, int]:
    """All that a filter is."""
    return bytes(shard.filter.buffers()[0]), len(shard.filter)


def holds(shard: Shard, key: bytes) -> bool:
    """Whether the filter itself has the key."""
    return bool(shard.filter.contains_many(digests([key]))[0])


# --- verdicts ---


@pytest.mark.parametrize("hash_", [Hash("siphash", bytes(range(16))), Hash()], ids=lambda h: h.name)
def test_digests_are_made_by_the_filters_own_hash(hash_: Hash) -> None:
    """What is decided, admitted and folded is found in the filter by its own hash, and by no other."""
    seen = Bloom(CAPACITY, 1e-9, hash_=hash_)
    shard = Shard(3, seen, stop_when_full=True)
    assert decide(shard, [b"a", BROKEN, b"a"]).tolist() == [PASS, MALFORMED, DUPLICATE]
    admit(shard, 2)
    fold(shard, [TOMBSTONE, b"b"], 5)
    assert decide(shard, [b"b", b"a", b"c"]).tolist() == [DUPLICATE, DUPLICATE, PASS]
    assert seen.contains_many(hash_.digests([b"a", b"b", b"c"])).tolist() == [True, True, False]
    assert not seen.contains_many(Hash("siphash", bytes(16)).digests([b"a", b"b"])).any()


def test_a_duplicate_is_seen_before_its_first_is_committed() -> None:
    """Pending is consulted within a batch and between batches, while the filter knows nothing yet (invariant 2)."""
    shard = shard_of()
    assert decide(shard, [b"a", b"a"]).tolist() == [PASS, DUPLICATE]
    assert decide(shard, [b"b", b"a"]).tolist() == [PASS, DUPLICATE]
    assert decide(shard, [b"b", b"c", b"a"]).tolist() == [DUPLICATE, PASS, DUPLICATE]
    assert (shard.pending, len(shard.filter)) == (3, 0)
    assert not any(holds(shard, key) for key in (b"a", b"b", b"c"))


def test_transactions_are_admitted_in_their_order() -> None:
    """Of two that wait, the first goes into the filter with its own events counted; the second is still consulted."""
    shard = shard_of()
    decide(shard, [b"a", b"b"])
    shard.seal()
    decide(shard, [b"a", b"c"])
    shard.seal()
    decide(shard, [b"d"])
    admit(shard, 3)
    assert [holds(shard, key) for key in (b"a", b"b", b"c", b"d")] == [True, True, False, False]
    assert (shard.label, shard.pending, shard.tally.consumed) == (3, 2, 2)
    assert decide(shard, [b"b", b"c", b"d"]).tolist() == [DUPLICATE] * 3
    admit(shard, 5)
    assert (shard.pending, shard.tally.by_verdict.tolist()) == (1, [3, 1, 0, 0, 0])
    shard.forget()
    assert decide(shard, [b"c", b"d"]).tolist() == [DUPLICATE, PASS]
    assert shard.tally.consumed == 4


@pytest.mark.parametrize("unjudged", _KINDS)
def test_what_has_no_key_never_waits(unjudged: str) -> None:
    """Rows without a key enter neither pending nor the filter, not even as the empty key."""
    shard = shard_of()
    decide(shard, [unjudged] * 3)
    assert shard.pending == 0
    admit(shard, 5)
    assert len(shard.filter) == 0
    assert decide(shard, [b""]).tolist() == [PASS]


def test_what_is_rejected_never_waits() -> None:
    """A key whose event the output would not take is still new when it comes again (rule 8); the event is counted."""
    shard = shard_of()
    assert decide(shard, [b"a", b"a", b"a"], [0]).tolist() == [REJECTED, PASS, DUPLICATE]
    assert shard.pending == 1
    admit(shard, 1)
    assert shard.tally[Verdict.REJECTED] == 1


# --- capacity ---


def test_a_batch_is_cut_before_the_first_key_too_many() -> None:
    """At capacity, duplicates and rows without a key are still decided; the first new key and all after it are not."""
    shard = shard_of(3)
    assert not shard.full
    batch: list[Row] = [b"a", b"b", b"a", TOMBSTONE, b"c", b"b", BROKEN, b"d", b"a", TOMBSTONE]
    assert len(decide(shard, batch)) == 7
    assert shard.full
    assert shard.pending == 3
    assert len(decide(shard, [b"e"])) == 0
    admit(shard, 9)
    assert shard.full
    assert decide(shard, [b"c", BROKEN, b"d"]).tolist() == [DUPLICATE, MALFORMED]
    admit(shard, 9)
    assert shard.tally.by_verdict.tolist() == [4, 3, 0, 2, 0]


def test_a_doubt_gives_room_back() -> None:
    """Keys that only waited take no room once they are forgotten."""
    shard = shard_of(2)
    decide(shard, [b"a", b"b"])
    assert shard.full
    shard.forget()
    assert not shard.full
    assert len(decide(shard, [b"c", b"d", b"e"])) == 2


def test_a_fold_may_go_past_capacity() -> None:
    """What stands in the output is folded whatever the room; then nothing new is taken, and nothing crashes."""
    shard = shard_of(2)
    fold(shard, [b"a", b"b", b"c", b"d"], 4)
    assert shard.full
    assert decide(shard, [b"a", b"e"]).tolist() == [DUPLICATE]


# --- the fold ---


@pytest.mark.parametrize(
    "options",
    [{"kind": "bloom"}, {"kind": "cuckoo"}, {"kind": "counting", "multiset": True}],
    ids=lambda options: options["kind"],
)
def test_folding_again_from_an_earlier_label_does_no_harm(options: Mapping[str, object]) -> None:
    """A snapshot may hold keys beyond its label: folding over them changes nothing, also where keys are counted."""
    log = [b"%d" % i for i in range(50)]
    once, twice = (
        Shard(3, build({"capacity": 100, "error_rate": 1e-6, **options}), stop_when_full=True)
        for _ in range(2)
    )
    fold(once, log, 50)
    fold(twice, log, 50)
    fold(twice, log, 50)
    assert contents(twice) == contents(once)


# --- a shard's life against the model ---


class Watched(Bloom):
    """Tells what is going to be added before any bit is set."""

    def __init__(self) -> None:
        super().__init__(CAPACITY, 1e-9)
        self.before_adding: Callable[[], None] = lambda: None

    def add_many(self, digests: Digests) -> Mask:
        """Tell, then add."""
        self.before_adding()
        return super().add_many(digests)


@dataclass
class Log:
    """The model: the output, with None for a transaction's marker, and what the input's events became."""

    rows: list[Row | None] = field(default_factory=list)
    verdicts: list[int] = field(default_factory=list)

    def held(self) -> set[bytes]:
        """The keys that the output holds."""
        return {row for row in self.rows if isinstance(row, bytes)}


class Life(RuleBasedStateMachine):
    """Batches, commits, doubts and folds in any order, as delivery drives them."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.emitted: list[Row] = []
        self.verdicts: list[int] = []
        self.start(0)

    def start(self, label: int) -> None:
        """A new process with an empty filter."""
        self.seen = Watched()
        self.shard = Shard(0, self.seen, stop_when_full=True)
        self.reach, self.label_to_come = 0, label
        self.base = self.log.verdicts.copy()
        self.seen.before_adding = self.reach_is_ahead

    def reach_is_ahead(self) -> None:
        """Before a key is added, `end_label` is already at least the offset behind it."""
        assert self.shard.end_label >= self.label_to_come

    @rule(batch=rows, rejected=rejections)
    def decide(self, batch: list[Row], rejected: set[int]) -> None:
        """The verdicts are the model's: new where neither output, nor pending, nor the batch has the key."""
        rejected = {row for row in rejected if row < len(batch)}
        known = self.log.held() | {row for row in self.emitted if isinstance(row, bytes)}
        expected = []
        for at, row in enumerate(batch):
            verdict = _BY_ROW.get(row, PASS) if isinstance(row, str) else PASS
            if at in rejected:
                verdict = REJECTED
            elif isinstance(row, bytes):
                verdict = DUPLICATE if row in known else PASS
                known.add(row)
            expected.append(verdict)
        assert decide(self.shard, batch, sorted(rejected)).tolist() == expected
        self.emitted += [row for row, v in zip(batch, expected, strict=True) if v == PASS]
        self.verdicts += expected

    @rule(known_to_us=st.booleans())
    def commit(self, known_to_us: bool) -> None:
        """The transaction reaches the output; whether we hear of it is another matter: then it is folded."""
        if self.emitted:
            self.log.rows += [*self.emitted, None]
        if known_to_us:
            self.label_to_come = len(self.log.rows)
            admit(self.shard, self.label_to_come)
            self.log.verdicts += self.verdicts
        else:
            self.shard.forget()
            self.fold(2)
        self.emitted, self.verdicts = [], []

    @rule(step=st.integers(1, 5))
    def doubt(self, step: int) -> None:
        """What was not committed is taken back; the output is folded from the label on."""
        self.shard.forget()
        self.emitted, self.verdicts = [], []
        self.fold(step)

    @precondition(lambda self: not self.emitted)
    @rule(step=st.integers(1, 5))
    def die(self, step: int) -> None:
        """A new process without a snapshot folds the output from its beginning."""
        old = contents(self.shard)
        self.start(0)
        self.verdicts = []
        self.fold(step)
        assert contents(self.shard) == old

    def fold(self, step: int) -> None:
        """Fold the output from the label to its end, `step` offsets at a time; markers are not seen."""
        end = len(self.log.rows)
        while self.shard.label < end:
            start = self.shard.label
            part = self.log.rows[start : start + step]
            self.label_to_come = min(start + step, end)
            fold(self.shard, [row for row in part if row is not None], self.label_to_come)
        self.shard.end_fold(end)

    @invariant()
    def the_filter_is_the_fold_of_the_output(self) -> None:
        """At every moment the filter holds the output's keys and no other."""
        assert len(self.shard.filter) == len(self.log.held())
        assert all(holds(self.shard, key) for key in self.log.held())
        assert self.shard.label == len(self.log.rows)

    @invariant()
    def every_event_has_one_outcome(self) -> None:
        """Consumed is the sum of the verdicts, and both are those of the committed events (invariant 4)."""
        ours = self.log.verdicts[len(self.base) :]
        assert self.shard.tally.consumed == len(ours)
        assert [self.shard.tally[v] for v in Verdict] == [ours.count(v) for v in Verdict]

    @invariant()
    def reach_never_goes_back(self) -> None:
        """What a snapshot asks for only grows, and is never below the label."""
        assert self.shard.end_label >= max(self.reach, self.shard.label)
        self.reach = self.shard.end_label

    @invariant()
    def what_waits_is_what_was_emitted(self) -> None:
        """Pending counts the emitted events that have a key."""
        assert self.shard.pending == sum(isinstance(row, bytes) for row in self.emitted)


_BY_ROW: dict[str, Verdict] = {TOMBSTONE: PASS, DROPPED: BLOCKED, BROKEN: MALFORMED}

TestLife: Any = Life.TestCase
TestLife.settings = settings(deadline=None, max_examples=60, stateful_step_count=25)


def test_reach_stays_where_a_snapshot_put_it() -> None:
    """A loaded filter may hold keys beyond its label: a fold that is still below them does not lower `end_label`."""
    shard = shard_of()
    shard.label, shard.end_label = 10, 40
    for label in (20, 30):
        fold(shard, [b"%d" % label], label)
        assert (shard.label, shard.end_label) == (label, 40)
    shard.end_fold(45)
    assert (shard.label, shard.end_label) == (45, 45)


# --- expected false duplicates ---


def test_the_estimate_is_of_committed_decisions() -> None:
    """An empty filter drops none wrongly; what is forgotten is not counted; duplicates add nothing."""
    shard = Shard(0, Bloom(50, 0.3), stop_when_full=False)
    decide(shard, [b"%d" % i for i in range(50)])
    admit(shard, 50)
    assert shard.tally.expected_false == 0
    decide(shard, [b"x%d" % i for i in range(50)])
    shard.forget()
    decide(shard, [b"%d" % i for i in range(50)])
    admit(shard, 50)
    assert shard.tally.expected_false == 0


def test_tallies_add_up() -> None:
    """The sum of tallies counts what both count."""
    one, other = Tally(), Tally()
    one.by_verdict += [1, 2, 3, 4, 5]
    other.by_verdict += [10, 0, 0, 0, 1]
    one.expected_false, other.expected_false = 0.25, 0.5
    one.add(other)
    assert ([one[v] for v in Verdict], one.consumed) == ([11, 2, 3, 4, 6], 26)
    assert (one.expected_false, other.consumed) == (0.75, 11)
