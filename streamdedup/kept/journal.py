"""The thread that writes a log, so that who adds waits for no disk: all that waits is on it within a beat.

Only this thread writes: no interrupt of the program, and no signal handler, comes between two steps. What the disk
refuses is kept, and tried again at each beat. If the log is long, the thread saves the filter and begins another one.
"""

import logging
from collections import deque
from threading import Condition, RLock, Thread
from typing import Any

from streamdedup.errors import SnapshotError, traceback_without_messages
from streamdedup.filters.base import Addable
from streamdedup.kept.changes import Change, Changes
from streamdedup.kept.directory import ELSEWHERE, Directory
from streamdedup.kept.log import ADDED, PIECE_BYTES, ROWS_MAX, LogWriter, Rows
from streamdedup.snapshot import files

BEAT_S = 0.4  # between two writes
WAITING_MAX = 1 << 18  # keys that may wait; 20 to 40 MB of `str`
# Or the size of the filter, if that is more: to read a longer log takes longer.
LOG_BYTES_MAX = 16 << 20

_log = logging.getLogger(__name__)


class Journal:
    """Writes `log`, which `directory.replay` or `directory.new_log` returned, for `filter_`, until `close`.

    Whoever changes the filter holds `lock`, and calls `append` with each key that was added, or `append_rows`.
    """

    def __init__(
        self, directory: Directory, filter_: Addable, changes: Changes, log: LogWriter
    ) -> None:
        self.lock = RLock()
        self.waiting = deque[Any]()
        self.append = self.waiting.append
        self._directory, self._filter, self._changes, self._log = directory, filter_, changes, log
        self._rows_put = self._rows_taken = self._items_taken = 0
        self._unwritten = b""
        self._failure: Exception | None = None
        self._save_above_bytes = 0
        self._turn = RLock()
        self._beat = Condition(self._turn)  # entered by its lock: no interrupt comes between
        self._asked = self._done = 0
        self._ends = False
        self._thread = Thread(target=self._run, name="streamdedup-kept", daemon=True)
        self._thread.start()

    def append_rows(self, what: int, rows: Rows) -> None:
        """Have a change with so many rows, shape (n, words), written; of none, if there are none."""
        self._rows_put += len(rows)
        self.waiting.extend(
            Change(what, rows[start : start + ROWS_MAX])
            for start in range(0, max(1, len(rows)), ROWS_MAX)
        )

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nothing may be appended before `flush`."""
        return len(self.waiting) >= WAITING_MAX or self._rows_put - self._rows_taken >= WAITING_MAX

    def flush(self) -> None:
        """Wait until all that was appended is on the disk. SnapshotError if the disk refuses it: it is kept."""
        with self._turn:
            self._asked += 1
            asked = self._asked
            self._beat.notify_all()
            while self._done < asked and self._thread.is_alive():
                self._beat.wait(BEAT_S)
        failure = self._failure
        if isinstance(failure, OSError):
            with files.blaming("write", self._log.path, ELSEWHERE):
                raise failure
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Flush, and end the thread. SnapshotError if the disk refuses something, which is then lost."""
        self._ends = True
        try:
            self.flush()
        finally:
            self._thread.join()

    @property
    def has_ended(self) -> bool:
        """Whether nothing is written any more."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        ends = False
        try:
            while not ends:
                with self._turn:
                    self._beat.wait_for(lambda: self._ends or self._asked > self._done, BEAT_S)
                    asked, ends = self._asked, self._ends
                self._write_all()
                self._save_if_long()
                with self._turn:
                    self._done = asked
                    self._beat.notify_all()
        except BaseException as error:
            _log.critical(
                "%s is not written any more (no data is quoted):\n%s",
                self._log.path,
                traceback_without_messages(error),
            )
            self._failure = SnapshotError(
                f"{self._log.path} is not written any more: {type(error).__name__}, see the log; close the filter, and"
                " open it again"
            )
        finally:
            self._log.close()

    def _write_all(self) -> None:
        """Write all that waits now. What the disk refuses is kept, and written at the next beat to the same place."""
        until = self._items_taken + len(self.waiting)
        while self._unwritten or self._items_taken < until:
            self._unwritten = self._unwritten or self._next_piece()
            try:
                self._log.write(self._unwritten)
            except OSError as error:
                self._report(error)
                return
            self._unwritten, self._failure = b"", None

    def _next_piece(self) -> bytes:
        piece = bytearray()
        while self.waiting and len(piece) < PIECE_BYTES:
            piece += self._log.frame(*self._next_rows())
        return bytes(piece)

    def _next_rows(self) -> Change:
        """Take what waits first: a change, or the keys that follow one another."""
        waiting, keys = self.waiting, list[Any]()
        take, keep = waiting.popleft, keys.append
        for _ in range(min(len(waiting), ROWS_MAX)):
            if type(waiting[0]) is Change:
                break
            keep(take())
        self._items_taken += len(keys) or 1
        if keys:
            return Change(ADDED, self._changes.of_keys(keys))
        change: Change = take()
        self._rows_taken += len(change.rows)
        return change

    def _save_if_long(self) -> None:
        """Save the filter instead of a log that is too long; additions wait meanwhile."""
        bound = max(LOG_BYTES_MAX, self._filter.size_bytes, self._save_above_bytes)
        if self._log.size_bytes <= bound or not self.lock.acquire(timeout=BEAT_S):
            return
        try:
            self._write_all()
            if self._unwritten:
                return
            log = self._directory.new_log(self._filter, self._changes)
            self._log.close()
            self._log = log
            self._directory.save(self._filter, log.label.number)
            self._save_above_bytes = 0
        except SnapshotError as error:
            # The logs have all that the filter has.
            self._save_above_bytes = self._log.size_bytes + bound
            _log.error("%s; the log goes on, and this is tried again once it is longer", error)
        finally:
            self.lock.release()

    def _report(self, error: OSError) -> None:
        """Keep the error, and log the first of a row of failures."""
        if self._failure is None:
            _log.error(
                "cannot write %s: %s; this is tried again, and what waits is lost only if the process ends; free some"
                " space there, or look into the system's log for disk errors",
                self._log.path,
                error.strerror,
            )
        self._failure = error
