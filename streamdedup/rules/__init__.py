"""The rules: from digests to verdicts."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from streamdedup import filters
from streamdedup.filters import stash
from streamdedup.filters.base import Addable, Growing
from streamdedup.filters.exact import digest_map
from streamdedup.filters.no_filter import NoFilter
from streamdedup.filters.window.protocol import Windowed
from streamdedup.filters.window.window import warm_up as warm_up_window
from streamdedup.keys import join, placement, sampling
from streamdedup.keys.formats import json_column, json_exact
from streamdedup.keys.formats.schemas import Schemas
from streamdedup.keys.hashing import HASHES, SECRET_BYTES, Hash
from streamdedup.keys.normalizers import ascii_text, domains, email_column, host_column, url_column
from streamdedup.keys.options import SCHEMA_FORMATS
from streamdedup.rules import pending, pending_in_time
from streamdedup.rules.duplicates import Duplicates, DuplicatesRule
from streamdedup.rules.pass_all import PassAll
from streamdedup.rules.window import DuplicatesWithin

__all__ = ["DuplicatesRule", "duplicates_rule", "warm_up", "warm_up_all"]


def duplicates_rule(filter_: Addable | Windowed) -> DuplicatesRule:
    """Return the duplicates rule over the filter `filter_`, chosen by what that filter can do."""
    if isinstance(filter_, NoFilter):
        return PassAll()
    return DuplicatesWithin(filter_) if isinstance(filter_, Windowed) else Duplicates(filter_)


def warm_up(scratch: Addable | Windowed) -> None:
    """Compile the kernels of the rule over `scratch`, or load them from the cache.

    `scratch` cannot be used afterwards.
    """
    scratch.hash.warm_up()
    sampling.warm_up()
    stash.warm_up()
    pending.warm_up()
    one, time = np.zeros((1, 2), dtype=np.uint64), np.zeros(1, dtype=np.int64)
    rule = duplicates_rule(scratch)
    for _ in range(2):  # without pending keys, and with some
        rule.judge(one, time, within_budget=True)
    for steps in (rule.admit(), rule.fold(one, time)):
        deque(steps, maxlen=0)
    if isinstance(scratch, Windowed):
        warm_up_window()
        pending_in_time.warm_up(scratch.clock)
        scratch.add_many(one, None if scratch.clock.by_count else time)
    if not isinstance(scratch, NoFilter):
        _load_small(scratch)


def _load_small(like: Addable | Windowed) -> None:
    """Load a saved filter that is like this one but small, since a large one is read as a whole.

    A window is swept, too, as when its time goes on.
    """
    config: dict[str, Any] = {"kind": like.kind, "capacity": 10}
    if isinstance(like, Windowed):
        config |= {"kind": "window"} if like.clock.by_count else {"kind": "window", "retention": 10}
    elif isinstance(like, Growing):
        config |= {"kind": like.header()["stages"][0]["kind"]}
    if isinstance(like, Growing):
        config |= {"on_full": "grow"}
    small = filters.build(config)
    if isinstance(small, Windowed):
        small.add_many(
            np.zeros((1, 2), np.uint64), None if small.clock.by_count else np.zeros(1, np.int64)
        )
    loaded = filters.from_parts(small.header(), small.buffers())
    if isinstance(loaded, Windowed):
        deque(loaded.rotate(100 * loaded.clock.slot), maxlen=0)


def warm_up_all() -> None:
    """Compile the kernels of every possible configuration of a worker, or load them from the cache.

    This is for the build of an image.
    """
    json_column.warm_up()
    json_exact.warm_up()
    for kind in SCHEMA_FORMATS:
        Schemas(kind, [("",)]).warm_up()
    join.warm_up()
    placement.warm_up()
    ascii_text.warm_up()
    email_column.warm_up()
    url_column.warm_up()
    domains.warm_up()
    host_column.warm_up()
    digest_map.warm_up()
    for name in HASHES:
        Hash(name, bytes(SECRET_BYTES) if name == "siphash" else b"").warm_up()
    for config in _all_kinds():
        warm_up(filters.build({"capacity": 1000, "error_rate": 1e-3, **config}))
    filters.build({"kind": "fuse", "keys": ["a"], "error_rate": 1e-3}).contains_many(
        np.zeros((1, 2), dtype=np.uint64)
    )


def _all_kinds() -> Iterator[dict[str, Any]]:
    """Yield each kind of filter, and each option of it that selects other kernels."""
    for name, kind in filters.KINDS.items():
        if kind.static:
            continue
        yield {"kind": name}
        if "probe" in kind.options:
            yield {"kind": name, "probe": "double"}
        if kind.grows:
            timed = {"retention": "1d"} if "retention" in kind.options else {}
            yield {"kind": name, "on_full": "grow", **timed}
    yield {"kind": "window", "retention": "1d"}
