"""Many changes to a list at a time."""

from streamdedup.keys.hashing import MURMUR3
from streamdedup.lists.overlay import ADDED, REMOVED, UNCHANGED, Changes


def test_many_changes_are_found_among_many_keys() -> None:
    """Each of 10,000 changed keys is found, none of 10,000 others, and none whose change was taken back."""
    array = MURMUR3.digests([b"%d" % n for n in range(20_000)])
    changes = Changes(latest_max=3000)
    changes.apply(array[:10_000:2], [REMOVED] * 5000, [7] * 5000)
    for n in range(1, 10_000, 2):
        changes.apply(array[n : n + 1], [ADDED], [7])
    changes.apply(array[:100], [UNCHANGED] * 100, [0] * 100)
    overlay = changes.overlay()
    answers = overlay.look_up(array)
    assert answers[:100].tolist() == [UNCHANGED] * 100
    assert answers[100:10_000].tolist() == [REMOVED, ADDED] * 4950
    assert not answers[10_000:].any()
    assert len(overlay) == 9900
