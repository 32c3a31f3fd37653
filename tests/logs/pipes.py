"""A pipe in the place of standard error, which is read only when the test says so."""

import os
import select
from contextlib import suppress

DEADLINE_S = 60.0


class Pipe:
    """Both ends of a pipe. Once it is filled, whoever writes to it waits for the reader."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self._reading = os.fdopen(reading, "rb", buffering=0)
        self.stream = os.fdopen(writing, "w", buffering=1)
        self._filled, self._rest = 0, b""

    @property
    def writing(self) -> int:
        """The descriptor of the writing end."""
        return self.stream.fileno()

    def fill(self) -> None:
        """Fill it. What fills it is not among the lines that are read."""
        os.set_blocking(self.writing, False)
        for size in (1 << 12, 1):
            with suppress(BlockingIOError):
                while True:
                    self._filled += os.write(self.writing, b"-" * size)
        os.set_blocking(self.writing, True)

    def read_some(self) -> list[str]:
        """Wait until there is something, read what there is, and return the whole lines of it."""
        assert select.select([self._reading], [], [], DEADLINE_S)[0], "nothing comes"
        data = self._reading.read(1 << 20)
        if not data:
            raise EOFError("all have closed the writing end")
        skipped = min(self._filled, len(data))
        self._filled -= skipped
        *lines, self._rest = (self._rest + data[skipped:]).split(b"\n")
        return [line.decode() for line in lines]

    def read_until(self, text: str) -> list[str]:
        """Read until a line contains `text`; return the lines that came until then."""
        lines: list[str] = []
        while not any(text in line for line in lines):
            lines += self.read_some()
        return lines

    def read_all(self) -> list[str]:
        """Close the writing end here, and read until all others have closed it."""
        self.stream.close()
        lines: list[str] = []
        with suppress(EOFError):
            while True:
                lines += self.read_some()
        return lines

    def stop_reading(self) -> None:
        """Close the reading end."""
        self._reading.close()

    def close(self) -> None:
        """Close both ends. Nobody may write by the descriptor any more: it may be another file's now."""
        self.stop_reading()
        self.stream.close()
