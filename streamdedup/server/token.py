"""The token of those who may ask and act, from a file that is read again when it changes."""

from pathlib import Path

import structlog

from streamdedup.secret import read_token

log = structlog.get_logger(__name__)


class Token:
    """The content of the file at `path`. While the file holds no token, none is in force: nobody may ask or act."""

    def __init__(self, path: Path) -> None:
        """Read it. Blocking."""
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self.value: bytes | None = None
        self.look()

    def look(self) -> None:
        """Read the file again if it has changed. Blocking."""
        seen = self._state()
        if seen == self._seen:
            return
        was_read = self._seen is not None
        self._seen = seen
        try:
            self.value = read_token(self._path)
        except ValueError as error:
            self.value = None
            log.error("token_refused", path=str(self._path), reason=str(error))
            return
        if was_read:
            log.info("token_changed", path=str(self._path))

    def _state(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError as error:
            return (error.errno or 0,)
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
