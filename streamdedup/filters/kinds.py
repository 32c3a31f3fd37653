"""The kinds of filter, by name. A kind's module is imported when the kind is first built, because it imports numpy."""

# How to add a kind (paths are below `streamdedup/`, unless they begin with another folder)
#
# 1. The folder of its family below `filters/`: a module with the class, its kernels beside it, its methods of one key
#    as in `filters/bloom/one_key.py`, and its description, a `Kind` of `filters/kind.py`, as in
#    `filters/bloom/kinds.py`. `filters/base.py` has the protocols that the class meets, `filters/digest_filter.py` what
#    most kinds share, `filters/sizing.py` the formulas. The contract of `filters/` in pyproject.toml names a folder.
# 2. Here: the description in `_ALL`. Look-ups, `plan`, lists, goldens and the tests over all kinds follow from it.
# 3. `filters/options.py`, unless the kind is static: the name in `Kind`, and a sentence in the description of `kind`.
# 4. `tests/filters/cases.py`: a case, over which all contract tests of filters run: no false negative, batches equal to
#    single calls, save and load, unions and removals if it has them, the error rate.
#
# Then measure and write: `python -m bench filters`, with its style in `bench/plots.py`; its published bits a key in
# `tests/commands/test_plan.py`; `python -m proof golden`; its lines in docs/filters.md, README and the docstring of
# `build`. Tests fail until all of it is there. Promises that other kinds do not make get a test file of their own.

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from streamdedup.errors import ConfigError
from streamdedup.filters.bitmap.kinds import BITMAP
from streamdedup.filters.bloom.kinds import BLOCKED, BLOOM, COUNTING
from streamdedup.filters.cuckoo.kinds import CUCKOO
from streamdedup.filters.dleft.kinds import DLCBF, DLEFT
from streamdedup.filters.exact.kinds import EXACT
from streamdedup.filters.fuse.kinds import FUSE
from streamdedup.filters.kind import Kind
from streamdedup.filters.window.kinds import TABLE, WINDOW

if TYPE_CHECKING:  # these import numpy, which reading the settings does not need
    from streamdedup.filters.base import Filter
    from streamdedup.keys.hashing import Hash

_ALL = (BITMAP, BLOCKED, BLOOM, COUNTING, CUCKOO, DLCBF, DLEFT, EXACT, FUSE, WINDOW)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}
LOADED: dict[str, str] = {
    "chain": "growing.chain:Chain",
    "windows": "growing.windows:GrowingWindow",
}
"""Kinds that `build` makes only for the option `on_full: grow`, and that a saved header names."""

GROWABLE = tuple(kind.name for kind in _ALL if kind.grows)
GROWTH = 16  # without `max_size`, such a filter grows to at most 16 times its first stage
CELLED = tuple(kind.name for kind in _ALL if kind.celled)
STATIC = frozenset(kind.name for kind in _ALL if kind.static)
LISTABLE = tuple(kind.name for kind in _ALL if "window" not in kind.abilities)
"""The kinds of which lists are made: a list forgets nothing."""

WINDOW_TABLE = TABLE
"""The table of a `window`, in a snapshot's identity."""


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
    known = {**{kind.name: kind.path for kind in KINDS.values()}, **LOADED}
    if not isinstance(name, str) or name not in known:
        raise ConfigError(f"filter.kind {name!r} is unknown; choose one of: {', '.join(KINDS)}")
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(f"streamdedup.filters.{module}"), attribute)


def hash_of(name: object, key: bytes) -> "Hash":
    """The hash called `name`, under `key` if it has one."""
    from streamdedup.keys.hashing import Hash

    return Hash(str(name), key)
