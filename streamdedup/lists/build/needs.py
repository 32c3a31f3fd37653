"""What building a list takes of memory, known before it begins; and how much of it this machine has to give."""

import os
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage

from streamdedup.errors import ConfigError
from streamdedup.filters import STATIC
from streamdedup.filters.footprint import footprint
from streamdedup.lists.progress import sized

BESIDES_BYTES = (
    300_000_000  # Python, what it imports, what kernels compile with, and pieces of the inputs
)
HALF_BYTES = (
    8  # of each entry, where a filter is built of all at once: the second half of its digest
)
PART_BYTES = 140_000_000  # and the part of it that is being built
DOMAIN_BYTES = (
    64  # of each domain entry: its digest, those that are sorted, and its place in the table
)
EXACT_BYTES = 100_000_000  # digests on their way to an exact store, and RocksDB's index of them
EXACT_PART = 4  # a 256th of them, which is being sorted: 64 bytes each
EXACT_DISK_BYTES = 42  # of each entry: 16 until it is in the store, and what it takes there
_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Needs:
    """What is needed for the filter of addresses, and for all else, in bytes; `disk_bytes` for an exact store."""

    filter_bytes: int
    besides_bytes: int
    disk_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.filter_bytes + self.besides_bytes

    def __str__(self) -> str:
        return (
            f"{sized(self.total_bytes)} of memory: {sized(self.filter_bytes)} for the filter and"
            f" {sized(self.besides_bytes)} besides"
        )

    def refuse_above(self, available_bytes: int | None) -> None:
        """ConfigError where that is more than there is; None is unknown, and refuses nothing."""
        if available_bytes is not None and self.total_bytes > available_bytes:
            raise ConfigError(
                f"building the list needs about {self}, and {sized(available_bytes)} are available; raise --error-rate,"
                " choose another --kind (`streamdedup plan` compares them), or build it on a larger machine"
            )

    def refuse_disk_above(self, directory: Path) -> None:
        """ConfigError where the exact store takes more than is free in `directory`."""
        free_bytes = disk_usage(directory).free
        if self.disk_bytes > free_bytes:
            raise ConfigError(
                f"the exact store needs about {sized(self.disk_bytes)} of disk while it is built, and"
                f" {sized(free_bytes)} are free in {directory}; free some, or put the list elsewhere"
            )


def needs(
    kind: str, entries: int, domains: int, error_rate: float, *, exact: bool = False
) -> Needs:
    """Those of a list of so many entries, of which so many are domains, and of its store where it is to be `exact`.

    ConfigError where no filter can be that.
    """
    try:
        filter_bytes = footprint(kind, max(1, entries), error_rate).size_bytes
    except ConfigError as error:
        raise ConfigError(
            f"--kind {kind} for {entries:,} entries with --error-rate {error_rate:g}: {error}; choose another"
        ) from None
    besides_bytes = BESIDES_BYTES + domains * DOMAIN_BYTES
    if kind in STATIC:
        besides_bytes += entries * HALF_BYTES + PART_BYTES
    if not exact:
        return Needs(filter_bytes, besides_bytes)
    besides_bytes += EXACT_BYTES + entries // EXACT_PART
    return Needs(filter_bytes, besides_bytes, entries * EXACT_DISK_BYTES)


def available_bytes() -> int | None:
    """What may still be taken on this machine, and within the control group that Linux runs us in; None if unknown."""
    found = [some for some in (_of_machine(), _of_group()) if some is not None]
    return min(found, default=None)


def _of_machine() -> int | None:
    """Where the system does not tell what is free, as macOS, all that there is."""
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _of_group() -> int | None:
    """Its limit less what cannot be given back: pages of files can."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        taken = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return max(0, limit - int(taken["anon"]))
    except (OSError, ValueError, KeyError):  # no such group, or "max": no limit
        return None
