"""The memory and disk that building a list needs, known before it begins; and the memory that this machine has left."""

import os
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage

from streamdedup.errors import ConfigError
from streamdedup.filters.kinds import KINDS, STATIC
from streamdedup.units import sized

# Python, its imports, the compiler of the kernels, and pieces of the inputs.
BESIDES_BYTES = 300_000_000
# For each entry, if the filter is built from all entries at once: the second half of its digest.
HALF_BYTES = 8
# And the part of such a filter that is being built.
PART_BYTES = 140_000_000
# For each domain entry: its digest, a sorted copy, and its place in the table.
DOMAIN_BYTES = 64
# Digests on their way to an exact store.
EXACT_BUFFER_BYTES = 100_000_000
# One byte for this many entries: a 256th of the entries is sorted at a time, with 64 bytes each.
EXACT_PART = 4
# For each entry on disk: its digest in the store, and once more until the store is complete.
EXACT_DISK_BYTES = 33
_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Needs:
    """The bytes for the filter of addresses, and for everything else; `disk_bytes` is for an exact store."""

    filter_bytes: int
    besides_bytes: int
    disk_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All memory together."""
        return self.filter_bytes + self.besides_bytes

    def __str__(self) -> str:
        return (
            f"{sized(self.total_bytes)} of memory: {sized(self.filter_bytes)} for the filter and"
            f" {sized(self.besides_bytes)} for everything else"
        )

    def refuse_above(self, available_bytes: int | None) -> None:
        """ConfigError if more memory is needed than is available. None means unknown and refuses nothing."""
        if available_bytes is not None and self.total_bytes > available_bytes:
            raise ConfigError(
                f"building the list needs about {self}, and {sized(available_bytes)} are available; raise --error-rate,"
                " choose another --kind (`streamdedup plan` compares them), or build it on a larger machine"
            )

    def refuse_disk_above(self, directory: Path) -> None:
        """ConfigError if the exact store needs more disk than is free in `directory`."""
        free_bytes = disk_usage(directory).free
        if self.disk_bytes > free_bytes:
            raise ConfigError(
                f"the exact store needs about {sized(self.disk_bytes)} of disk while it is built, and"
                f" {sized(free_bytes)} are free in {directory}; free some, or put the list elsewhere"
            )


def needs(
    kind: str, entries: int, domains: int, error_rate: float, *, exact: bool = False
) -> Needs:
    """Return what a list of `entries` entries needs, of which `domains` are domains; `exact`: with an exact store.

    ConfigError if no filter of this kind can have that size and error rate.
    """
    try:
        filter_bytes = KINDS[kind].footprint(max(1, entries), error_rate).size_bytes
    except ConfigError as error:
        raise ConfigError(
            f"--kind {kind} for {entries:,} entries with --error-rate {error_rate:g}: {error}; choose another"
        ) from None
    besides_bytes = BESIDES_BYTES + domains * DOMAIN_BYTES
    if kind in STATIC:
        besides_bytes += entries * HALF_BYTES + PART_BYTES
    if not exact:
        return Needs(filter_bytes, besides_bytes)
    besides_bytes += EXACT_BUFFER_BYTES + entries // EXACT_PART
    return Needs(filter_bytes, besides_bytes, entries * EXACT_DISK_BYTES)


def available_bytes() -> int | None:
    """Return the memory still available on this machine and within our Linux control group; None if unknown."""
    found = [some for some in (_of_machine(), _of_group()) if some is not None]
    return min(found, default=None)


def _of_machine() -> int | None:
    """Return the available memory; all memory if the system does not report what is free, such as macOS."""
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _of_group() -> int | None:
    """Return the group's limit less the memory that cannot be reclaimed; pages of files can be."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        taken = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return max(0, limit - int(taken["anon"]))
    except (OSError, ValueError, KeyError):  # there is no such group, or its limit is "max"
        return None
