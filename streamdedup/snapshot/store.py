"""The snapshots of one shard, in several generations: `directory/group/topic/partition/COUNTER.snapshot`.

A generation appears as a whole or not at all, and is never written again. To save takes a lock without waiting; to
load takes none. A damaged file is set aside with the suffix `.broken`. An intact file that is not for this log stays
where it is. A file with a greater counter than a save can give is not ours, and stays, too. If there is no space for a
new generation, a save deletes older ones, but keeps one of each partition. Nothing here logs: the caller gets refusals
and errors.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.events import Fingerprint
from streamdedup.filters.base import Filter, Parts
from streamdedup.named_files import make_directory, others_may_write
from streamdedup.snapshot.files import (
    NO_FILE,
    Content,
    FileSystem,
    NoSpaceError,
    blaming,
    built,
    content_of,
    next_bytes,
    opened,
    publish,
    read_from,
    sync_directory,
    words,
)
from streamdedup.snapshot.header import (
    DRAWN,
    DamagedFileError,
    Identity,
    Log,
)
from streamdedup.snapshot.read import ScanningReader, SnapshotReader
from streamdedup.units import NAME_BYTES_MAX

INSTEAD = "set snapshot.directory to another place"
COUNTER_MAX = 10**15 - 1  # one generation a second lasts for 31 million years


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A filter with every key of the output below `label`, and no key of the output from `end_label` on.

    `fingerprint` is that of a record batch of the output below `label`, `topic_id` that of the output; both are None if
    unknown. `schemas` are the digests of the schemas that were met, by id. `saved_at` (Unix seconds) and `writer` are
    only for people. `mode` has the permissions of the file. `writers` says who else could have written it, or could
    replace it within the directory of all snapshots; None if nobody could.
    """

    filter: Filter
    label: int
    end_label: int
    fingerprint: Fingerprint | None
    topic_id: str | None
    path: Path
    size_bytes: int
    saved_at: float
    writer: str
    mode: int
    writers: str | None = None
    schemas: Mapping[int, str] = field(default_factory=dict)

    @property
    def exposes_secret(self) -> bool:
        """Whether the file holds a secret that was drawn, and every user may read it."""
        return self.filter.hash.drawn and bool(self.mode & stat.S_IROTH)


@dataclass(frozen=True)
class Left:
    """What should have been removed from the directory and is still there; the reason is a sentence for the log."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Saved:
    """A snapshot that survives a loss of power, and something that could not be removed beside it, if there is any.

    `given_up` is the number of older generations, of this and other partitions, that were removed to make room for it.
    """

    path: Path
    size_bytes: int
    seconds: float
    left: Left | None = None
    given_up: int = 0


class LockedError(SnapshotError):
    """Another process holds the lock of these generations: it saves them itself. Nothing was written."""


@dataclass(frozen=True)
class Refusal:
    """A snapshot that was not used, and the reason, as a sentence for the log.

    `unfit` is what it says of its log if it is of this very log, and only made with other settings.
    """

    path: Path
    reason: str
    unfit: Log | None = None


class _UnfitError(SnapshotError):
    """Another identity; `log` is what the snapshot says of its log if only settings differ, else None."""

    def __init__(self, text: str, log: Log | None) -> None:
        super().__init__(text)
        self.log = log


class Store:
    """The generations of one output partition, of which the newest `keep` are kept."""

    def __init__(
        self,
        directory: Path,
        *,
        group: str,
        topic: str,
        partition: int,
        keep: int = 3,
        fs: FileSystem = os,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if keep < 1:
            raise ConfigError(f"snapshot.keep is {keep}; it must be at least 1")
        self._root, self._keep, self._fs, self._wall_clock = directory, keep, fs, wall_clock
        self.path = directory / _segment(group) / _segment(topic) / str(partition)

    def save(
        self,
        filter_: Parts,
        label: int,
        end_label: Callable[[], int],
        identity: Identity,
        *,
        fingerprint: Fingerprint | None = None,
        input_id: str | None = None,
        schemas: Mapping[int, str] | None = None,
        cut_short: Callable[[], bool] = lambda: False,
    ) -> Saved:
        """Write `filter_` as the next generation. This blocks: call it in a thread.

        If the filter only sets bits, other threads may add keys during the call. All keys of the output below `label`
        must be in `filter_` now. `end_label()` is called in this thread after the last byte was copied. It must be
        above the offsets of all keys added until then, so it must be raised before a key is added. `fingerprint` is
        that of a record batch of the output below `label`, `input_id` the topic id of the input; `schemas` are the
        digests of the schemas that were met, by id. `cut_short()` is called before each piece; if it returns True, the
        save is given up. After a SnapshotError the older generations still exist, and possibly the new one as well;
        after a NoSpaceError only the newest one that is whole, of this and of the other partitions of the output.
        LockedError if another process saves the same. What cannot be removed makes no save a failure: `Saved.left`
        names it.
        """
        started = time.perf_counter()

        def write() -> tuple[Path, int, list[Left]]:
            with self._blaming("prepare the snapshot directory", self.path):
                self._make_directories()
            with self._locked():
                counter, left = self._remove_leftovers_and_count()
                path = self.path / _name(counter)
                log = Log(identity, label, counter, fingerprint, input_id, schemas or {})
                content = content_of(filter_, self._wall_clock(), log, end_label)
                size_bytes = publish(
                    self._fs, path.with_suffix(".tmp"), path, _unless(cut_short, content), INSTEAD
                )
                return path, size_bytes, [*self._prune(), *left]

        given_up, giving_up = 0, self._giving_up(identity, label)
        while True:
            try:
                path, size_bytes, left = write()
            except NoSpaceError:
                removed = next(filter(None, giving_up), 0)
                if not removed:
                    raise
                given_up += removed
            else:
                seconds = time.perf_counter() - started
                return Saved(path, size_bytes, seconds, left[0] if left else None, given_up)

    def _giving_up(self, identity: Identity, label: int) -> Iterator[int]:
        """Remove older generations: first ours, then those of the other partitions. Yield how many, after each step."""

        def is_ours(log: Log) -> bool:
            return log.label <= label and not identity.differences(log.identity)

        yield self._keep_one(is_ours)
        yield sum(other._keep_one(lambda _log: True) for other in self.other_partitions())

    def _keep_one(self, is_wanted: Callable[[Log], bool]) -> int:
        """Remove all generations but the newest that is whole and wanted; return how many were removed.

        Without a wanted one, the newest that is whole stays; without a whole one, all stay. So do all while another
        process saves here.
        """
        with suppress(SnapshotError), self._locked():
            files = self._files()
            generations = [path for _, kind, path in files if kind == "snapshot"]
            removed = [path for _, kind, path in files if kind == "snapshot.broken"]
            if len(generations) > 1 and (kept := self._newest_whole(generations, is_wanted)):
                removed += [path for path in generations if path != kept]
            return len(removed) - len(self._remove(removed, keep=0))
        return 0

    def _newest_whole(
        self, generations: list[Path], is_wanted: Callable[[Log], bool]
    ) -> Path | None:
        newest = None
        for path in generations:
            if log := self._log_if_whole(path):
                if is_wanted(log):
                    return path
                newest = newest or path
        return newest

    def _log_if_whole(self, path: Path) -> Log | None:
        """Read and verify a generation, in bounded memory."""
        with suppress(SnapshotError, OSError), opened(self._fs, path, os.O_NOFOLLOW) as (fd, size):
            read = next_bytes(self._fs, fd)
            reader = ScanningReader(read, size, lambda _at, _chunk: None)
            reader.contents()
            return reader.header.of_log()
        return None

    def load(
        self,
        identity: Identity,
        *,
        end: int,
        on_refusal: Callable[[Refusal], None],
        hash_key: bytes = b"",
        passing_over: Collection[Path] = (),
    ) -> Snapshot | None:
        """Return the newest generation that is intact, of this identity, and not ahead of `end`; None without one.

        This blocks: call it in a thread. `end` is the output's end offset. `on_refusal` is called in this thread for
        each newer generation that is refused. `hash_key` is the secret of the hash if it is configured: then it is in
        no file. Paths in `passing_over` are not tried. SnapshotError if the directory cannot be read.
        """
        tried = set(passing_over)
        # The directory is listed again each time: another process may delete a listed file, and save a newer one.
        while fresh := [path for path in self._generations() if path not in tried]:
            path = fresh[0]
            tried.add(path)
            try:
                return self._read(path, identity, end, hash_key)
            except FileNotFoundError:
                continue
            except DamagedFileError as error:
                on_refusal(Refusal(path, f"{error}; {self._set_aside(path)}"))
            except SnapshotError as error:
                unfit = error.log if isinstance(error, _UnfitError) else None
                on_refusal(Refusal(path, f"{error}; {self.left_in_place}", unfit))
            except OSError as error:
                on_refusal(Refusal(path, f"it cannot be read: {words(error)}"))
        return None

    @property
    def left_in_place(self) -> str:
        """How long a snapshot stays that was refused, for messages."""
        return f"left in place until snapshot.keep ({self._keep}) newer ones are saved"

    def exists(self) -> bool:
        """Return whether a snapshot exists here, usable or not. If so, the shard is not new."""
        return any(kind in {"snapshot", "snapshot.broken"} for _, kind, _ in self._files())

    def labels(self, identity: Identity | None = None, before: Path | None = None) -> list[int]:
        """Return the labels of all generations whose header can be read, newest first.

        If `identity` is given, only those with that identity; if `before` is given, only those older than that
        generation.
        """
        labels = []
        generations = self._generations()
        if before in generations:
            generations = generations[generations.index(before) + 1 :]
        for path in generations:
            with suppress(SnapshotError, OSError), self._opened(path) as (reader, _):
                log = reader.header.of_log()
                if identity is None or not identity.differences(log.identity):
                    labels.append(log.label)
        return labels

    def newest_log(self) -> Log | None:
        """Return what the newest generation that can be read says of its log; None if none can."""
        for path in self._generations():
            with suppress(SnapshotError, OSError), self._opened(path) as (reader, _):
                return reader.header.of_log()
        return None

    def other_partitions(self) -> Iterator["Store"]:
        """Yield the stores of the output's other partitions in the same directory."""
        with suppress(OSError):
            for name in self._fs.listdir(self.path.parent):
                if name.isdecimal() and name != self.path.name:
                    other = copy(self)
                    other.path = self.path.with_name(name)
                    yield other

    def _make_directories(self) -> None:
        # Done before each save: an operator who deletes the directory wants a fold, not an error.
        made = make_directory(self.path, self._fs.mkdir)
        for level in dict.fromkeys([*made, *reversed(self.path.parents[:2]), self.path]):
            sync_directory(self._fs, level.parent)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self.path / "lock"
        with self._blaming("open", path):
            fd = self._fs.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with self._blaming("lock", path):
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise LockedError(
                        f"another process holds {path}: it is saving, or was paused during a save; "
                        "nothing was written. Let it continue or end it; make sure that no two workers "
                        "save the same partition in one directory"
                    ) from None
            yield
        finally:
            with suppress(OSError):
                self._fs.close(fd)

    def _remove_leftovers_and_count(self) -> tuple[int, list[Left]]:
        # Under the lock no other process writes, so a temporary file was left by one that died.
        files = self._files()
        if files and files[0][0] == COUNTER_MAX:
            raise SnapshotError(
                f"{files[0][2]} has the highest counter that there is, so no newer snapshot could be found; nothing was"
                f" written: remove it, or {INSTEAD}"
            )
        left = self._remove([path for _, kind, path in files if kind == "tmp"], keep=0)
        left += [Left(self.path / name, _FOREIGN) for name in self._names() if _is_foreign(name)]
        return 1 + (files[0][0] if files else 0), left

    def _prune(self) -> list[Left]:
        """Remove older generations; return what stays although it should not."""
        try:
            files = self._files()
        except SnapshotError as error:
            return [Left(self.path, str(error))]
        left = []
        for pruned in ("snapshot", "snapshot.broken"):
            left += self._remove([path for _, kind, path in files if kind == pruned], self._keep)
        return left

    def _read(self, path: Path, identity: Identity, end: int, hash_key: bytes) -> Snapshot:
        with self._opened(path) as (reader, size_bytes):
            header = reader.header
            log = header.of_log()
            if path.name != _name(log.counter):
                raise SnapshotError(
                    f"it contains generation {log.counter}: it was renamed or copied"
                )
            if differences := identity.differences(log.identity):
                raise _UnfitError(
                    f"it is of another log or other settings: {'; '.join(differences)}",
                    log if identity.is_of_log_of(log.identity) else None,
                )
            _check_not_ahead(log.label, end)
            if bool(header.secret) != (log.identity.hash_check == DRAWN):
                raise DamagedFileError("its header does not agree on whether its secret was drawn")
            contents = reader.contents()
            _check_not_ahead(contents.end_label, end)
        return Snapshot(
            filter=built(header, contents, hash_key),
            label=log.label,
            end_label=contents.end_label,
            fingerprint=log.fingerprint,
            topic_id=log.identity.topic_id,
            schemas=log.schemas,
            path=path,
            size_bytes=size_bytes,
            saved_at=header.saved_at,
            writer=header.writer,
            mode=stat.S_IMODE(path.lstat().st_mode),
            writers=others_may_write(
                path.resolve(), but_our_groups=True, up_to=self.path.parents[1].resolve()
            ),
        )

    def _set_aside(self, path: Path) -> str:
        aside = path.with_name(f"{path.name}.broken")
        try:
            self._fs.rename(path, aside)
        except OSError as error:
            return f"it could not be set aside: {words(error)}"
        return f"set aside as {aside.name}"

    @contextmanager
    def _opened(self, path: Path) -> Iterator[tuple[SnapshotReader, int]]:
        # Read, not mapped: a mapped file that is truncated kills the process by SIGBUS.
        with opened(self._fs, path, os.O_NOFOLLOW) as (fd, size_bytes):
            yield read_from(self._fs, fd, size_bytes), size_bytes

    def _generations(self) -> list[Path]:
        return [path for _, kind, path in self._files() if kind == "snapshot"]

    def _files(self) -> list[tuple[int, str, Path]]:
        """Return the counter, kind and path of each of our files in the directory, newest first."""
        matches = [match for name in self._names() if (match := _NAME.fullmatch(name))]
        files = [(int(match[1]), match[2], self.path / match[0]) for match in matches]
        return sorted(files, reverse=True)

    def _names(self) -> list[str]:
        with self._blaming("list", self.path):
            try:
                return self._fs.listdir(self.path)
            except FileNotFoundError:
                return []

    def _remove(self, paths: list[Path], keep: int) -> list[Left]:
        """Remove all regular files of `paths` but the first `keep`; return what is none, and what cannot be removed."""
        left, kept = [], 0
        for path in paths:
            try:
                if not stat.S_ISREG(path.lstat().st_mode):
                    left.append(Left(path, f"{NO_FILE}; remove it"))
                elif kept < keep:
                    kept += 1
                else:
                    self._fs.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                left.append(Left(path, f"it cannot be removed: {words(error)}"))
        return left

    def _blaming(self, doing: str, path: Path) -> AbstractContextManager[None]:
        return blaming(doing, path, INSTEAD)


# What a save can have named: it gives no counter above COUNTER_MAX. Other names of this form are foreign.
_NAME = re.compile(r"(0\d{15})\.(tmp|snapshot|snapshot\.broken)", re.ASCII)
_LIKE_OURS = re.compile(r"\d{16,}\.(tmp|snapshot|snapshot\.broken)", re.ASCII)
_FOREIGN = f"it is none of ours: its counter is above {COUNTER_MAX}; no load reads it; remove it"


def _name(counter: int) -> str:
    return f"{counter:016d}.snapshot"


def _is_foreign(name: str) -> bool:
    return _LIKE_OURS.fullmatch(name) is not None and _NAME.fullmatch(name) is None


def _segment(name: str) -> str:
    """Percent-encode any `name` to a directory name, and hash it if that is too long; no two names share one."""
    quoted = quote(name, safe="", errors="surrogatepass")
    if name in {".", ".."}:
        return quoted.replace(".", "%2E")
    if not 0 < len(quoted) <= NAME_BYTES_MAX:
        # Percent-encoding never yields "%-", so this cannot equal an encoded name.
        return f"{quoted[:180]}%-{sha256(quoted.encode()).hexdigest()}"
    return quoted


def _unless(cut_short: Callable[[], bool], content: Content) -> Content:
    for piece in content:
        if cut_short():
            raise SnapshotError("the save was cut short: the process is ending")
        yield piece


def _check_not_ahead(label: int, end: int) -> None:
    if label > end:
        raise SnapshotError(
            f"it was folded up to offset {label} and the output ends at {end}: "
            "the output was truncated or replaced"
        )
