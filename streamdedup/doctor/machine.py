"""Checks of this machine: memory, disk, files and their modes, descriptors, compiled loops; and the files of lists."""

import os
import resource
import secrets
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from streamdedup.delivery.lists import ALLOW, BLOCK, open_list
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.snapshots import writable
from streamdedup.doctor.facts import Facts, in_thread
from streamdedup.doctor.lines import Line, failure, of_error, ok, unknown, warning
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.filters.kinds import KINDS
from streamdedup.kernel import cache
from streamdedup.metrics.findings import LIST_REFUSED
from streamdedup.named_files import others_may_write
from streamdedup.settings import Settings
from streamdedup.threads import COPIES_MAX
from streamdedup.units import counted, lasting, sized

PROCESS_BYTES = 300_000_000  # what a worker takes besides its filters, with compiled loops
WRITTEN_BYTES, PIECE_BYTES = 64 << 20, 1 << 20
FREE_BYTES_MIN = 1 << 30  # less free than that: nothing is written
SLOW_S = 1.0
DESCRIPTORS = 100  # besides those of connections
CONNECTIONS_A_BROKER = 2  # of the consumer, and of each partition's producer
_PROBE = ".streamdedup-doctor-{}.tmp"


async def memory(facts: Facts) -> AsyncIterator[Line]:
    """Whether the filters of all partitions fit into memory: a worker has to take all if the others are gone."""
    if not facts.settings.filter.remembers:
        yield ok("there is no filter")
        return
    recipe = await facts.recipe()
    first, grown = recipe.filter_bytes
    copies = 0 if KINDS[facts.settings.filter.kind].only_sets_bits else COPIES_MAX
    several = min(copies, recipe.partitions)
    least = PROCESS_BYTES + first * (recipe.partitions + several)
    most = PROCESS_BYTES + grown * (recipe.partitions + several)
    limit, free = _memory_limit(), _memory_free()
    what = f"one worker with all {counted(recipe.partitions, 'partition')} takes {sized(least)}" + (
        f", {sized(most)} once its filters have grown" if most > least else ""
    )
    if limit is None:
        yield unknown(f"{what}; this system does not say how much there is", "compare it yourself")
    elif least > limit:
        yield failure(
            f"{what}, and there is {sized(limit)} in all",
            "lower filter.capacity, raise filter.error_rate, give it more memory, or see `streamdedup plan`",
        )
    elif most > limit:
        yield warning(
            f"{what}, and there is {sized(limit)} in all",
            "set filter.max_size, or give it more memory before it grows",
        )
    elif free is not None and least > free:
        yield warning(
            f"{what}, and {sized(free)} of {sized(limit)} are free now",
            "none if a worker runs here already, whose memory is counted; else free some",
        )
    else:
        yield ok(f"{what}, of {sized(limit)}")


def _memory_limit() -> int | None:
    """Return the memory that this process may have: of its control group, or of the machine."""
    found = list[int]()
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    with suppress(OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found, default=None)


def _memory_free() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


async def disk_space(facts: Facts) -> AsyncIterator[Line]:
    """Whether the disk has room for the snapshots of all partitions: those that are kept, and one that is written."""
    settings = facts.settings
    directory = settings.snapshot.directory
    if not settings.filter.remembers:
        yield ok("there is no filter, so nothing is saved")
        return
    recipe = await facts.recipe()
    first, grown = recipe.filter_bytes
    there = await in_thread(lambda: _free_and_used(directory))
    if there is None:
        yield unknown("it cannot be looked at", "make it, or name another", str(directory))
        return
    free, used = there
    files = (settings.snapshot.keep + 1) * recipe.partitions
    need, later = files * first, files * grown
    what = (
        f"snapshots of {counted(recipe.partitions, 'partition')} take up to {sized(need)}"
        f" ({settings.snapshot.keep} + 1 of each)"
        + (f", {sized(later)} once the filters have grown" if later > need else "")
        + f"; {sized(free)} are free, and {sized(used)} are taken by some already"
    )
    if need > free + used:
        yield warning(what, "give the disk more room, or lower snapshot.keep", str(directory))
    else:
        yield ok(what, str(directory))


def _existing(directory: Path) -> Path | None:
    """Return the directory, or the first above it that is there."""
    return next((level for level in (directory, *directory.parents) if level.is_dir()), None)


def _free_and_used(directory: Path) -> tuple[int, int] | None:
    """Return the bytes that are free on the disk of a directory, and those of the snapshots in it."""
    level = _existing(directory)
    if level is None:
        return None
    found = os.statvfs(level)
    used = sum(path.lstat().st_size for path in _snapshots(directory))
    return found.f_bavail * found.f_frsize, used


def _snapshots(directory: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from directory.glob("*/*/*/*.snapshot")


async def disk_speed(facts: Facts) -> AsyncIterator[Line]:
    """How long it takes to write 64 MiB beside the snapshots, and to have them on the disk."""
    directory = facts.settings.snapshot.directory
    if not facts.settings.filter.remembers:
        yield ok("there is no filter, so nothing is saved")
        return
    level = await in_thread(lambda: _existing(directory))
    if level is None or level != directory:
        yield unknown(
            "it is not there yet, so nothing was written", "a start makes it", str(directory)
        )
        return
    there = await in_thread(lambda: _free_and_used(directory))
    free = there[0] if there else 0
    if free < FREE_BYTES_MIN:
        yield unknown(
            f"only {sized(free)} are free, so nothing was written", "free some room", str(directory)
        )
        return
    try:
        seconds = await in_thread(lambda: written_s(directory))
    except OSError as error:
        yield failure(
            f"nothing can be written there ({error.strerror})",
            f"make it writable for user id {os.geteuid()}, or name another in snapshot.directory",
            str(directory),
        )
        return
    what = f"64 MiB were written and on the disk within {lasting(seconds * 1000)}"
    if seconds > SLOW_S:
        yield warning(
            what,
            "a slow disk delays snapshots: raise snapshot.interval_s, or take another disk",
            str(directory),
        )
    else:
        yield ok(what, str(directory))


def written_s(directory: Path) -> float:
    """Return how many seconds it takes to write a file there and sync it. This blocks.

    The file has no name once it is open, so the system removes it, whatever ends this process.
    """
    path = directory / _PROBE.format(secrets.token_hex(8))
    piece = os.urandom(PIECE_BYTES)  # a disk that compresses would be too quick
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        path.unlink()
        started = time.perf_counter()
        for _ in range(WRITTEN_BYTES // PIECE_BYTES):
            left = memoryview(piece)
            while left:
                left = left[os.write(fd, left) :]
        os.fsync(fd)
        return time.perf_counter() - started
    finally:
        os.close(fd)


async def modes(facts: Facts) -> AsyncIterator[Line]:
    """Whether others on this machine could read the secrets, or write to the snapshots."""
    found = await in_thread(lambda: list(_exposed(facts.written)))
    for line in found:
        yield line
    if not found:
        yield ok("nobody else on this machine may read the secrets or write to the snapshots")


def _exposed(settings: Settings) -> Iterator[Line]:
    kafka, registry = settings.kafka, settings.kafka.schema_registry
    files = {
        "kafka.sasl_plain_password_file": kafka.sasl_plain_password_file,
        "kafka.ssl_password_file": kafka.ssl_password_file,
        "kafka.ssl_keyfile": kafka.ssl_keyfile,
        "filter.hash_key_file": settings.filter.hash_key_file,
    }
    if registry is not None:
        files |= {
            f"kafka.schema_registry.{name}": getattr(registry, name)
            for name in ("basic_auth_password_file", "bearer_token_file", "ssl_keyfile")
        }
    for option, path in files.items():
        if path is None or _is_mounted_secret(path):
            continue
        with suppress(OSError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & stat.S_IROTH:
                yield warning(
                    f"{option}: every user of this machine may read it (mode {mode:04o})",
                    f"chmod 600 {path}",
                    str(path),
                )
    directory = settings.snapshot.directory
    if not settings.filter.remembers or not directory.is_dir():
        return
    with suppress(OSError):
        if by := others_may_write(directory.resolve(), but_our_groups=True):
            said = writable(by)
            yield warning(said["reason"], said["remedy"], str(directory))
    if not settings.filter.draws_secret:
        return
    open_to_all = [path for path in _snapshots(directory) if path.lstat().st_mode & stat.S_IROTH]
    if open_to_all:
        yield warning(
            f"every user of this machine may read {counted(len(open_to_all), 'snapshot')} (one is {open_to_all[0]}),"
            " and with it the secret of the filter's hash",
            "chmod 600 them; if somebody may have read one, remove all snapshots of the partition while no worker runs"
            " (docs/keys.md)",
            str(directory),
        )


def _is_mounted_secret(path: Path) -> bool:
    """Return whether a file is a secret as Kubernetes mounts it, with mode 0644 into a pod that nobody else shares."""
    with suppress(OSError):
        return path.parent.joinpath("..data").is_symlink()
    return False


async def descriptors(facts: Facts) -> AsyncIterator[Line]:
    """Whether this process may have as many connections and files as the worker may need."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    partitions = (await facts.recipe()).partitions
    brokers = len(await facts.brokers())
    need = DESCRIPTORS + CONNECTIONS_A_BROKER * brokers * (partitions + 2)
    if soft != resource.RLIM_INFINITY and soft < need:
        yield warning(
            f"{soft:,} file descriptors are allowed, and {counted(partitions, 'partition')} on"
            f" {counted(brokers, 'broker')} may take {need:,}",
            f"raise the limit (ulimit -n {need}, LimitNOFILE= of systemd)",
        )
    else:
        yield ok(f"{need:,} file descriptors may be needed, and more are allowed")


async def compiled(_facts: Facts) -> AsyncIterator[Line]:
    """Whether the inner loops are compiled, and kept for the next start."""
    place = await in_thread(lambda: cache.place(0))
    if place.directory is None or (not place.is_writable and place.unused):
        yield warning(
            place.unused or "compiled inner loops are kept nowhere, so each start compiles them",
            f"set {cache.CACHE_ENV} to a directory of this user",
        )
        return
    kept = await in_thread(lambda: any(place.directory.iterdir()) if place.directory else False)
    if kept:
        yield ok(f"compiled inner loops are kept in {place.directory}")
    else:
        yield warning(
            "the inner loops were never compiled here: the first start takes half a minute longer, or minutes on a busy"
            " machine",
            "run `streamdedup compile`",
        )


async def lists(facts: Facts) -> AsyncIterator[Line]:
    """Whether the files of the lists can be used: hash, normalization, exact store, checksums."""
    settings = facts.settings
    paths = {ALLOW: settings.allowlist.file, BLOCK: settings.blocklist.file}
    recipe = Recipe(settings, 1)
    given = {which: path for which, path in paths.items() if path}
    for which, path in given.items():
        try:
            listed, store = await in_thread(partial(open_list, recipe, which, path))
        except (ConfigError, SnapshotError) as error:
            for line in of_error(error):
                yield Line(line.status, line.sentence, line.remedy, which, LIST_REFUSED)
            continue
        counts = listed.facts.counts
        exact = "" if store is None else f", with an exact store of {store.entries:,} entries"
        yield ok(
            f"{listed.name}, version {listed.version}: {counts.addresses:,} addresses,"
            f" {counts.domains:,} domains{exact}",
            which,
        )
    if not given:
        yield ok("no list is configured")
