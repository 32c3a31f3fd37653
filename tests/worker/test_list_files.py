"""Claims about the lists that a configuration names: what a worker loads, and what it refuses, before it joins."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from streamdedup.cli import main
from streamdedup.delivery.recipe import Recipe
from streamdedup.errors import ConfigError
from streamdedup.events import Column
from streamdedup.filters import build
from streamdedup.keys.hashing import MURMUR3
from streamdedup.rules.lists import NO_LISTS, BlockedRows, Lists, ListsInForce, Match
from streamdedup.snapshot import files
from tests.delivery.test_recipe import DIGITS, lists_of, recipe


def load_lists(made: Recipe) -> Lists:
    """Give what a worker of this recipe has in force when it joins."""
    asyncio.run(lists_of(made, in_force := ListsInForce()).begin())
    return in_force.now


def built(path: Path, *entries: str, options: tuple[str, ...] = ()) -> str:
    """Build a list of these lines by the command, in this process; the override that makes it the block list."""
    source = path.with_suffix(".txt")
    source.write_text("".join(f"{entry}\n" for entry in entries))
    assert main(["lists", "build", str(source), "-o", str(path), *options]) == 0
    return f"blocklist.file={path}"


def test_without_lists_nothing_is_loaded(tmp_path: Path) -> None:
    """Neither is configured by default, and nothing is asked for."""
    assert load_lists(recipe(tmp_path)) == NO_LISTS


def test_the_lists_that_are_named_are_loaded_and_told(tmp_path: Path) -> None:
    """Each judges as it was built, and the log says name and version of each."""
    block = built(tmp_path / "block.list", "a", "b")
    allow = built(tmp_path / "allow.list", "b", options=("--kind", "exact", "--name", "friends"))
    made = recipe(tmp_path, block, allow.replace("blocklist", "allowlist"))
    with capture_logs() as lines:
        lists = load_lists(made)
    keys = [b"a", b"b", b"c"]
    blocked = lists.ask(np.arange(3), Column.of(keys), MURMUR3.digests(keys), MURMUR3)
    assert isinstance(blocked, BlockedRows)
    assert (blocked.rows.tolist(), blocked.matches.tolist()) == ([0], [Match.ADDRESS])
    assert blocked.exempt.tolist() == [1]
    told = {line["list"]: line for line in lines if line["event"] == "list_in_force"}
    assert lists.allow is not None
    assert lists.block is not None
    assert (told["allowlist"]["name"], told["allowlist"]["addresses"]) == ("friends", 1)
    assert told["blocklist"]["version"] == lists.block.version
    assert told["blocklist"]["file"] == str(tmp_path / "block.list")


def refusal(tmp_path: Path, *overrides: str, **environ: str) -> str:
    """The message with which the lists are refused."""
    with pytest.raises(ConfigError) as caught:
        load_lists(recipe(tmp_path, *overrides, **environ))
    return str(caught.value)


def test_a_list_of_another_hash_is_refused(tmp_path: Path) -> None:
    """It would match nothing: file, both hashes and the remedy are told."""
    key = tmp_path / "key"
    key.write_text(DIGITS)
    secret = ("--hash", "siphash", "--hash-key-file", str(key))
    plain = built(tmp_path / "plain.list", "a")
    keyed = built(tmp_path / "keyed.list", "a", options=secret)
    message = refusal(tmp_path, keyed)
    again = ": build it again with `lists build -c CONFIGURATION`"
    assert message == (
        f"blocklist.file: {tmp_path}/keyed.list was built with siphash under a secret, and this worker has none: set"
        f" filter.hash_key_file to that secret, or{again[1:]}"
    )
    ours = {"FILTER__HASH_KEY": DIGITS}
    message = refusal(tmp_path, plain, "filter.hash=siphash", **ours)
    assert message == (
        f"blocklist.file: {tmp_path}/plain.list was built with murmur3, and this worker has"
        f" filter.hash_key_file{again}"
    )
    message = refusal(tmp_path, keyed, "filter.hash=siphash", FILTER__HASH_KEY=DIGITS[::-1])
    assert message == (
        f"blocklist.file: {tmp_path}/keyed.list was built under another secret than filter.hash_key_file{again}"
    )
    assert DIGITS not in message
    assert load_lists(recipe(tmp_path, keyed, "filter.hash=siphash", **ours)).block


def test_a_list_of_another_normalization_is_refused(tmp_path: Path) -> None:
    """Keys would be written otherwise than its entries: file, both normalizers and the remedy are told."""
    lowered = built(tmp_path / "low.list", "a", options=("--normalize", "lowercase"))
    message = refusal(tmp_path, lowered)
    assert str(tmp_path / "low.list") in message
    assert "'lowercase 1" in message
    assert "'none'" in message
    assert "build it again" in message
    assert load_lists(recipe(tmp_path, lowered, "key.normalize=lowercase")).block


def test_a_filter_is_no_list(tmp_path: Path) -> None:
    """It does not say what its keys were normalized by."""
    files.save(build({"kind": "bloom", "capacity": 10}), tmp_path / "x.list")
    message = refusal(tmp_path, f"blocklist.file={tmp_path}/x.list")
    assert "it is a filter of kind bloom, not a list" in message
