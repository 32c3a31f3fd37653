"""Claims about what a shard derives from the settings: its filter, and the identity of its snapshots."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from streamdedup.delivery.recipe import Recipe
from streamdedup.filters import GROWABLE
from streamdedup.filters.base import Growing
from streamdedup.filters.growing.windows import GrowingWindow
from streamdedup.filters.options import FilterOptions, Kind
from streamdedup.filters.window.window import Window
from streamdedup.kafka.topics import Topic, Topology
from streamdedup.keys.hashing import Hash
from streamdedup.metrics.counts import Meters
from streamdedup.rules.lists import ListsInForce
from streamdedup.settings import load
from streamdedup.threads import Threads
from streamdedup.worker.lists import ListLoader

CONFIG = """\
kafka: {bootstrap_servers: localhost:9092, group_id: dedup}
source: {topic: events}
key: {field: id}
filter: {capacity: 4000, error_rate: 1e-3}
sink: {topic: unique}
snapshot: {directory: var/snapshots}
"""
DIGITS = "00112233445566778899aabbccddeeff"
SIPHASH = Hash("siphash", bytes.fromhex(DIGITS))
TOPICS = {name: Topic(name, None, 4, 1) for name in ("events", "unique")}


def recipe(tmp_path: Path, *overrides: str, **environ: str) -> Recipe:
    """Make the recipe of a worker with these settings and four partitions."""
    path = tmp_path / "dedup.yaml"
    path.write_text(CONFIG)
    environ = {f"STREAMDEDUP_{name}": value for name, value in environ.items()}
    return Recipe(load(path, overrides, environ), 4)


def lists_of(made: Recipe, in_force: ListsInForce, meters: Meters | None = None) -> ListLoader:
    """Give what keeps the lists of a worker of this recipe; there is no control topic."""
    no_cluster: Any = None
    return ListLoader(made, no_cluster, in_force, meters=meters or Meters(), threads=Threads())


@pytest.mark.parametrize(
    ("kind", "on_full"),
    [
        (kind, on_full)
        for kind in sorted(get_args(Kind))
        for on_full in ("stop", "warn", "grow")
        if on_full != "grow" or kind in GROWABLE
    ],
)
def test_the_bytes_of_a_filter_are_known_before_it_is_made(
    tmp_path: Path, kind: str, on_full: str
) -> None:
    """As a worker says at its start, and doctor compares with the memory: of a new filter, and at most."""
    window = ("filter.retention=7d",) if kind == "window" else ()
    made = recipe(tmp_path, f"filter.kind={kind}", f"filter.on_full={on_full}", *window)
    empty = made.empty_filter()
    most = empty.size_bytes_max if isinstance(empty, Growing) else empty.size_bytes
    assert made.filter_bytes == (empty.size_bytes, most + made.stash_bytes)


@pytest.mark.parametrize("kind", sorted(get_args(Kind)))
def test_every_kind_takes_the_hash_that_is_configured(tmp_path: Path, kind: str) -> None:
    """The filter of a shard has the kind, its share of the keys, the error rate and the hash that were asked for."""
    choice = (f"filter.kind={kind}", "filter.on_full=stop", "filter.hash=siphash")
    seen = recipe(tmp_path, *choice, FILTER__HASH_KEY=DIGITS).empty_filter()
    assert (seen.kind, seen.capacity, seen.error_rate) == (kind, 1200, 1e-3)
    assert seen.hash == SIPHASH
    murmur3 = recipe(tmp_path, *choice[:2], "filter.hash=murmur3").empty_filter()
    assert murmur3.hash == Hash()
    drawn = recipe(tmp_path, *choice[:2]).empty_filter(lambda size: b"d" * size)
    assert drawn.hash == Hash("siphash", b"d" * 16, drawn=True)


def test_each_empty_filter_draws_a_secret_of_its_own(tmp_path: Path) -> None:
    """By default, and if siphash is named without a secret. A filter that remembers nothing draws none."""
    for options in ((), ("filter.hash=siphash",)):
        made = recipe(tmp_path, *options)
        secrets = {made.empty_filter().hash.key for _ in range(3)}
        assert len(secrets) == 3
        assert all(len(secret) == 16 for secret in secrets)
        assert made.common_hash == Hash()

    def no_secret(_: int) -> bytes:
        raise AssertionError("a secret was drawn")

    screening = recipe(tmp_path).settings.model_copy(
        update={"filter": FilterOptions(kind="none", capacity=1)}
    )
    Recipe(screening, 4).empty_filter(no_secret)
    recipe(tmp_path, "filter.hash=murmur3").empty_filter(no_secret)
    given = recipe(tmp_path, FILTER__HASH_KEY=DIGITS)
    assert given.empty_filter(no_secret).hash == given.common_hash == SIPHASH


@pytest.mark.parametrize("kind", sorted(set(get_args(Kind)) & set(GROWABLE)))
def test_filters_grow_unless_told_otherwise(tmp_path: Path, kind: str) -> None:
    """By default a kind that can gets stages, with an even share of the memory for all partitions."""
    timed = ("filter.retention=7d",) if kind == "window" else ()
    choice = (f"filter.kind={kind}", "filter.max_size=4MB", *timed)
    seen = recipe(tmp_path, *choice).empty_filter()
    assert isinstance(seen, Growing)
    assert seen.stages == f"{kind} in 1 stage"
    assert 500_000 < seen.size_bytes_max <= 1_000_000
    seen.permit(None)
    adopted = recipe(tmp_path, *choice).adopt(seen)
    assert isinstance(adopted, Growing)
    assert 500_000 < adopted.size_bytes_max <= 1_000_000


def test_a_full_window_names_its_keys_and_what_to_raise(tmp_path: Path) -> None:
    """All keys may come at once: it is full at its capacity, and not before."""
    options = (
        "filter.kind=window",
        "filter.retention=7d",
        "filter.capacity=33_336",
        "filter.error_rate=1e-9",
    )
    made = recipe(tmp_path, *options, "filter.on_full=stop")
    seen = made.empty_filter()
    assert isinstance(seen, Window)
    keys = Hash().digests([b"%d" % n for n in range(seen.capacity)])
    seen.add_many(keys, np.full(len(keys), 20_000 * 86_400_000))
    assert seen.room() == 0
    assert made.held(seen) == "its filter holds 10001 keys of 10001"
    assert made.larger() == (
        "set filter.on_full: grow, or raise filter.capacity (33336 for all partitions together)"
    )
    grows = recipe(tmp_path, *options)
    grown = grows.empty_filter()
    assert isinstance(grown, GrowingWindow)
    grown.add_many(keys[:5000], np.zeros(5000, dtype=np.int64))
    assert grows.held(grown) == f"its filter holds 5000 keys of {grown.capacity}"
    assert grows.larger().startswith("raise filter.max_size (16 times what the filters begin with ")


def test_what_to_raise_is_one_clause(tmp_path: Path) -> None:
    """No comma is left over at the end of a line, whatever follows the advice."""
    for choice in ("filter.on_full=stop", "filter.on_full=grow", "filter.kind=window"):
        made = recipe(tmp_path, choice)
        advice = made.larger()
        assert advice.startswith(("raise filter.", "set filter.on_full: grow, or raise filter."))
        assert not advice.endswith(","), advice
        assert "for all partitions together)" in advice


@pytest.mark.parametrize("kind", ["bitmap", "bloom", "counting"])
def test_the_probe_is_the_one_that_is_configured(tmp_path: Path, kind: str) -> None:
    """Of the kinds that have one."""
    for probe in ("standard", "double"):
        choice = (f"filter.kind={kind}", "filter.on_full=stop", f"filter.probe={probe}")
        assert recipe(tmp_path, *choice).empty_filter().header()["probe"] == probe


def test_another_hash_key_or_probe_is_another_identity(tmp_path: Path) -> None:
    """A snapshot made under other ones is refused, by name, and the output is folded again."""

    def differences(*overrides: str, **environ: str) -> list[str]:
        theirs = recipe(tmp_path, bloom, *overrides, **environ).identity(Topology(None, TOPICS), 1)
        return [line.partition(" ")[0] for line in ours.differences(theirs)]

    bloom, siphash, key = "filter.kind=bloom", "filter.hash=siphash", {"FILTER__HASH_KEY": DIGITS}
    ours = recipe(tmp_path, bloom, siphash, **key).identity(Topology(None, TOPICS), 1)
    assert (ours.hash, ours.hash_check) == ("siphash", SIPHASH.check)
    assert differences(siphash, **key) == []
    assert differences(siphash, FILTER__HASH_KEY=DIGITS[::-1]) == ["hash_check"]
    assert differences("filter.hash=murmur3") == ["hash", "hash_check"]
    assert differences() == differences(siphash) == ["hash_check"]
    assert differences(siphash, "filter.probe=double", **key) == ["filter.probe"]
    assert differences(siphash, "key.normalize=lowercase", **key) == ["normalize"]


def test_drawn_filters_share_an_identity_that_names_no_secret(tmp_path: Path) -> None:
    """Whether siphash is named or left to the default; each snapshot has its own secret."""
    for options in ((), ("filter.hash=siphash",)):
        identity = recipe(tmp_path, *options).identity(Topology(None, TOPICS), 1)
        assert (identity.hash, identity.hash_check) == ("siphash", "drawn")
