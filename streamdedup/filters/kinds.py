"""The kinds of filter, by name. A kind's module is imported when the kind is first built, because it imports numba."""

# How to add a kind (paths are below `streamdedup/`, unless they begin with another folder)
#
# 1. A module in the folder of its family below `filters/`: the class, with its `kind`. `filters/base.py` has the
#    protocols that it meets, `filters/digest_filter.py` what most kinds share. The sizes of its table go to
#    `filters/sizing.py`, its kernels beside it. The contract of `filters/` in pyproject.toml names a new family folder.
# 2. Here: the name and class in `KINDS`, its own options in `OPTIONS` (a kind with `discard` is a set, unless it takes
#    `multiset` and that is set), whether it may grow (`GROWABLE`), and whether it is built once, from all keys
#    (`STATIC`; such a kind is for lists, so step 3 leaves it out). An option of its own that a worker has also goes to
#    `FilterOptions`, and to `Recipe.empty_filter` and the identity, both in `delivery/recipe.py`.
# 3. `filters/options.py`: the name in `Kind`, and a sentence in the description of `kind`.
# 4. `filters/footprint.py`: how much memory it takes. `commands/plan/sizes.py`: its abilities, for `plan`.
# 5. `__init__.py`: the kind and its options in the docstring of `build`.
# 6. Tests: a case in `tests/filters/cases.py`, over which all contract tests of filters run: no false negative, batches
#    equal to single calls, save and load, unions and removals if it has them, the error rate. The kind in
#    `tests/lists/tools.py` if lists are made of it, its published bits a key and its pause in `test_plan.py`, and a
#    test file of its own for the promises that other kinds do not make. `test_error_rates.py` measures its errors. A
#    golden filter, snapshot and list: `proof/golden/__init__.py`, `proof/golden/deployment.py`,
#    `proof/golden/lists.py`.
# 7. `bench/plots.py`: its color and mark. `python -m bench filters` measures it, and writes results/filters.md.
# 8. Documents: its lines in docs/filters.md, its row in the README, and the table of docs/configuration.md, which
#    `settings/tree.py` says how to generate. `test_docs.py` and `test_bench.py` fail until the documents have it.

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from streamdedup.errors import ConfigError

if TYPE_CHECKING:  # these import numpy, which reading the settings does not need
    from streamdedup.filters.base import Filter
    from streamdedup.keys.hashing import Hash

KINDS: dict[str, str] = {
    "bitmap": "streamdedup.filters.bitmap.bitmap:Bitmap",
    "blocked": "streamdedup.filters.bloom.blocked:BlockedBloom",
    "bloom": "streamdedup.filters.bloom.bloom:Bloom",
    "counting": "streamdedup.filters.bloom.counting:Counting",
    "cuckoo": "streamdedup.filters.cuckoo.cuckoo:Cuckoo",
    "dlcbf": "streamdedup.filters.dleft.dlcbf:DLCBF",
    "dleft": "streamdedup.filters.dleft.dleft:DLeft",
    "exact": "streamdedup.filters.exact.exact:Exact",
    "fuse": "streamdedup.filters.fuse.fuse:Fuse",
    "window": "streamdedup.filters.window.window:Window",
}
LOADED: dict[str, str] = {
    "chain": "streamdedup.filters.growing.chain:Chain",
    "windows": "streamdedup.filters.growing.windows:GrowingWindow",
}
"""Kinds that `build` makes only for the option `on_full: grow`, and that a saved header names."""

GROWABLE = ("blocked", "bloom", "counting", "cuckoo", "dlcbf", "dleft", "exact", "window")
"""The kinds that accept `on_full: grow`."""
GROWTH = 16  # without `max_size`, such a filter grows to at most 16 times its first stage

CELLED = ("cuckoo", "dlcbf", "dleft", "window")
"""The kinds in which each key takes a cell, or, if there is none for it, a row of the stash."""

OPTIONS: dict[str, tuple[str, ...]] = {
    "bitmap": ("probe", "range"),
    "blocked": (),
    "bloom": ("probe",),
    "counting": ("probe", "multiset"),
    "cuckoo": ("multiset",),
    "dlcbf": ("permutations", "multiset"),
    "dleft": ("multiset",),
    "exact": ("fingerprint_bytes", "load"),
    "fuse": ("keys",),
    "window": ("retention", "generations", "late", "refresh", "max_jump"),
}
"""The options of each kind, besides the options that all kinds share."""

WINDOW_TABLE = "cells"
"""The table of a `window`, by name in what is saved, and in a snapshot's identity; older versions named none."""

STATIC = frozenset({"fuse"})  # built once, from all of their keys: for lists, not for streams


def from_parts(
    header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: "Hash | None" = None
) -> "Filter":
    """The filter that was saved as this `header()` and these `buffers()`, over these very buffers.

    `hash_` made the digests: murmur3 unless given. Raises ValueError if it did not, or if the parts do not fit
    together, and ConfigError if the kind is unknown.
    """
    hash_ = hash_of("murmur3", b"") if hash_ is None else hash_
    if "normalize" in header:
        from streamdedup.keys.key_normalizer import KeyNormalizer, NormalizingHash

        hash_ = NormalizingHash.over(hash_, KeyNormalizer.from_header(header["normalize"]))
    return cast("Filter", kind_of(header.get("kind")).from_parts(header, buffers, hash_))


def kind_of(name: object) -> Any:  # noqa: ANN401 - each class has constructor arguments of its own
    """The class of the kind `name`, including the kinds of `LOADED`. The Protocols of `base` state what it can do.

    Raises ConfigError if no kind has this name.
    """
    known = {**KINDS, **LOADED}
    if not isinstance(name, str) or name not in known:
        raise ConfigError(f"filter.kind {name!r} is unknown; choose one of: {', '.join(KINDS)}")
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)


def hash_of(name: object, key: bytes) -> "Hash":
    """The hash called `name`, under `key` if it has one."""
    from streamdedup.keys.hashing import Hash

    return Hash(str(name), key)
