"""Claims about a list with its exact store: it blocks only what is on it, and counts the list's false positives."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streamdedup.delivery.shard import Decided, Shard
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.events import Column
from streamdedup.keys.hashing import MURMUR3
from streamdedup.lists import KeyList, load
from streamdedup.lists.build.builder import build
from streamdedup.lists.build.rejects import Rejects
from streamdedup.lists.changed_list import ChangedList
from streamdedup.lists.exact_store import ExactStore, place_of
from streamdedup.lists.overlay import ADDED, REMOVED, Changes
from streamdedup.lists.verified_list import VerifiedList
from streamdedup.rules.lists import Answer, Lists, ListsInForce, Match, Matcher
from tests.delivery.test_recipe import lists_of
from tests.delivery.test_recipe import recipe as worker_recipe
from tests.lists.listed import Listed
from tests.lists.tools import PROVIDER, inputs, quiet, recipe, written
from tests.rules.test_lists import (
    BLOCKED,
    DUPLICATE,
    MALFORMED,
    PASS,
    REJECTED,
    admit,
    shard_of,
)
from tests.rules.test_lists import decide as judged

UNASKED, ABSENT, CONFIRMED, FALSE_POSITIVE = Answer
ON_IT = [f"user{n}@example.com" for n in range(300)]
DOMAINS = ["@junk.example", ".tree.example"]
OTHERS = [f"nobody{n}@example.com" for n in range(600)]
BELOW = [f"u{n}@a.tree.example" for n in range(50)]


def made(directory: Path, entries: Sequence[str], kind: str = "bloom") -> KeyList:
    """The list of these entries, which errs for one key in five; its store beside it."""
    written(directory / "in.txt", entries)
    exact = kind != "exact"
    how = recipe(kind=kind, error_rate=0.2, normalizing=PROVIDER, exact=exact)
    output = directory / "block.list"
    build(how, inputs(directory / "in.txt"), output, Rejects(directory / "bad", 0), quiet())
    return load(output)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> KeyList:
    """A list of addresses and domains."""
    return made(tmp_path_factory.mktemp("list"), [*ON_IT, *DOMAINS])


@pytest.fixture(scope="module")
def store(listed: KeyList) -> ExactStore:
    """What that list was built of."""
    assert listed.path is not None
    return ExactStore.open(place_of(listed.path), listed)


def asked(listed: Matcher, keys: Sequence[str]) -> list[int]:
    """What a list says of each of `keys`."""
    raw = [key.encode() for key in keys]
    return list(map(int, listed.match(Column.of(raw), MURMUR3.digests(raw))))


def positives(listed: KeyList, keys: Sequence[str]) -> list[str]:
    """Those whose address the list matches, rightly or wrongly."""
    found = listed.addresses.contains_many(MURMUR3.digests(list(keys)))
    return [keys[row] for row in np.flatnonzero(found).tolist()]


def changed(listed: KeyList, changes: dict[str, int]) -> ChangedList:
    """The list with single changes."""
    made_ = Changes()
    for key, change in changes.items():
        made_.apply(MURMUR3.digests([key]), [change], [0])
    return ChangedList(listed, made_.overlay(), 7)


def decide(
    shard: Shard, keys: Sequence[str | None], lists: Lists, rejected: Sequence[int] = ()
) -> Decided:
    """Decide these keys of no particular time."""
    batch = [None if key is None else key.encode() for key in keys]
    return judged(shard, batch, lists, rejected)


# --- what it says ---


def test_it_matches_what_is_on_it_and_nothing_else(listed: KeyList, store: ExactStore) -> None:
    """The list alone errs for a fifth of the others. The verified list has its name and version."""
    verified = VerifiedList(listed, store)
    assert set(asked(listed, ON_IT)) == set(asked(verified, ON_IT)) == {Match.ADDRESS}
    assert set(asked(verified, OTHERS)) == {Match.NONE}
    assert 60 < np.count_nonzero(asked(listed, OTHERS)) < 200
    assert set(asked(verified, BELOW)) == {Match.DOMAIN}  # also if the list says: address
    assert Match.ADDRESS in asked(listed, BELOW)
    assert (verified.name, verified.version) == (listed.name, listed.version)
    again = changed(listed, {})
    assert VerifiedList(again, store).version == again.version != listed.version


def test_each_answer_is_told_beside_what_matches(listed: KeyList, store: ExactStore) -> None:
    """Of the whole key: that its domain is on the list makes a wrong match of it no right one."""
    wrong, right = (
        positives(listed, OTHERS),
        [k for k in OTHERS if k not in positives(listed, OTHERS)],
    )
    below = positives(listed, BELOW)
    keys = [ON_IT[0], wrong[0], right[0], "a@junk.example", below[0]]
    raw = [key.encode() for key in keys]
    matches, answers = VerifiedList(listed, store).verify(Column.of(raw), MURMUR3.digests(raw))
    assert matches.dtype == answers.dtype == np.uint8
    expected = CONFIRMED, FALSE_POSITIVE, ABSENT, ABSENT, FALSE_POSITIVE
    if positives(listed, ["a@junk.example"]):
        expected = CONFIRMED, FALSE_POSITIVE, ABSENT, FALSE_POSITIVE, FALSE_POSITIVE
    assert answers.tolist() == list(expected)
    assert matches.tolist() == [Match.ADDRESS, 0, 0, Match.DOMAIN, Match.DOMAIN]


def test_single_changes_win_and_are_not_asked_for(listed: KeyList, store: ExactStore) -> None:
    """What was added is blocked though the store has it not; what was removed passes though it has."""
    wrong = positives(listed, OTHERS)
    changes = {ON_IT[0]: REMOVED, OTHERS[0]: ADDED, wrong[1]: REMOVED, "u0@a.tree.example": REMOVED}
    changes |= {"@new.example": ADDED, "@junk.example": REMOVED}
    keys = [*changes, ON_IT[1], wrong[2], "x@new.example", "x@junk.example", BELOW[1]]
    keys = [key for key in keys if not key.startswith("@")]
    raw = [key.encode() for key in keys]
    verified = VerifiedList(changed(listed, changes), store)
    matches, answers = verified.verify(Column.of(raw), MURMUR3.digests(raw))
    domain, address = Match.DOMAIN, Match.ADDRESS
    assert matches.tolist() == [0, address, 0, 0, address, 0, domain, 0, domain]
    assert answers[:6].tolist() == [*[UNASKED] * 4, CONFIRMED, FALSE_POSITIVE]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_it_is_the_list_with_an_exact_set(
    listed: KeyList, store: ExactStore, data: st.DataObject
) -> None:
    """Whatever is asked and changed: as with plain sets of addresses and domains."""
    pool = [*ON_IT[:4], *positives(listed, OTHERS)[:4], *OTHERS[:3], "a@junk.example", *BELOW[:4]]
    changes = data.draw(
        st.dictionaries(
            st.sampled_from([*pool, "@junk.example", "tree.example", "@example.com"]),
            st.sampled_from([ADDED, REMOVED]),
            max_size=6,
        )
    )
    keys = data.draw(st.lists(st.sampled_from(pool), max_size=12))
    held = {key for key in [*ON_IT, "@junk.example", "tree.example"] if changes.get(key) != REMOVED}
    held |= {key for key, change in changes.items() if change == ADDED}
    expected = []
    for key in keys:
        domain = key.partition("@")[2]
        labels = domain.split(".")
        trees = {".".join(labels[at:]) for at in range(len(labels))}
        if key in held:
            expected.append(Match.ADDRESS)
        elif changes.get(key) != REMOVED and held & {f"@{domain}", *trees}:
            expected.append(Match.DOMAIN)
        else:
            expected.append(Match.NONE)
    assert asked(VerifiedList(changed(listed, changes), store), keys) == expected


# --- what a shard makes of it ---


def test_what_is_matched_wrongly_is_judged_as_any_other(listed: KeyList, store: ExactStore) -> None:
    """It passes once and is a duplicate then; each time it is counted, as is all that was asked."""
    shard, lists = shard_of(), Lists(block=VerifiedList(listed, store))
    wrong = positives(listed, OTHERS)
    verdicts, blocked = decide(
        shard, [ON_IT[0], None, wrong[0], wrong[0], ON_IT[1], ON_IT[0]], lists, [4]
    )
    assert verdicts.tolist() == [BLOCKED, MALFORMED, PASS, DUPLICATE, REJECTED, BLOCKED]
    assert blocked.rows.tolist() == [0, 5]
    assert blocked.lists is lists
    admit(shard)
    assert shard.tally.by_answer.tolist() == [0, 0, 2, 2]
    assert shard.tally.by_match.tolist() == [0, 2, 0]
    assert len(shard.filter) == 1


def test_what_is_taken_back_or_cut_off_is_not_counted(listed: KeyList, store: ExactStore) -> None:
    """As for every count: only what is committed is in it."""
    shard, lists = shard_of(1), Lists(block=VerifiedList(listed, store))
    decide(shard, [ON_IT[0]], lists)
    shard.forget()
    wrong = positives(listed, OTHERS)
    verdicts, _ = decide(shard, [ON_IT[0], wrong[0], ON_IT[1], wrong[1], ON_IT[2]], lists)
    assert verdicts.tolist() == [BLOCKED, PASS, BLOCKED]
    admit(shard)
    assert shard.tally.by_answer.tolist() == [0, 0, 2, 1]
    assert (shard.tally.by_match.tolist(), shard.tally[BLOCKED]) == ([0, 2, 0], 2)


def test_the_allow_list_exempts_what_is_on_the_list_in_truth(
    listed: KeyList, store: ExactStore
) -> None:
    """What was matched wrongly needs no exemption, and is none."""
    wrong = positives(listed, OTHERS)
    allow = Listed([ON_IT[0].encode(), wrong[0].encode()])
    shard, lists = shard_of(), Lists(allow, VerifiedList(listed, store))
    verdicts, blocked = decide(shard, [ON_IT[0], wrong[0], ON_IT[1]], lists)
    assert verdicts.tolist() == [PASS, PASS, BLOCKED]
    assert blocked.exempt.tolist() == [0]
    assert allow.asked == [[ON_IT[0].encode(), ON_IT[1].encode()]]


def test_a_list_without_a_store_counts_no_answers(listed: KeyList) -> None:
    """Nothing was verified."""
    shard, lists = shard_of(), Lists(block=listed)
    decide(shard, [ON_IT[0], OTHERS[0]], lists)
    admit(shard)
    assert shard.tally.by_answer.sum() == 0


# --- how a worker gets it ---

VERIFY = ("blocklist.on_positive=verify", "key.normalize=email")


def in_force(tmp_path: Path, *overrides: str) -> Lists:
    """Give what a worker of this configuration has in force when it joins."""
    made_ = worker_recipe(tmp_path, f"blocklist.file={tmp_path}/block.list", *VERIFY, *overrides)
    asyncio.run(lists_of(made_, found := ListsInForce()).begin())
    return found.now


def test_the_store_is_opened_with_its_list(tmp_path: Path) -> None:
    """From beside it, or from where the configuration says; the log has the number of its keys."""
    made(tmp_path, [*ON_IT, *DOMAINS])
    with capture_logs() as lines:
        lists = in_force(tmp_path)
    assert isinstance(lists.block, VerifiedList)
    assert [line["exact_keys"] for line in lines if line["event"] == "list_in_force"] == [302]
    (tmp_path / "block.list.exact").rename(tmp_path / "elsewhere")
    lists = in_force(tmp_path, f"blocklist.exact={tmp_path}/elsewhere")
    assert lists.block is not None
    assert set(asked(lists.block, OTHERS)) == {Match.NONE}
    dropping = in_force(tmp_path, "blocklist.on_positive=drop")
    assert isinstance(dropping.block, KeyList)


def test_a_store_that_does_not_do_ends_the_start(tmp_path: Path) -> None:
    """Missing, of another list, of no use, or damaged: by name, and with what to do."""
    listed = made(tmp_path, ON_IT)
    place = tmp_path / "block.list.exact"
    store = place / listed.version
    whole = store.read_bytes()
    store.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    with pytest.raises(
        SnapshotError, match=r"chunk 0 of 1 is damaged: the checksum .*; build the l"
    ):
        in_force(tmp_path)
    (place / listed.version).rename(place / "2026-01-01T00:00:00Z-00000000")
    with pytest.raises(ConfigError, match=r"holds only version 2026-01-01T\S+; build .* drop$"):
        in_force(tmp_path)
    shutil.rmtree(place)
    with pytest.raises(
        ConfigError, match=r"^blocklist.on_positive = verify: .* does not exist; build .*--exact"
    ):
        in_force(tmp_path)
    made(tmp_path, ON_IT, kind="exact")
    with pytest.raises(
        ConfigError, match=r"is of kind exact, .*; or set blocklist.on_positive: dr"
    ):
        in_force(tmp_path)
