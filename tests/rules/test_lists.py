"""Claims about the lists: what is blocked, by what, what is exempt, and what the filter never hears of."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.delivery.shard import Decided, Shard
from streamdedup.events import Column, Verdict
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.window.window import Window
from streamdedup.keys.extract import Keys
from streamdedup.keys.hashing import Digests, Hash, digests
from streamdedup.metrics.counts import Tally
from streamdedup.rules.lists import BlockedRows, Lists, ListsInForce, Match, Matches
from tests.delivery.deciding import decided
from tests.lists.listed import Listed

PASS, DUPLICATE, BLOCKED, MALFORMED, REJECTED = Verdict
ADDRESS, DOMAIN = Match.ADDRESS, Match.DOMAIN

SPAM = Lists(block=Listed([b"x@spam.org", b"y@here.org"], [b"junk.org"]))
ALLOWED = Lists(Listed([b"x@spam.org", b"good@junk.org"]), SPAM.block)


def shard_of(capacity: int = 1000) -> Shard:
    """An empty shard with hardly any false positives."""
    return Shard(0, Bloom(capacity, 1e-9), stop_when_full=True)


def keyed(batch: Sequence[bytes | None]) -> Keys:
    """As extraction gives them; what is None has no key."""
    nulls = {row: "missing" for row, key in enumerate(batch) if key is None}
    return Keys(Column.of(list(batch)), nulls, (), ())


def decide(
    shard: Shard,
    batch: Sequence[bytes | None],
    lists: Lists,
    rejected: Sequence[int] = (),
) -> Decided:
    """Decide a batch of no particular time."""
    return decided(shard, keyed(batch), np.zeros(len(batch), dtype=np.int64), rejected, lists)


def admit(shard: Shard) -> None:
    """Admit what waits, at once."""
    for _ in shard.admit(shard.label + 1):
        pass


def blocked_rows(blocked: BlockedRows) -> list[tuple[int, Match]]:
    """The rows, and what of each was matched."""
    return list(zip(blocked.rows.tolist(), map(Match, blocked.matches.tolist()), strict=True))


def test_the_allow_list_exempts_from_the_block_list_only() -> None:
    """What is on both passes once, and is a duplicate when it comes again; the block list is not asked for it alone."""
    shard = shard_of()
    batch = [b"x@spam.org", b"good@junk.org", b"y@here.org", b"x@spam.org", b"bad@junk.org"]
    verdicts, blocked = decide(shard, batch, ALLOWED)
    assert verdicts.tolist() == [PASS, PASS, BLOCKED, DUPLICATE, BLOCKED]
    assert blocked_rows(blocked) == [(2, ADDRESS), (4, DOMAIN)]
    assert blocked.exempt.tolist() == [0, 1, 3]
    admit(shard)
    assert (len(shard.filter), shard.tally.exempt) == (2, 3)


def test_the_allow_list_is_asked_for_hits_alone() -> None:
    """It costs nothing for the many that the block list does not match."""
    allow = Listed([b"x@spam.org"])
    decide(shard_of(), [b"a@b.org", b"x@spam.org", b"c@d.org"], Lists(allow, SPAM.block))
    decide(shard_of(), [b"a@b.org"], Lists(allow, SPAM.block))
    assert allow.asked == [[b"x@spam.org"]]


def test_the_keys_that_a_rule_judges_are_asked_for_once() -> None:
    """No key of a verdict that comes before the rules."""
    block, allow = Listed([b"x@spam.org", b"y@here.org"]), Listed([b"y@here.org"])
    batch = [None, b"x@spam.org", b"a@b.org", b"x@spam.org", b"y@here.org"]
    lists = Lists(allow, block)
    verdicts, blocked = decide(shard_of(), batch, lists, rejected=[1])
    assert verdicts.tolist() == [MALFORMED, REJECTED, PASS, BLOCKED, PASS]
    assert blocked_rows(blocked) == [(3, ADDRESS)]
    assert blocked.exempt.tolist() == [4]
    assert len(allow.asked) == 1
    assert block.asked == [[b"a@b.org", b"x@spam.org", b"y@here.org"]]


def test_an_allow_list_alone_changes_nothing() -> None:
    """It exempts from a block list; without one, there is nothing to exempt from."""
    verdicts, blocked = decide(shard_of(), [b"x@spam.org"] * 2, Lists(ALLOWED.allow))
    assert verdicts.tolist() == [PASS, DUPLICATE]
    assert not len(blocked.rows)
    assert not len(blocked.exempt)


def test_what_is_blocked_enters_neither_pending_nor_the_filter() -> None:
    """Off the list again, such a key is new."""
    shard = shard_of()
    decide(shard, [b"x@spam.org", b"z@junk.org"], SPAM)
    assert shard.pending == 0
    admit(shard)
    assert len(shard.filter) == 0
    assert decide(shard, [b"x@spam.org"], Lists()).verdicts.tolist() == [PASS]


def test_what_passed_before_it_was_listed_is_blocked_from_then_on() -> None:
    """The lists come first: that the filter knows a key makes it no duplicate, as long as it is listed."""
    shard, lists = shard_of(), ListsInForce()
    assert decide(shard, [b"x@spam.org"], lists.now).verdicts.tolist() == [PASS]
    lists.now = SPAM
    assert decide(shard, [b"x@spam.org"], lists.now).verdicts.tolist() == [BLOCKED]
    lists.now = Lists()
    assert decide(shard, [b"x@spam.org"], lists.now).verdicts.tolist() == [DUPLICATE]


def test_a_tombstone_that_is_dropped_is_not_blocked_by_a_list() -> None:
    """Both are BLOCKED; only what a list blocked stands beside the verdicts, with what was matched."""
    keys = Keys(Column.of([None, b"x@spam.org", None]), {}, [2], [0])
    verdicts, blocked = decided(shard_of(), keys, np.zeros(3, dtype=np.int64), (), SPAM)
    assert verdicts.tolist() == [BLOCKED, BLOCKED, PASS]
    assert blocked_rows(blocked) == [(1, ADDRESS)]


def test_what_comes_late_is_not_blocked_by_a_list() -> None:
    """Nor is what a window drops, though it is BLOCKED as well."""
    seen = Window(1000, 1e-9, retention=700, generations=8, late="drop")
    keys = Keys(Column.of([b"a@b.org", b"c@d.org", b"x@spam.org"]), {}, (), ())
    times = np.array([100_000, 0, 0], dtype=np.int64)
    shard = Shard(0, seen, stop_when_full=True)
    verdicts, blocked = decided(shard, keys, times, (), SPAM)
    assert verdicts.tolist() == [PASS, BLOCKED, BLOCKED]
    assert blocked_rows(blocked) == [(2, ADDRESS)]
    admit(shard)
    assert (shard.tally.late, shard.tally.by_match.tolist()) == (1, [0, 1, 0])


def test_where_a_full_filter_cuts_a_batch_the_blocked_rows_end_there_too() -> None:
    """What was not decided is in no count and in no topic; what is blocked takes no room."""
    shard = shard_of(1)
    batch = [b"x@spam.org", b"a@b.org", b"z@junk.org", b"c@d.org", b"x@spam.org", b"y@here.org"]
    verdicts, blocked = decide(shard, batch, ALLOWED)
    assert verdicts.tolist() == [PASS]
    assert blocked.exempt.tolist() == [0]
    verdicts, blocked = decide(shard, batch[2:], SPAM)
    assert verdicts.tolist() == [BLOCKED]
    assert blocked_rows(blocked) == [(0, DOMAIN)]
    admit(shard)
    assert shard.tally.consumed == 2
    assert (shard.tally.by_match.tolist(), shard.tally.exempt) == ([0, 0, 1], 1)


def test_tallies_add_what_lists_did() -> None:
    """The sum of tallies counts what both count, also what stores said."""
    one, other = Tally(), Tally()
    one.by_match += [0, 1, 2]
    other.by_match += [0, 10, 20]
    one.by_answer += [0, 1, 2, 3]
    other.by_answer += [10, 20, 30, 40]
    one.exempt, other.exempt = 3, 4
    one.add(other)
    assert (one.by_match.tolist(), one.exempt) == ([0, 11, 22], 7)
    assert one.by_answer.tolist() == [10, 21, 32, 43]


@pytest.mark.parametrize("hash_", [Hash("siphash", bytes(range(16))), Hash()], ids=lambda h: h.name)
def test_lists_get_the_digests_of_their_own_hash(hash_: Hash) -> None:
    """A list sees each key beside its own digest, by the hash of the lists, whatever the hash of the filter is."""

    class Comparing(Listed):
        def match(self, keys: Column, digests_: Digests) -> Matches:
            expected = hash_.digests([key or b"" for key in keys])
            assert np.array_equal(np.asarray(digests_), expected)
            return np.ones(len(keys), dtype=np.uint8)

    for own in (hash_, Hash.draw(lambda size: b"d" * size)):
        shard = Shard(0, Bloom(1000, 1e-9, hash_=own), stop_when_full=True)
        lists = Lists(block=Comparing(), hash=hash_)
        verdicts = decide(shard, [b"a", None, b"b"], lists).verdicts.tolist()
        assert verdicts == [BLOCKED, MALFORMED, BLOCKED]


names = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])


@settings(deadline=None)
@given(
    st.lists(names | st.none(), max_size=30),
    st.sets(names),
    st.sets(names),
    st.integers(1, 6),
)
def test_verdicts_are_those_of_sets(
    stream: list[bytes | None], allowed: set[bytes], listed: set[bytes], step: int
) -> None:
    """Allow list, block list, duplicates, in this order, whatever the batches: as with three plain sets."""
    lists = Lists(Listed(allowed), Listed(listed))
    shard, emitted = shard_of(), set[bytes]()
    for start in range(0, len(stream), step):
        batch, expected = stream[start : start + step], []
        for key in batch:
            if key is None:
                expected.append(MALFORMED)
            elif key in listed and key not in allowed:
                expected.append(BLOCKED)
            else:
                expected.append(DUPLICATE if key in emitted else PASS)
                emitted.add(key)
        verdicts, blocked = decide(shard, batch, lists)
        assert verdicts.tolist() == expected
        assert blocked.lists.block is lists.block
        assert blocked.rows.tolist() == [row for row, v in enumerate(expected) if v == BLOCKED]
        admit(shard)
    assert shard.filter.contains_many(digests(sorted(emitted))).all()
    assert len(shard.filter) == len(emitted)
