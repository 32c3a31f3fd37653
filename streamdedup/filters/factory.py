"""`build` checks each option that it is given against those the kind accepts, before it makes a filter from them."""

from collections.abc import Callable, Mapping
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable
from streamdedup.filters.digest_filter import CAPACITY_MAX, is_rate
from streamdedup.filters.kinds import GROWABLE, KINDS, LOADED, STATIC, hash_of, kind_of
from streamdedup.units import nearest, parse_count

if TYPE_CHECKING:  # it imports numpy, which an error in the options does not need
    from streamdedup.keys.hashing import Hash

COMMON = ("capacity", "error_rate", "hash", "hash_key", "normalize")
GROWING = ("on_full", "max_size")
SHOWN_MAX = 60  # the characters of a value that a message shows


def build(config: Mapping[str, Any], hash_: "Hash | None") -> Addable:
    """Make an empty filter, as `streamdedup.filters.build` describes."""
    if not isinstance(config, Mapping):
        raise ConfigError(
            'build takes a mapping, such as {"kind": "bloom", "capacity": 1_000_000}, and not'
            f" {_shown(config)}"
        )
    arguments = dict(config)
    kind = _kind(arguments)
    grows = _grows(kind, arguments)
    for name in arguments:
        _check(kind, name)
    if kind == "bitmap":
        _check_range(arguments)
    if "multiset" in arguments:
        _check_multiset(arguments, grows=grows)
    named = hash_of(arguments.pop("hash", "murmur3"), arguments.pop("hash_key", b""))
    hash_ = named if hash_ is None else hash_
    if (normalize := arguments.pop("normalize", "none")) not in (None, "none"):
        hash_ = _normalizing(hash_, normalize)
    if is_rate(arguments.get("error_rate")):
        arguments["error_rate"] = float(arguments["error_rate"])  # it may have one of numpy's types
    if kind == "fuse":
        return _list_of(arguments, hash_)
    if "capacity" in arguments:
        arguments["capacity"] = _capacity(arguments["capacity"])
    elif "range" not in arguments:
        raise ConfigError(
            "filter.capacity is required: how many keys the filter is for; give it, as in"
            f' {{"kind": "{kind}", "capacity": 1_000_000}}'
        )
    return _maker(kind, grows=grows)(**arguments, hash_=hash_)


def _normalizing(hash_: "Hash", normalize: object) -> "Hash":
    from streamdedup.keys.key_normalizer import KeyNormalizer, NormalizingHash

    if not isinstance(normalize, KeyNormalizer):
        normalize = KeyNormalizer.of(normalize)
    return NormalizingHash.over(hash_, normalize)


def _maker(kind: str, *, grows: bool) -> Callable[..., Addable]:
    if not grows:
        return cast("Callable[..., Addable]", kind_of(kind))
    return kind_of("windows") if kind == "window" else partial(kind_of("chain"), kind)


def _kind(arguments: dict[str, Any]) -> str:
    """Take the kind out of `arguments`."""
    if "kind" not in arguments:
        raise ConfigError(f"filter.kind is required; choose one of: {', '.join(KINDS)}")
    kind = arguments.pop("kind")
    if isinstance(kind, str) and kind in LOADED:
        raise ConfigError(
            f"filter.kind {kind} is made by on_full: grow, from another kind; choose one of: {', '.join(GROWABLE)}"
        )
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(
            f"filter.kind {_shown(kind)} is unknown; choose one of: {', '.join(KINDS)}"
        )
    return kind


def _grows(kind: str, arguments: dict[str, Any]) -> bool:
    """Whether a chain is asked for. Takes `on_full` out of `arguments`."""
    if "on_full" not in arguments:
        if "max_size" in arguments:
            raise ConfigError(
                "filter.max_size is the size to which a filter may grow; give filter.on_full: grow, or leave it out"
            )
        return False
    on_full = arguments.pop("on_full")
    if kind in STATIC:
        raise ConfigError(
            f"filter.on_full is not for filter.kind {kind}, which takes no key after it is built; leave it out"
        )
    if on_full != "grow":
        raise ConfigError(
            f"filter.on_full {_shown(on_full)} is unknown; choose one of: warn, stop, grow"
        )
    if kind not in GROWABLE:
        raise ConfigError(
            f"filter.on_full grow is not for filter.kind {kind}: {KINDS[kind].no_stages}; leave filter.on_full out, or"
            f" choose one of: {', '.join(GROWABLE)}"
        )
    return True


def _check(kind: str, name: object) -> None:
    """Raise ConfigError unless the kind accepts the option."""
    own = (*COMMON, *KINDS[kind].options, *(GROWING if kind in GROWABLE else ()))
    if name in own:
        return
    if takers := [other.name for other in KINDS.values() if name in other.options]:
        raise ConfigError(
            f"filter.{name} is not for filter.kind {kind}, but for {', '.join(takers)}; leave it out, or choose"
            f" {'that kind' if len(takers) == 1 else 'one of these'}"
        )
    near = nearest(str(name), ("kind", *own))
    advice = f"did you mean {near}?" if near else f"{kind} takes {', '.join(own)}"
    raise ConfigError(f"filter.{name!s:.{SHOWN_MAX}} is unknown; {advice}")


def _check_range(arguments: dict[str, Any]) -> None:
    """Raise ConfigError if options of hashing come with a `range`, because a bitmap with a range hashes nothing.

    A `range` of None is removed: the bitmap is then the one by hash.
    """
    if arguments.get("range") is None:
        arguments.pop("range", None)
        return
    for name in ("error_rate", "probe", "normalize"):
        if name in arguments:
            raise ConfigError(
                f"filter.{name} means nothing with filter.range: a bit for each integer makes no errors, and nothing is"
                " hashed; leave it out"
            )


def _check_multiset(arguments: dict[str, Any], *, grows: bool) -> None:
    multiset = arguments["multiset"]
    if type(multiset) is not bool:
        raise ConfigError(f"filter.multiset is {_shown(multiset)}; it must be True or False")
    if grows:
        if multiset:
            raise ConfigError(
                "filter.multiset is not for filter.on_full grow: a filter that grows is a set, from which no key is"
                " taken; leave one of them out"
            )
        del arguments["multiset"]


def _capacity(given: object) -> int:
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    if not isinstance(given, str):
        raise ConfigError(
            f"filter.capacity is {_shown(given)}; it must be an integer from 1 to {CAPACITY_MAX}, or text, such as 100M"
        )
    try:
        return parse_count(given)
    except ValueError as error:
        raise ConfigError(f"filter.capacity {_shown(given)} {error}") from None


def _list_of(arguments: dict[str, Any], hash_: "Hash") -> Addable:
    """Make a fuse filter. It is no `Addable`, although the return type says so; `kind` identifies it."""
    if "keys" not in arguments:
        raise ConfigError(
            "filter.keys is required for filter.kind fuse, which is built once, from all of its keys, as in"
            ' {"kind": "fuse", "keys": ["a", "b"], "error_rate": 0.01}; give them, or choose another kind'
        )
    if "capacity" in arguments:
        raise ConfigError(
            "filter.capacity is not for filter.kind fuse, which is made for the keys that it is given; leave it out"
        )
    digests = hash_.digests(arguments.pop("keys"))
    return cast("Addable", kind_of("fuse").from_digests(digests, **arguments, hash_=hash_))


def _shown(given: object) -> str:
    return f"{given!r:.{SHOWN_MAX}}"
