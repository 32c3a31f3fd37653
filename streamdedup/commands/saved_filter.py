"""The filter of `pipe` between runs: `--load FILE`, and `--save FILE`.

The file is one of `snapshot.files`, with the secret of its hash, and beside the filter's own header it says which keys
its lines had (`LINES`). FILE is replaced after a run that ended well, and by no other: a run that fails may be repeated
with the same input, and lets the same lines pass again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable, Filter
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import Hash
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import Normalization, UrlRules
from streamdedup.snapshot import files

LINES = "lines"
_OPTIONS = {"kind": "--kind", "capacity": "--capacity", "error_rate": "--error-rate"}
_OPTIONS |= {"hash": "--hash", "key": "--key", "normalize": "--normalize (with its rules)"}


def lines_of(
    keys: Sequence[str], normalize: Normalization, rules: UrlRules | None
) -> dict[str, Any]:
    """Return what a file says of the lines: which keys they have, and how these are normalized."""
    normal = normalizer(normalize, rules)
    return {"key": list(keys), "normalize": normal.id if normal else "none"}


def load(path: Path, given: Mapping[str, Any], lines: Mapping[str, Any]) -> Addable:
    """Return the filter that is saved at `path`.

    `given` are the options that were given of `kind`, `capacity`, `error_rate` and `hash`; `lines` says which keys the
    lines have. SnapshotError if the file cannot be read or is damaged, ConfigError if it is of other options, or takes
    no lines.
    """
    headers: list[Mapping[str, Any]] = []

    def make(header: Mapping[str, Any], buffers: list[memoryview], hash_: Hash) -> Filter:
        headers.append(header)
        return filters.from_parts(header, buffers, hash_)

    try:
        found = files.load(path, make=make)
    except files.OtherHashError:
        raise ConfigError(
            f"--load {path}: the secret of its hash is in no file, so pipe cannot use it; begin another file"
        ) from None
    (header,) = headers
    if isinstance(found, Windowed) and not found.clock.by_count:
        raise ConfigError(
            f"--load {path}: it forgets by time, and lines have none; begin another file"
        )
    if not isinstance(found, Addable) or hasattr(found, "range") or "normalize" in header:
        raise ConfigError(f"--load {path}: it is not for the keys of lines; begin another file")
    _check(path, found, header.get(LINES, lines), {**given, **lines})
    return found


def _check(path: Path, found: Addable, lines: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """ConfigError unless what is asked for is what was saved; an error rate may be less."""
    from streamdedup import library  # which a run without --load does without

    there = {**library.stated(found), **lines}
    for name in library.differing(asked, there):
        if name == "error_rate" and there[name] < asked[name]:
            continue
        raise ConfigError(
            f"--load {path}: {_OPTIONS[name]} is {_shown(asked[name])}, and was {_shown(there[name])} when it was"
            " saved; give the same, or begin another file"
        )


def _shown(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class SavedFilter:
    """A filter with what its file says of the lines, as `files.save` takes it."""

    filter: Addable
    lines: Mapping[str, Any]

    @property
    def hash(self) -> Hash:
        """The hash, with the secret that the file keeps."""
        return self.filter.hash

    def header(self) -> dict[str, Any]:
        """The header of the filter, and `LINES`."""
        return {**self.filter.header(), LINES: dict(self.lines)}

    def buffers(self) -> list[memoryview]:
        """The table."""
        return self.filter.buffers()

    def save(self, path: Path) -> None:
        """Replace the file at `path`, or leave it as it is and raise SnapshotError."""
        files.save(self, path)
