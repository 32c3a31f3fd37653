"""Find out, at stream speed and in a few bits a key, whether an event has come before."""

from typing import TYPE_CHECKING

from streamdedup.version import __version__

if TYPE_CHECKING:  # these import numpy, which importing this package does not need
    import os
    from collections.abc import Mapping, Sequence
    from typing import Any

    from streamdedup.errors import FilterFullError, FilterFullWarning
    from streamdedup.filters.base import Addable, Filter
    from streamdedup.kept.kept import Kept
    from streamdedup.keys.key_normalizer import KeyNormalizer
    from streamdedup.library import ClassicBloom
    from streamdedup.lookaside import AsyncLookaside, Lookaside
    from streamdedup.snapshot.streams import Readable, Writable

__all__ = [
    "AsyncLookaside",
    "ClassicBloom",
    "FilterFullError",
    "FilterFullWarning",
    "Kept",
    "Lookaside",
    "__version__",
    "build",
    "load",
    "normalizer",
    "open",
    "save",
]

_CLASSES = {
    "AsyncLookaside": "streamdedup.lookaside",
    "ClassicBloom": "streamdedup.library",
    "FilterFullError": "streamdedup.errors",
    "FilterFullWarning": "streamdedup.errors",
    "Kept": "streamdedup.kept.kept",
    "Lookaside": "streamdedup.lookaside",
}


def __getattr__(name: str) -> object:
    if name in _CLASSES:
        from importlib import import_module

        return getattr(import_module(_CLASSES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def build(config: "Mapping[str, Any]") -> "Addable":
    """Return an empty filter of `config["kind"]`, with the rest of `config` as its options. Threads may share it.

    It is a set: `add` returns False for a key that it has, and changes nothing. `capacity`: the number of distinct keys
    it is for, however often each comes, an integer or text such as "100M". `error_rate`: its greatest error rate with
    that many keys; 1e-6 unless given. `on_full`: what it does with a new key beyond its capacity. `warn`, the default,
    gives a FilterFullWarning, once for each filter, and adds the key: the error rate grows, and so may the memory.
    `stop` raises FilterFullError and changes nothing; `add_many` then adds nothing of the call. `grow`: see below.

    `hash`: `murmur3` (the default), or `siphash` with `hash_key`, 16 bytes. `normalize`: a name that `normalizer`
    takes, or what it returns, by which `add`, `in` and `digests` then change keys first; MalformedError if a key has no
    such form. It is saved with the filter. Further options by kind:

    - `bloom`, `counting`: `probe` (`standard` or `double`); `blocked`: none
    - `counting`, `cuckoo`, `dleft`, `dlcbf`: `multiset` (False). With True, each addition of a key counts, and
      `discard` takes one back. The file says so, and a set and a multiset have no union
    - `dlcbf`: `permutations` (`any` or `published`); `exact`: `fingerprint_bytes` (8 or 16), `load` (0.5 to 0.9)
    - `bitmap`: `probe`, with an `error_rate` of 0.01 unless given; or `range`, [a, b], for integers, with an optional
      `capacity`
    - `window`: `retention` in ms or as text ("7d"), without which it remembers the last `capacity` keys; `generations`
      (31), `late` (`pass` or `drop`), `refresh`, `max_jump`. `capacity` is then the most distinct keys of any span of
      `retention` and one generation
    - `fuse`: `keys`, as `digests` takes them, and no `capacity`. It is built from these keys and can only be asked:
      `build({"kind": "fuse", "keys": ["a", "b"], "error_rate": 0.01})` returns a `Static` filter, not an `Addable` one

    With `on_full: grow`, all kinds but `bitmap` and `fuse` take more memory as keys come, within `error_rate`, up to
    `max_size`, in bytes or as text ("4GiB"). Such a filter can only add: it has no `discard` and no `|=`. A `window`,
    which then needs a `retention`, gives memory back as it forgets; by count it is never full. `f.capacity` is then the
    number of keys that `max_size` permits, and beyond it the filter does as with `warn`. `f.error_rate_now` and
    `f.size_bytes` show how far beyond its capacity it is.

    ConfigError if an option does not fit; it names the option, its value and the remedy. `keys` raise the TypeError or
    ValueError of `digests`.
    """
    from streamdedup import library

    return library.build(config)


def normalizer(name: str, **rules: "str | bool | Sequence[str]") -> "KeyNormalizer":
    """Return what changes keys as the worker's `key.normalize` does: `trim`, `lowercase`, `email` or `url`.

    Its `key(text)` returns one key as `str`; MalformedError if it has no such form. Its `column(keys)` takes what
    `digests` takes. It returns `keys`, those that have one, for `digests` of a filter without `normalize`; and
    `malformed`, the reason for each other row.

    Rules of `email`: `preset` (`provider` or `strict`), `tags`, `dots`, `aliases`, each True or False. Rules of `url`:
    `tracking`, `slash`, `www`, `scheme`, `fragments`, `port`, `dot`, `order`, each False unless given; and `ignore`, a
    list of names of parameters.

    ConfigError if a name or a rule is unknown.
    """
    from streamdedup.keys.key_normalizer import KeyNormalizer

    return KeyNormalizer.of(name, **rules)


def save(filter_: "Filter", target: "str | os.PathLike[str] | Writable") -> None:
    """Put `filter_` at the path `target`, with mode 0600. The file is replaced whole or not at all. Blocking.

    A binary file object (what has `write`) gets the same bytes; it is neither flushed nor closed. The file holds what
    was added before the call. Other threads that use the filter wait until this returns; if its kind only sets bits
    (`bitmap`, `bloom`, `blocked`) and it does not grow, they do not. A `hash_key` is not saved; the secret that a
    worker drew is.

    SnapshotError: the save failed. Then the path holds the old file, or the new one, which a loss of power may still
    take back; a file object, any part of it.
    """
    from streamdedup import library

    library.save(filter_, target)


def load(
    source: "str | os.PathLike[str] | Readable",
    *,
    mmap: bool = False,
    hash_key: bytes = b"",
    verify: bool = True,
) -> "Filter":
    """Return the filter that `save` or a worker saved at the path `source`. Blocking.

    A binary file object (what has `read`) is read to the end of the filter, where another one may begin.

    For siphash, pass the `hash_key` of `build`, unless a worker drew its secret: that is in the file.

    With `mmap` the filter stands on the mapped file, which all processes that map it share, and refuses changes.
    Replace such a file by `save` or a rename: if it is cut short or written to, or its disk fails, answers are wrong,
    or SIGBUS kills the process. With `verify=False` the checksums of a mapped file are not compared, so damage to its
    table is not found; everything else is checked. A `fuse` filter is then ready at once, whatever its size, because
    its table is read only as it is asked. Other kinds count their contents once.

    A filter that was built with `normalize`, `multiset` or `on_full: stop` does so again, as its file says.

    SnapshotError: the file cannot be read or is damaged, or this Python would normalize its keys differently.
    ConfigError: `hash_key` is wrong, or the file is a list, which `streamdedup.lists.load` loads.
    """
    from streamdedup import library

    return library.load(source, mmap=mmap, hash_key=hash_key, verify=verify)


def open(  # noqa: A001 - as `gzip.open`
    directory: "str | os.PathLike[str]",
    **options: "Any",  # noqa: ANN401 - those of `build`
) -> "Kept":
    """Return the filter that is kept in `directory`; if there is none, make one, with the options of `build`. Blocking.

    Its `add`, `update`, `discard` and `clear` change the filter at once, and a thread writes each change to the
    directory: it is on the disk, by fsync, within a second, or when `flush` returns. If the process is killed, or the
    power is lost, the next call returns the filter with all that was there. Use it as a context manager, or call
    `close`; at the end of the process that is called, too. One process at a time has a directory.

    Every kind but `fuse`, and every option of `build`, can be kept; `max_size` may be another each time. Options that
    are given again must be the same, and those that are left out are as they were. Unless `hash` is given, it is
    siphash under a new secret, which is saved in the directory; a `hash_key` is not saved, and is given each time.

    ConfigError if an option does not fit or is not the one with which the filter was made, if a new one lacks its kind,
    or if the directory is in use. SnapshotError if it cannot be read or written, or what is in it is damaged.
    """
    from streamdedup.kept.kept import kept

    return kept(directory, options)
