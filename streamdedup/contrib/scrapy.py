"""Scrapy's duplicate filter, with a filter of ours in place of its set, for `DUPEFILTER_CLASS` (docs/crawler.md).

It waits for a disk in `open` and `close` only, and keeps what was seen under `JOBDIR/streamdedup`. In all else it is
Scrapy's own class: the fingerprints, the log, `DUPEFILTER_DEBUG`.
"""

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.job import job_dir
from typing_extensions import override

from streamdedup.errors import ConfigError, with_options
from streamdedup.filters.kinds import GROWABLE
from streamdedup.units import nearest

if TYPE_CHECKING:  # our own import numpy, for which `open` is early enough
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector
    from scrapy.utils.request import RequestFingerprinterProtocol

    from streamdedup.filters.base import Addable, Filter
    from streamdedup.kept.directory import Directory
    from streamdedup.kept.kept import Kept

F = TypeVar("F", bound="Filter")

PREFIX = "STREAMDEDUP_"
KINDS = tuple(kind for kind in GROWABLE if kind != "window")
MAX_SIZE = "4GiB"
STEPS = 64  # in which the errors of a crawl are summed up
REPORT_EVERY = 1 << 14  # new requests

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """The settings, each named `STREAMDEDUP_` and the field in capitals; values may be text, as from `-s`."""

    kind: str = "cuckoo"
    error_rate: float | str = 1e-9
    capacity: int | str = 1_000_000
    on_full: str = "grow"
    max_size: int | str | None = None
    after_crash: str = "forget"

    def __post_init__(self) -> None:
        for name, choices in (
            ("kind", KINDS),
            ("on_full", ("grow", "warn")),
            ("after_crash", ("forget", "keep")),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(
                    f"{_setting(name)} is {value!r:.60}; choose one of: {', '.join(choices)}"
                )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Read them from Scrapy's settings. ConfigError if one is unknown or has a wrong value."""
        names = {_setting(field.name): field.name for field in fields(cls)}
        for name in map(str, settings):
            if name.startswith(PREFIX) and name not in names:
                near = nearest(name, names) or " or ".join(sorted(names))
                raise ConfigError(f"{name} is unknown; did you mean {near}?")
        given = {field: settings.get(name) for name, field in names.items()}
        return cls(**{field: value for field, value in given.items() if value is not None})

    def empty(self, capacity: int | str | None = None) -> "Addable":
        """Return an empty filter under a new secret. ConfigError, with the setting, if a value does not fit."""
        from streamdedup import filters
        from streamdedup.keys.hashing import Hash

        config: dict[str, Any] = {"kind": self.kind, "error_rate": self._rate}
        config["capacity"] = self.capacity if capacity is None else capacity
        if self.on_full == "grow":
            config |= {"on_full": "grow", "max_size": self.max_size or MAX_SIZE}
        elif self.max_size is not None:
            config["max_size"] = self.max_size
        try:
            return filters.build(config, Hash.draw())
        except ConfigError as error:
            raise ConfigError(with_options(str(error), _setting)) from None

    @property
    def _rate(self) -> float:
        try:
            return float(self.error_rate)
        except (TypeError, ValueError):
            raise ConfigError(
                f"{_setting('error_rate')} is {self.error_rate!r:.60}; it must be a number above 0 and below 1"
            ) from None


class DupeFilter(RFPDupeFilter):
    """Which requests were seen, in a filter that may take a new one for seen, with at most the stated error rate.

    `path` is `JOBDIR`, whose lock it holds from here to `close`, so that a second crawl is refused before it opens the
    queues of the first. ConfigError if that lock is held, or if an option does not fit.
    """

    def __init__(
        self,
        path: str | None = None,
        debug: bool = False,
        *,
        fingerprinter: "RequestFingerprinterProtocol | None" = None,
        options: Options | None = None,
        stats: "StatsCollector | None" = None,
    ) -> None:
        super().__init__(None, debug, fingerprinter=fingerprinter)
        # Scrapy's set, which would look as if nothing was seen.
        vars(self).pop("_fingerprints", None)
        self._options = options or Options()
        self._stats = stats
        self._queue = Path(path) / "requests.queue" if path else None
        self._queue_is_lost = False
        self._filter: Addable | None = None
        self._add: Callable[[str], bool] = _not_open
        self._said_full = False
        self._directory = _directory_in(Path(path)) if path else None
        self._kept: Kept | None = None
        self._moved = self._move_lost_queue(self._directory) if self._directory else None

    @classmethod
    @override
    def from_crawler(cls, crawler: "Crawler") -> Self:
        return cls(
            job_dir(crawler.settings),
            crawler.settings.getbool("DUPEFILTER_DEBUG"),
            fingerprinter=crawler.request_fingerprinter,
            options=Options.of(crawler.settings),
            stats=crawler.stats,
        )

    @property
    @override
    def fingerprints(self) -> frozenset[str]:
        """None can be listed: AttributeError says so."""
        raise AttributeError(
            "DupeFilter keeps no fingerprints, but a filter, which cannot list them; ask request_seen(request), or take"
            " scrapy.dupefilters.RFPDupeFilter"
        )

    @override
    def open(self) -> None:
        """Make the filter, or load it from `JOBDIR`, and compile what is not in the cache of kernels. Blocking."""
        if self._directory:
            self._queue_is_lost = self._moved is not None or self._finds_no_queue(self._directory)
        _warm_up(self._options)
        empty = _with_builtins(self._options.empty())
        if self._directory:
            self._kept = self._resumed(self._directory, empty)
            self._forget_stop()
        filter_ = empty if self._kept is None else self._kept.filter
        self._filter, self._add = filter_, (filter_ if self._kept is None else self._kept).add
        self._keys_before = len(filter_)
        self._room = filter_.capacity - len(filter_)
        self._report()

    @override
    def request_seen(self, request: "Request") -> bool:
        """Return whether a request with the same fingerprint came before; if not, remember it."""
        fingerprint = self.request_fingerprint(request)
        if not self._add(fingerprint):
            return True
        self._room -= 1
        if self._room % REPORT_EVERY == 0 or self._room == -1:
            self._report()
        return False

    @override
    def close(self, reason: str) -> None:
        """Write what was seen, and let go of `JOBDIR`. Blocking. SnapshotError if the disk refuses it."""
        try:
            if self._filter is not None:
                self._report()
            elif self._queue_is_lost:
                # `open` failed, and Scrapy has written that nothing is queued.
                self._forget_stop()
        finally:
            if self._kept is not None:
                self._kept.close()
            elif self._directory:
                self._directory.close()

    def _resumed(self, directory: "Directory", empty: "Addable") -> "Kept":
        """Keep the filter of what was seen before; `empty` if nothing was, or `after_crash` has it forgotten."""
        from streamdedup.kept.kept import Kept
        from streamdedup.snapshot import files

        if not directory.exists:
            return Kept.begun(directory, empty)
        if self._queue_is_lost:
            forgets = self._options.after_crash == "forget"
            moved = MOVED % self._moved if self._moved else ""
            _log.warning(LOST, self._queue, FORGOTTEN if forgets else KEPT, moved)
            if forgets:
                return Kept.begun(directory, empty)
        filter_ = directory.load(lambda path: _with_builtins(files.load(path)))
        _check_made_alike(filter_, empty)
        return Kept.resumed(directory, filter_, {"max_size": self._options.max_size or MAX_SIZE})

    def _move_lost_queue(self, directory: "Directory") -> Path | None:
        """Before Scrapy opens it, move what a killed crawl left of its queue; return where to, None if nothing is left.

        Scrapy would take some of it for requests, and wait for ever for others.
        """
        queue = self._queue
        if queue is None or not self._finds_no_queue(directory) or not any(queue.iterdir()):
            return None
        moved = queue.with_name("requests.queue.lost")
        try:
            shutil.rmtree(moved, ignore_errors=True)
            return queue.rename(moved)
        except OSError as error:
            directory.close()
            raise ConfigError(
                f"cannot move {queue}, which a killed crawl left: {error.strerror}; remove it"
            ) from error

    def _finds_no_queue(self, directory: "Directory") -> bool:
        """Whether something was seen, and Scrapy did not write the queue that belongs to it.

        Without `requests.queue`, another scheduler is in use, which knows of its queues itself.
        """
        queue = self._queue
        if queue is None or not queue.is_dir() or not directory.exists:
            return False
        return not (queue / "active.json").exists()

    def _forget_stop(self) -> None:
        """Remove what Scrapy writes at a clean stop, and has read by now. Otherwise a kill would leave it there."""
        if self._queue is not None:
            (self._queue / "active.json").unlink(missing_ok=True)

    def _report(self) -> None:
        filter_ = self._filter
        if filter_ is None:
            return
        keys = len(filter_)
        if keys > filter_.capacity and not self._said_full:
            self._said_full = True
            _log.warning(
                "the filter of seen requests is full: it holds more than %d, so from here on more and more new requests"
                " are filtered wrongly; for the next crawl, set %s",
                filter_.capacity,
                _setting("max_size" if self._options.on_full == "grow" else "capacity") + " higher",
            )
        if self._stats is not None:
            expected = _errors_between(filter_, self._keys_before, keys)
            self._stats.set_value("dupefilter/streamdedup/seen", keys)
            self._stats.set_value("dupefilter/streamdedup/size_bytes", filter_.size_bytes)
            self._stats.set_value("dupefilter/streamdedup/filtered_wrongly_expected", expected)


LOST = "the last crawl in this JOBDIR was killed, so what it had queued in %s is lost. %s.%s"
FORGOTTEN = (
    f"What it had seen is forgotten, so that all of it is found again; pages are fetched twice. {PREFIX}AFTER_CRASH ="
    " 'keep' keeps it"
)
KEPT = (
    f"What it had seen is kept ({PREFIX}AFTER_CRASH = 'keep'), so what was queued and not fetched is never fetched,"
    " unless it is requested with dont_filter"
)
MOVED = " What is left of that queue is moved to %s."


def _directory_in(job: Path) -> "Directory":
    from streamdedup.kept.directory import Directory, InUseError

    try:
        return Directory(job / "streamdedup")
    except InUseError:
        raise ConfigError(
            f"JOBDIR {job} is in use by another crawl; end that one, or give each a JOBDIR of its own"
        ) from None


def _not_open(_fingerprint: str) -> bool:
    raise RuntimeError(
        "DupeFilter is not open, so it has no filter yet; call open() before request_seen(request)"
    )


def _setting(name: str) -> str:
    return PREFIX + name.upper()


def _warm_up(options: Options) -> None:
    """Compile all kernels, or load them from the cache: a small filter gets keys one by one and together, and grows."""
    from streamdedup.kernel import COMPILING, compiling
    from streamdedup.rules.duplicates import adder

    small = _with_builtins(options.empty(capacity=10))
    with compiling(lambda: _log.info(COMPILING)):
        for number in range(20):
            small.add(str(number))
        adder(small)(small.digests([str(number) for number in range(15, 50)]))


def _with_builtins(filter_: "F") -> "F":
    """Return the filter as the library gives it, without its warning: DupeFilter reports itself that one is full."""
    from streamdedup import library

    return library.shared(filter_, library.WARNED)


def _check_made_alike(filter_: "Addable", empty: "Addable") -> None:
    """ConfigError unless both were made with the same settings, except for the greatest size, which is set anew."""
    from streamdedup import library

    there, here = library.stated(filter_), library.stated(empty)
    for name in library.differing(here, there, ("kind", "on_full", "capacity", "error_rate")):
        raise ConfigError(
            f"{_setting(name)} is {here[name]}, but the filter in this JOBDIR was made with {there[name]}; set it back,"
            " or begin a new JOBDIR"
        )


def _errors_between(filter_: "Addable", first: int, last: int) -> float:
    """How many new requests are expected to be filtered wrongly while a filter grows from `first` to `last` keys."""
    step = (last - first) / STEPS
    return sum(step * filter_.expected_error(int(first + (i + 0.5) * step)) for i in range(STEPS))
