"""Find out, at stream speed and in a few bits a key, whether an event has come before."""

from typing import TYPE_CHECKING, cast

from streamdedup.version import __version__

if TYPE_CHECKING:  # these import numpy, or take time, which importing this package does not need
    import os
    from collections.abc import Sequence
    from typing import Any

    from streamdedup import errors, lists
    from streamdedup.classes import (
        DLCBF,
        Addable,
        Bitmap,
        BlockedBloom,
        Bloom,
        Counting,
        Cuckoo,
        DirectBitmap,
        DLeft,
        Exact,
        Filter,
        Fuse,
        Growing,
        GrowingWindow,
        Removable,
        Unionable,
        Window,
        build,
    )
    from streamdedup.errors import FilterFullError, FilterFullWarning
    from streamdedup.filters import base
    from streamdedup.kept.kept import Kept
    from streamdedup.keys.key_normalizer import KeyNormalizer
    from streamdedup.library import ClassicBloom
    from streamdedup.lookaside import AsyncLookaside, Lookaside
    from streamdedup.snapshot.streams import Readable, Writable

__all__ = [
    "DLCBF",
    "Addable",
    "AsyncLookaside",
    "Bitmap",
    "BlockedBloom",
    "Bloom",
    "ClassicBloom",
    "Counting",
    "Cuckoo",
    "DLeft",
    "DirectBitmap",
    "Exact",
    "Filter",
    "FilterFullError",
    "FilterFullWarning",
    "Fuse",
    "Growing",
    "GrowingWindow",
    "Kept",
    "Lookaside",
    "Removable",
    "Unionable",
    "Window",
    "__version__",
    "build",
    "errors",
    "lists",
    "load",
    "normalizer",
    "open",
    "save",
]

_ELSEWHERE = {
    "streamdedup.errors": ("FilterFullError", "FilterFullWarning"),
    "streamdedup.kept.kept": ("Kept",),
    "streamdedup.library": ("ClassicBloom",),
    "streamdedup.lookaside": ("AsyncLookaside", "Lookaside"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # else every name would seem to be here

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in ("errors", "lists"):
            return import_module(f"{__name__}.{name}")
        at = (module for module, names in _ELSEWHERE.items() if name in names)
        return getattr(import_module(next(at, "streamdedup.classes")), name)


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


def save(filter_: "base.Filter", target: "str | os.PathLike[str] | Writable") -> None:
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

    Its class is that of its kind. A type checker learns it from `isinstance(found, streamdedup.Cuckoo)`, or from
    `streamdedup.Cuckoo.load`, which refuses a filter of another kind.

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

    found = library.load(source, mmap=mmap, hash_key=hash_key, verify=verify)
    return cast("Filter", found)


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
