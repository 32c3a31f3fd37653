"""With which options of `build` a filter was made, and which others differ from them."""

from collections.abc import Iterable, Mapping
from typing import Any

from streamdedup.filters.base import Growing
from streamdedup.filters.kinds import KINDS
from streamdedup.library.full import WARN


def kind_within(one: Any) -> str:
    """Return the kind of a filter; if it grows, that of its stages."""
    return str(getattr(one, "_of", one.kind))


def options_of(one: Any) -> dict[str, Any]:
    """Return the options of `build` with which `one` was built, but for those of its hash, and for its `max_size`."""
    header = one.header()
    kind = kind_within(one)
    stated = one._options if one.kind == "chain" else header
    own = {name: stated[name] for name in KINDS[kind].options if stated.get(name) is not None}
    if "range" not in own:
        own["error_rate"] = header["error_rate"]
    if isinstance(one, Growing):
        own["on_full"] = "grow"
    return {"kind": kind, "capacity": header["capacity"], **own}


def stated(one: Any) -> dict[str, Any]:
    """Return the options of `build` with which a filter was made, but for `max_size` and `hash_key`."""
    header = one.header()
    found = options_of(one)
    found.setdefault("on_full", header.get("on_full", WARN))
    if "multiset" in KINDS[found["kind"]].options:
        found.setdefault("multiset", False)
    return found | {name: header[name] for name in ("hash", "normalize") if name in header}


def differing(
    asked: Mapping[str, Any], there: Mapping[str, Any], names: Iterable[str] = ()
) -> list[str]:
    """Return which options, of `names` or of all that are asked for, differ from those `there`, a filter's own."""
    return [name for name in names or asked if asked.get(name) != there.get(name)]
