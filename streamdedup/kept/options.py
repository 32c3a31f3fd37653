"""The options of a kept filter: those with which it was made hold, whether a program gives them again or not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamdedup import library
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable, Growing
from streamdedup.filters.kinds import STATIC
from streamdedup.keys.hashing import Hash


def empty(path: Path, options: Mapping[str, Any]) -> Addable:
    """Return an empty filter with the options of `streamdedup.build`, for the directory `path`.

    Unless they name a hash, it is siphash under a new secret, which is saved with the filter. ConfigError if they do
    not fit, or lack a kind.
    """
    if "kind" not in options:
        raise ConfigError(
            f"there is no filter in {path}, and a new one needs a kind and a capacity: give them, as in"
            f' streamdedup.open("{path}", kind="cuckoo", capacity=1_000_000), or correct the path'
        )
    if options["kind"] in tuple(STATIC):
        raise ConfigError(
            f"kind {options['kind']} is built once, from all of its keys, so there would be nothing to keep; save it by"
            " streamdedup.save, or choose another kind"
        )
    name = options.get("hash", "siphash" if options.get("range") is None else "murmur3")
    draws = name == "siphash" and not options.get("hash_key")
    return library.build(options, Hash.draw() if draws else None)


def check_same(path: Path, filter_: Addable, options: Mapping[str, Any]) -> None:
    """ConfigError, which names them, if `options` differ from those with which the filter in `path` was made."""
    there = library.stated(filter_)
    given = {name: options[name] for name in library.differing(options, there)}
    if "kind" in given:
        asked = given = {"kind": given["kind"]}
    elif given.keys() - {"hash_key", *(["max_size"] if isinstance(filter_, Growing) else [])}:
        asked = {**library.stated(_made_like(filter_, there, given)), "hash": given.get("hash")}
    else:
        return
    wrong = [
        f"{name} is {asked.get(name)!r:.60}, but the filter in {path} was made with {there.get(name)!r:.60}"
        for name in library.differing(asked, there, given)
    ]
    if wrong:
        raise ConfigError(
            f"{'; '.join(wrong)}; leave {'it' if len(wrong) == 1 else 'them'} out, or choose a new directory"
        )


def _made_like(filter_: Addable, there: Mapping[str, Any], given: Mapping[str, Any]) -> Addable:
    """An empty filter with the options of the one that is there, but for those that are given."""
    options = {**there, **given}
    if "normalize" not in given and "normalize" in there:
        from streamdedup.keys.key_normalizer import KeyNormalizer

        options["normalize"] = KeyNormalizer.from_header(there["normalize"])
    for name in ("hash", "hash_key"):
        options.pop(name, None)
    hash_ = filter_.hash
    return library.build(options, Hash(hash_.name, hash_.key, hash_.drawn))


def permitted(filter_: Addable, options: Mapping[str, Any]) -> Addable:
    """Return `filter_`, which may grow to another `max_size` from now on if the options have one."""
    if isinstance(filter_, Growing) and "max_size" in options:
        filter_.permit(options["max_size"])
    return filter_
