"""Build a list from its inputs: count them, state and reserve the memory, then read them into filters.

A rename publishes the file after everything is in it, so a build that fails leaves the old list as it was. If the
kind's table depends on nothing but the set of its keys, the same entries in another order make the same table.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdedup import filters
from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.filters.base import Addable, Filter
from streamdedup.filters.fuse.fuse import Fuse
from streamdedup.kernel import Words
from streamdedup.keys.hashing import MURMUR3, Digests, Hash
from streamdedup.keys.normalizers.base import EXACT
from streamdedup.lists.build.csv_cells import refuse_unknown_column
from streamdedup.lists.build.entries import Entries, first_bytes, with_byte
from streamdedup.lists.build.inputs import STDIN, Input, size_bytes
from streamdedup.lists.build.keys import MARK_BYTES, EntryKeys, KeyedEntries
from streamdedup.lists.build.needs import Needs, available_bytes, needs
from streamdedup.lists.build.rejects import Rejects
from streamdedup.lists.build.store import StoreBuilder
from streamdedup.lists.entry import EntriesAs
from streamdedup.lists.exact_store import EXACT_KIND
from streamdedup.lists.facts import EntryCounts, check_name
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.normalization import AS_THEY_ARE, Normalizing
from streamdedup.progress import Progress
from streamdedup.rules.duplicates import adder
from streamdedup.snapshot import files
from streamdedup.units import counted, sized

# Without --capacity, the digests of standard input are kept until all have been read, so their number is limited.
UNCOUNTED_MAX = 100_000_000
# Memory for each of these entries: 12 bytes are kept, and some exist twice while they are divided into parts.
UNCOUNTED_BYTES = 14
DOMAINS_MAX = 20_000_000
_32 = np.uint64(32)

Upper = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class BuildRequest:
    """What to build. `capacity` is the greatest number of entries; None: `build` counts them.

    `exact`: also build an exact store. `entries`: what the entries are. ConfigError if the name is not allowed, if such
    a store would be of no use, or if there are no such entries with that normalization.
    """

    name: str
    kind: str = "fuse"
    error_rate: float = 1e-6
    normalizing: Normalizing = AS_THEY_ARE
    hash: Hash = MURMUR3
    capacity: int | None = None
    allow_empty: bool = False
    exact: bool = False
    entries: EntriesAs = "addresses"

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.entries != "addresses":
            takes = ("email",) if self.entries == "mailboxes" else ("email", "url")
            if self.normalizing.name not in takes:
                raise ConfigError(
                    f"--entries {self.entries} is for --normalize {' or '.join(takes)}; give that, or delete --entries"
                )
        if self.exact and self.kind == EXACT_KIND:
            raise ConfigError(
                "--exact is for kinds with false positives; --kind exact has one with probability n/2^64 only; delete"
                " one of the two options"
            )

    @property
    def keying(self) -> EntryKeys:
        """How the entries become digests."""
        return EntryKeys(self.normalizing.normalizer(), self.hash, self.entries)

    @property
    def is_of_domains(self) -> bool:
        """Whether no entry is an address."""
        return self.entries in ("domains", "hosts")


class _Count(NamedTuple):
    """The greatest number of entries and of domain entries, judged by the inputs' lines; and the inputs' bytes."""

    entries: int
    domains: int
    size_bytes: int | None


def build(
    recipe: BuildRequest,
    inputs: Sequence[Input],
    output: Path,
    rejects: Rejects,
    progress: Progress,
    *,
    wall_clock: Callable[[], float] = time.time,
) -> KeyList:
    """Build the list of all entries of `inputs`, put it at `output`, and return it. Blocking.

    ConfigError if the options do not fit each other or this machine. StreamdedupError if an input cannot be read to its
    end or has too many bad lines. SnapshotError if the output cannot be written.
    """
    files.check_target(output)
    _refuse_clashes(inputs, output, rejects.path)
    for given in inputs:
        refuse_unknown_column(given)
    storing = StoreBuilder(output) if recipe.exact else None
    count = _counted(recipe, inputs, progress)
    needed = _state_needs(recipe, count, progress)
    with storing or nullcontext():
        if storing is not None:  # entering it has removed the leftovers of earlier builds
            needed.refuse_disk_above(storing.place)
        progress.begin("reading", None if count is None else count.size_bytes)
        gathered = _Gathered(recipe, inputs, rejects, progress, storing)
        made = _list_of(recipe, count, gathered, int(wall_clock()))
        if storing is not None:
            storing.publish(made, progress)
        files.save(made, output, wall_clock=wall_clock)
    return made


def _refuse_clashes(inputs: Sequence[Input], output: Path, rejects: Path) -> None:
    """ConfigError if one path is both written and read, or written twice."""
    if output.absolute() == rejects.absolute():
        raise ConfigError(
            f"{output} cannot be both the list and the file of bad lines; name another file with --rejects"
        )
    for given in inputs:
        for path in (output, rejects):
            if _is_same(path, given):
                raise ConfigError(f"{path} is an input and would be overwritten; name another file")


def _is_same(path: Path, given: Input) -> bool:
    there = given.name != STDIN and path.exists() and Path(given.name).exists()
    return there and path.samefile(given.name)


def _counted(recipe: BuildRequest, inputs: Sequence[Input], progress: Progress) -> _Count | None:
    """Return the counts; None if they cannot be known in advance, because an input can be read only once."""
    if recipe.capacity is not None:
        return _Count(recipe.capacity, 0, size_bytes(inputs))
    if once := [given.name for given in inputs if given.is_read_once]:
        if recipe.kind not in filters.STATIC:
            raise ConfigError(
                f"--capacity is required: the entries of {_called(once[0])} cannot be counted in advance, and --kind"
                f" {recipe.kind} needs their number; give --capacity, or name files"
            )
        return None
    progress.begin("counting", size_bytes(inputs))
    lines = marked = blanks = size = 0
    for given in inputs:
        for chunk in progress.through(given.chunks()):
            size += len(chunk)
            marked += 1 + chunk.count(b"\n@") + chunk.count(b"\n.")
            blanks += chunk.count(b" ") + chunk.count(b"\t") if recipe.entries == "hosts" else 0
        lines = progress.lines
    progress.end()
    if recipe.is_of_domains:  # a line of a hosts file may have several
        return _Count(0, lines + blanks, size)
    return _Count(lines, marked if recipe.normalizing.knows_domains else 0, size)


def _called(name: str) -> str:
    return "standard input" if name == STDIN else f"the pipe {name}"


def _state_needs(recipe: BuildRequest, count: _Count | None, progress: Progress) -> Needs:
    """Report the memory and disk that the build needs. ConfigError if memory is short, or if no such filter exists."""
    if count is None:
        least = needs(recipe.kind, 1, 0, recipe.error_rate, exact=recipe.exact)
        progress.say(
            f"needs about {sized(least.besides_bytes)} of memory, the filter, and {UNCOUNTED_BYTES} bytes for each"
            f" entry{_and_disk(recipe, least.disk_bytes)}; how many entries the inputs have is not known yet"
        )
        least.refuse_above(available_bytes())
        return least
    needed = needs(recipe.kind, count.entries, count.domains, recipe.error_rate, exact=recipe.exact)
    progress.say(f"needs about {needed}{_and_disk(recipe, needed.disk_bytes)}")
    needed.refuse_above(available_bytes())
    return needed


def _and_disk(recipe: BuildRequest, disk_bytes: int) -> str:
    return f", and {sized(disk_bytes)} of disk for the exact store" if recipe.exact else ""


class _Gathered:
    """What is read from the inputs. Digests of addresses are passed on at once; domains and counts are kept here."""

    def __init__(
        self,
        recipe: BuildRequest,
        inputs: Sequence[Input],
        rejects: Rejects,
        progress: Progress,
        storing: StoreBuilder | None,
    ) -> None:
        self._pieces = recipe.keying.pieces(inputs, progress)
        self.rejects, self.progress, self._storing = rejects, progress, storing
        self.domains: list[Digests] = []
        self.keys = self._domain_keys = self._blank = self._at_signs = self._empty = 0
        self._knows_domains = recipe.normalizing.knows_domains
        self._addresses = self._domains = 0  # entries that look like these

    def addresses(self) -> Iterator[Digests]:
        """Yield the digests of addresses, piece by piece, (n, 2); collect domains, counts and bad lines on the way."""
        for given, piece, keyed in self._pieces:
            self.rejects.note(given.name, piece, keyed.bad)
            self.keys += len(keyed.rows) + len(keyed.domain_rows)
            self._count(given, piece, keyed)
            self._domain_keys += len(keyed.domains)
            if self._domain_keys > DOMAINS_MAX:
                raise StreamdedupError(
                    f"the inputs have more than {DOMAINS_MAX:,} keys of domain entries, the most that a list holds"
                )
            if len(keyed.domains):
                self.domains.append(keyed.domains)
            if self._storing is not None:
                self._storing.add(keyed.digests)
                self._storing.add(keyed.domains)
            yield keyed.digests
        self.progress.end()
        self.rejects.refuse_too_many()

    def _count(self, given: Input, piece: Entries, keyed: KeyedEntries) -> None:
        """Count what is no entry, and, if the normalizer knows no domains, what looks like an address or a domain."""
        others = set(keyed.domain_rows.tolist()) | keyed.bad.keys()
        without = len(piece.numbers) - len(keyed.rows) - len(others)
        self._blank += piece.blank
        if given.format == "text":
            self._blank += without
        else:
            self._empty += without
        self._at_signs += piece.at_signs
        if not self._knows_domains:
            marked = np.isin(first_bytes(keyed.keys), MARK_BYTES)
            self._addresses += int(np.count_nonzero(with_byte(keyed.keys, EXACT) & ~marked))
            self._domains += int(np.count_nonzero(marked))

    def counts(self, addresses: int, domains: int) -> EntryCounts:
        """Return the counts of a list that holds so many."""
        return EntryCounts(
            addresses,
            domains,
            duplicates=self.keys - addresses - domains,
            bad=self.rejects.count,
            blank=self._blank,
            at_signs=self._at_signs,
            empty=self._empty,
        )

    def warning(self, name: str) -> str:
        """Return what to say if `--normalize name` is probably not what these entries need; empty if it may be."""
        if 2 * (self._addresses + self._domains) <= self.keys:
            return ""
        but = {
            "trim": " but for white space around it",
            "lowercase": " but for capitals and white space around it",
        }.get(name, "")
        return (
            f"warning: {self._addresses:,} of {self.keys:,} entries look like e-mail addresses, and"
            f" {self._domains:,} like domains; without --normalize email, each matches only a key of the very same"
            f" bytes{but}, and @example.org is no domain"
        )


def _list_of(
    recipe: BuildRequest, count: _Count | None, gathered: _Gathered, built_at: int
) -> KeyList:
    rejects = gathered.rejects
    with rejects.opened():
        entries = None if count is None else count.entries
        addresses = _filter(recipe, gathered.addresses(), entries)
        domains = _domains(gathered, recipe.hash)
    if not gathered.keys and not recipe.allow_empty:
        lines = counted(gathered.progress.lines, "line")
        raise StreamdedupError(
            f"the list would be empty, so nothing was written: of {lines} none is an entry;"
            f" {rejects.summary() or 'check that the inputs are the right ones'}; or give --allow-empty"
        )
    if warning := gathered.warning(recipe.normalizing.name):
        gathered.progress.say(warning)
    return KeyList.of(
        addresses,
        domains,
        name=recipe.name,
        built_at=built_at,
        normalizing=recipe.normalizing,
        counts=gathered.counts(len(addresses), 0 if domains is None else len(domains)),
    )


def _filter(recipe: BuildRequest, chunks: Iterator[Digests], entries: int | None) -> Filter:
    """Return the filter of addresses with all rows of `chunks`: at most `entries` rows, or None if unknown."""
    if recipe.kind in filters.STATIC:
        if entries is None:
            chunks, entries = _uncounted(chunks)
        return Fuse.from_chunks(chunks, entries, recipe.error_rate, recipe.hash)
    filter_ = filters.build(
        {
            "kind": recipe.kind,
            "capacity": max(1, entries or 0),
            "error_rate": recipe.error_rate,
            "hash": recipe.hash.name,
            "hash_key": recipe.hash.key,
        }
    )
    _add(filter_, chunks)
    return filter_


def _add(filter_: Addable, chunks: Iterator[Digests]) -> None:
    add = adder(filter_)
    for digests in chunks:
        add(digests)
        if len(filter_) > filter_.capacity:
            raise ConfigError(
                f"the inputs have more than {filter_.capacity:,} entries, which is the capacity of the filter; give a"
                " larger --capacity, or make sure that nothing writes to the inputs during the build"
            )


def _uncounted(chunks: Iterator[Digests]) -> tuple[Iterator[Digests], int]:
    """Read all of `chunks`. Return their rows, for a fuse filter, and the number of rows.

    Of each digest a fuse filter needs only the upper half of the first word, which chooses the part, and the second
    word. Only these are kept.
    """
    kept: list[tuple[Upper, Words]] = []
    rows = 0
    for digests in chunks:
        rows += len(digests)
        if rows > UNCOUNTED_MAX:
            raise ConfigError(
                f"the inputs have more than {UNCOUNTED_MAX:,} entries; give their number with --capacity, which"
                " takes less memory, or name files"
            )
        kept.append(((digests[:, 0] >> _32).astype(np.uint32), digests[:, 1].copy()))

    def again() -> Iterator[Digests]:
        while kept:  # each piece's memory is freed after its use
            upper, second = kept.pop()
            yield np.column_stack((upper.astype(np.uint64) << _32, second))

    return again(), rows


def _domains(gathered: _Gathered, hash_: Hash) -> Filter | None:
    """Return the exact set of all domain entries; None if there are none."""
    if not gathered.domains:
        return None
    distinct = np.unique(np.concatenate(gathered.domains), axis=0)
    config = {"kind": "exact", "capacity": len(distinct), "hash": hash_.name, "hash_key": hash_.key}
    held = filters.build(config)
    held.add_many(distinct)
    return held
