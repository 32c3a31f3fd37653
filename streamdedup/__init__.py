"""Tell, at stream speed and in a few bits a key, whether an event has been seen before."""

from typing import TYPE_CHECKING

from streamdedup.version import __version__

if TYPE_CHECKING:  # they bring numpy and numba, which importing this package does without
    import os
    from collections.abc import Mapping
    from typing import Any

    from streamdedup.filters.base import Addable, Filter
    from streamdedup.filters.bloom.classic import ClassicBloom

__all__ = ["ClassicBloom", "__version__", "build", "load", "save"]


def __getattr__(name: str) -> object:
    if name == "ClassicBloom":
        from streamdedup.filters.bloom.classic import ClassicBloom

        return ClassicBloom
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def build(config: "Mapping[str, Any]") -> "Addable":
    """An empty filter of `config["kind"]`, with the rest of `config` as its options.

    `capacity`: how many keys it is for, an integer or text, as "100M". `error_rate`: at most, with so many in it; 1e-6
    unless given. `hash`: `murmur3` (the default), or `siphash` with `hash_key`, 16 bytes. And, by kind:

    - `bloom`, `counting`: `probe` (`standard` or `double`); `blocked`, `cuckoo`, `dleft`: none
    - `dlcbf`: `permutations` (`any` or `published`); `exact`: `fingerprint_bytes` (8 or 16), `load` (0.5 to 0.9)
    - `bitmap`: `probe`, with an `error_rate` of 0.01 unless given; or `range`, [a, b], for integers, with a `capacity`
      only if wanted
    - `window`: `retention` in ms or as text ("7d"), without which it remembers the last `capacity` keys; `generations`
      (8), `late` (`pass` or `drop`), `refresh`, `max_jump`, `probe`
    - `fuse`: `keys`, as `digests` takes them, and no `capacity`: it is built of them, and only asked:
      `build({"kind": "fuse", "keys": ["a", "b"], "error_rate": 0.01})` is a `Static` filter, no `Addable` one

    With `on_full: grow`, all but `bitmap`, `fuse` and `window` take more memory as keys come, within `error_rate`, up
    to `max_size`, in bytes or as text ("4GiB"); such a filter only adds: no `discard`, no `|=`. Filters never refuse a
    key: beyond `capacity`, which is then that of all that `max_size` permits, the error rate grows, and so may the
    memory. `len(f) > f.capacity` tells it, `f.error_rate_now` and `f.size_bytes` tell how far.

    ConfigError, with the option, its value and what to do, where one does not fit; TypeError or ValueError of `digests`
    for `keys`.
    """
    from streamdedup import filters

    return filters.build(config)


def save(filter_: "Filter", path: "str | os.PathLike[str]") -> None:
    """Put `filter_` at `path`, which is replaced whole or not at all, with mode 0600. Blocking.

    Other threads may add meanwhile where bits are only ever set (`bitmap`, `bloom`, `blocked`): what they added before
    is in the file. Other kinds must be left alone until this returns. A `hash_key` is not saved.

    SnapshotError: at `path` is what was there, or the new file, which a loss of power may still take back. So, too,
    where a filter got another stage meanwhile (`on_full: grow`): save it again.
    """
    from streamdedup.snapshot import files

    files.save(filter_, path)


def load(
    path: "str | os.PathLike[str]",
    *,
    mmap: bool = False,
    hash_key: bytes = b"",
    verify: bool = True,
) -> "Filter":
    """The filter that was saved at `path`, by `save` or by a worker; siphash takes the `hash_key` of `build`. Blocking.

    With `mmap` it stands on the mapped file, shared by all processes that map it, and refuses changes. Replace such a
    file by `save` or a rename: where one is cut short or written to, or its disk fails, answers are wrong, or SIGBUS
    kills the process. With `verify=False` the checksums of a map are not compared, so damage to its table is not found;
    all else is checked. A `fuse` filter is then there at once, whatever its size: its table is read as it is asked.
    Other kinds count once what is in theirs.

    SnapshotError: the file cannot be read, or must not be believed. ConfigError: `hash_key` is wrong, or it is a list,
    which `streamdedup.lists.load` loads.
    """
    from streamdedup.snapshot import files

    return files.load(path, mmap=mmap, hash_key=hash_key, verify=verify)
