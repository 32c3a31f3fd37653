"""Filters of the library are saved to files, to file objects and as bytes, and loaded from them."""

import io
from contextlib import nullcontext
from os import path
from typing import TYPE_CHECKING, TypeVar, cast

from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.filters.base import Filter, Growing
from streamdedup.filters.kinds import STATIC
from streamdedup.library.content import Content

if TYPE_CHECKING:  # a filter that is neither saved nor loaded does without
    from streamdedup.classes import Source, Target
    from streamdedup.snapshot.files import Make
    from streamdedup.snapshot.streams import Readable, Writable

F = TypeVar("F")


class Saved(Content):
    """What a filter has more if it can be saved: `classes` documents its public methods."""

    def save(self, target: "Target") -> None:
        save(cast("Filter", self), target)

    def to_bytes(self) -> bytes:
        target = io.BytesIO()
        self.save(target)
        return target.getvalue()


def save(filter_: Filter, target: "Target") -> None:
    """Save `filter_`. Other threads wait meanwhile if they could do more than set bits."""
    from streamdedup.snapshot import files, streams

    changes = isinstance(filter_, Content) and filter_.kind not in STATIC
    waits = changes and (isinstance(filter_, Growing) or not filter_.only_sets_bits)
    with cast("Content", filter_)._alone() if waits else nullcontext():
        if hasattr(target, "write"):
            streams.write(filter_, cast("Writable", target))
        else:
            files.save(filter_, target)


def load(
    source: "Source", *, mmap: bool, hash_key: bytes, verify: bool, make: "Make[Filter]"
) -> Filter:
    """Load a filter from a path or a file object. `make` builds it from its parts."""
    from streamdedup.snapshot import files, streams

    if not hasattr(source, "read"):
        if path.isdir(source):  # noqa: PTH112 - False of what no path can be
            raise SnapshotError(
                f"cannot load {source}: it is a directory; name a file, or open what is kept there by streamdedup.open"
            )
        return files.load(source, mmap=mmap, hash_key=hash_key, verify=verify, make=make)
    if mmap or not verify:
        raise ConfigError(
            "mmap=True and verify=False need the path of a file, not a file object; give that, or leave them out"
        )
    return streams.read(cast("Readable", source), hash_key, make)


def of_class(class_: type[F], made: Filter) -> F:
    """Return a filter that was loaded. ConfigError if it is not of this class."""
    if not isinstance(made, class_):
        raise ConfigError(
            f"what was loaded, {made!r}, is no {class_.__name__}; load it by streamdedup.load"
        )
    return made
