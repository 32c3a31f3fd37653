"""More claims about keys that come in several partitions: statistics, secrets, and what is said again."""

from dataclasses import replace

import pytest

from streamdedup.delivery.cross_partition import (
    Evidence,
    Watch,
)
from tests.delivery.test_cross_partition import DUPLICATE, keys, passed, verdicts


def test_the_share_holds_whatever_is_sampled() -> None:
    """One in four of the duplicates passes: the estimate stays there while the sample takes fewer and fewer keys."""
    watch = Watch(kept_max=1000)
    for start in range(0, 40_000, 400):
        some = range(start, start + 400)
        passed(watch, 0, some)
        watch.look(0, keys([*some] * 3), verdicts(*[DUPLICATE] * 1200))
        passed(watch, 1, some)
    assert watch._sample.halvings > 4
    assert watch.unseen_share == pytest.approx(0.25, abs=0.02)
    assert watch.in_several_share == pytest.approx(1, abs=0.01)
    evidence = watch.evidence
    assert evidence is not None
    assert evidence.keys <= 1000


def test_it_is_said_again_only_if_the_share_has_grown_much() -> None:
    """At once; then if it has doubled, or is a tenth of all duplicates more. It ends, since a share is at most 1."""
    evidence = Evidence(100, 1, 0.1)
    assert evidence.has_grown_since(-1.0)
    assert not evidence.has_grown_since(0.1)
    assert not evidence.has_grown_since(0.06)
    assert not evidence.has_grown_since(0.5)
    assert evidence.has_grown_since(0.05)
    assert evidence.has_grown_since(0.0)
    assert not replace(evidence, unseen_share=0.0).has_grown_since(0.0)
    assert replace(evidence, unseen_share=0.61).has_grown_since(0.5)
    assert not replace(evidence, unseen_share=0.59).has_grown_since(0.5)
