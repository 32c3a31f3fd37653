"""Claims about the watch for keys that come in several partitions."""

from dataclasses import replace

import numpy as np
import pytest

from streamdedup.delivery.cross_partition import (
    Evidence,
    Watch,
    record_keys_matter,
    suspicion,
)
from streamdedup.events import Column, Verdict, Verdicts
from streamdedup.keys.options import KeyOptions

PASS, DUPLICATE = Verdict.PASS, Verdict.DUPLICATE


def keys(numbers: range | list[int]) -> Column:
    """Make the keys of `numbers`."""
    return Column.of([b"key %d" % number for number in numbers])


def verdicts(*given: Verdict) -> Verdicts:
    """As a column."""
    return np.array(given, dtype=np.uint8)


def passed(watch: Watch, partition: int, numbers: range | list[int]) -> None:
    """Have all of `numbers` pass in `partition`."""
    watch.look(partition, keys(numbers), verdicts(*[PASS] * len(numbers)))


def test_of_3000_events_each_of_1402_duplicates_that_pass_is_seen() -> None:
    """What one key in 4,096 saw nothing of: 1,402 keys come once in each of two partitions, 196 in one only."""
    watch = Watch()
    for start in range(0, 1402, 100):
        some = range(start, min(start + 100, 1402))
        passed(watch, 4, some)
        passed(watch, 1, some)
    passed(watch, 2, range(1402, 1598))
    assert watch.unseen == 1402
    assert watch.evidence == Evidence(1598, 1402, 1.0)
    assert watch.in_several_share == pytest.approx(1402 / 1598)


def test_a_key_in_two_partitions_is_noticed() -> None:
    """Passed here, passed there: a duplicate that nobody saw; its share is estimated from those that were seen."""
    watch = Watch()
    watch.look(0, keys([1, 2, 3, 1]), verdicts(PASS, PASS, PASS, DUPLICATE))
    assert watch.evidence is None
    assert watch.unseen_share == 0
    watch.look(1, keys([2, 4]), verdicts(PASS, PASS))
    assert (watch.unseen, watch.seen) == (1, 1)
    assert watch.evidence == Evidence(4, 1, 0.5)


def test_what_one_partition_sees_again_is_none() -> None:
    """An event that was taken back and decided anew, or whose key left a window, passes twice in its own partition."""
    watch = Watch()
    for _ in range(2):
        passed(watch, 3, [1, 2])
    assert watch.evidence is None
    for _ in range(3):
        for partition in (3, 4, 5):
            passed(watch, partition, [1])
    assert watch.unseen == 2


def test_what_a_filter_knew_before_is_evidence_too() -> None:
    """After a restart, known keys come as duplicates in each of their partitions: nothing passes, and it is said."""
    watch = Watch()
    for partition in (0, 1):
        watch.look(partition, keys([1, 2]), verdicts(DUPLICATE, DUPLICATE))
    assert watch.evidence == Evidence(2, 2, 0.0)
    passed(watch, 2, [1, 3])
    assert watch.unseen == 1


def test_a_partition_that_went_and_came_back_is_the_same() -> None:
    """What came elsewhere is evidence whoever has that partition now; what came here is none."""
    watch = Watch()
    passed(watch, 0, [1, 2])
    passed(watch, 7, [3])  # after a rebalance, in place of 0
    passed(watch, 0, [1, 2])
    assert watch.evidence is None
    passed(watch, 7, [1])
    assert watch.unseen == 1


def test_input_and_output_are_read_as_one() -> None:
    """For an audit: what the input has again in its partition is seen; the copies in the output add nothing to that.

    An emitted event whose input is gone is evidence, too.
    """
    watch = Watch()
    watch.read(0, keys([1, 2, 1]))
    watch.read_emitted(0, keys([1, 2]))
    assert (watch.unseen, watch.seen, watch.evidence) == (0, 1, None)
    watch.read(1, keys([2, 2]))
    watch.read_emitted(1, keys([2, 1]))
    assert (watch.unseen, watch.seen) == (2, 2)
    assert watch.evidence == Evidence(2, 2, 0.5)


def test_a_share_that_rounds_to_nothing_is_not_said_to_be_0() -> None:
    """The share of duplicates is told to a tenth of a percent."""
    evidence = Evidence(1_000_000, 1, 1e-6)
    assert ", and less than 0.1% of all duplicates pass for that reason" in evidence.text
    assert ", and about 0.1% of all" in replace(evidence, unseen_share=0.001).text


def test_record_keys_raise_a_suspicion() -> None:
    """None at all, or several of them for one key; a few odd events without one do not."""
    watch = Watch()
    one = verdicts(PASS)
    watch.look(0, keys([1]), one, Column.of([b"r"]))
    watch.look(1, keys([1]), one, Column.of([b"r"]))
    assert watch.suspicion is None
    watch.look(0, keys([1]), one, Column.of([b"other"]))
    assert "different record keys" in (watch.suspicion or "")
    watch.look(0, keys([2]), one, Column.of([None]))
    assert "25% of the events have no record key" in (watch.suspicion or "")
    assert suspicion(1000, 9, 0) is None
    assert suspicion(1000, 10, 0)
    assert suspicion(0, 0, 0) is None
    assert (suspicion(90, 100, 0) or "").startswith("100%")


@pytest.mark.parametrize(
    ("key", "partitions", "matter"),
    [
        ({"field": "id"}, 2, True),
        ({"field": "id"}, 1, False),
        ({"from": "key"}, 2, False),
        ({"from": "key", "normalize": "lowercase"}, 2, True),
        ({"from": "header", "field": "id"}, 6, True),
    ],
)
def test_record_keys_matter_unless_they_are_the_keys(
    key: dict[str, str], partitions: int, matter: bool
) -> None:
    """With one partition, or if the record key is the key as it is, nothing can be wrong with it."""
    assert record_keys_matter(KeyOptions.model_validate(key), partitions) is matter
