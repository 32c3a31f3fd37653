"""The filters of the library that its tests are run over: every kind, as a set, as a multiset, and growing."""

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

import streamdedup
from streamdedup.filters import GROWABLE, KINDS, STATIC
from streamdedup.library import subclass

SETS = sorted(set(KINDS) - STATIC)
HOLDING: list[tuple[str, Mapping[str, Any]]] = [
    *((kind, {}) for kind in SETS),
    *((kind, {"multiset": True}) for kind in SETS if "multiset" in KINDS[kind].options),
    *((kind, {"on_full": "grow", "max_size": "64MiB"}) for kind in GROWABLE),
]
"""Those that hold as many digests as they are made for."""

WAYS = [*HOLDING, ("window", {"retention": None}), ("bitmap", {"range": [0, 99_999]})]
ways = pytest.mark.parametrize(("kind", "options"), WAYS, ids=str)


def config_of(kind: str, capacity: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """What `build` makes it from; it errs too seldom to notice."""
    rate = {"bitmap": 1e-5, "blocked": 1e-7}.get(kind, 1e-9)
    config: dict[str, Any] = {"kind": kind, "capacity": capacity, **options}
    if kind == "exact":
        config.setdefault("fingerprint_bytes", 16)
    if "range" not in config:
        config["error_rate"] = rate
    if kind == "window" and "retention" not in config:
        config["retention"] = "1d"
    return {name: value for name, value in config.items() if value is not None}


def built(kind: str, capacity: int, **options: Any) -> Any:
    """An empty filter."""
    return streamdedup.build(config_of(kind, capacity, options))


def in_time(seen: Any, times: Any) -> list[Any]:
    """The times that a window by time takes."""
    return [times] if hasattr(seen, "clock") and not seen.clock.by_count else []


def keys_of(seen: Any, numbers: Any) -> Any:
    """The integers of a range, or the digests of these numbers."""
    return (
        numbers if hasattr(seen, "range") else seen.digests([b"%d" % number for number in numbers])
    )


def key_of(seen: Any, number: int) -> Any:
    """One of them as a single key."""
    return number if hasattr(seen, "range") else b"%d" % number


@contextmanager
def no_builtins() -> Iterator[None]:
    """Within this context, filters of the library are made as where there can be no builtins: all is Python's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subclass, "usable", lambda: False)
        patch.setattr(subclass, "class_over", cache(subclass.class_over.__wrapped__))
        yield


def has_builtins(way: tuple[str, Mapping[str, Any]]) -> bool:
    """All filters have, but those of integers."""
    return "range" not in way[1]


def pickled(seen: Any) -> Any:
    """What another process would get of it."""
    return pickle.loads(pickle.dumps(seen))  # noqa: S301 - our own
