"""`python -m proof.chaos.clients PORT`: HTTP clients that ask without pause, slow ones, and one that asks as probes do.

They ask until the standard input ends; then a line of JSON says what came of it.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

HOST = "127.0.0.1"
ASKERS, SLOW = 24, 40
SLOW_BYTE_EVERY_S = 0.2
PROBE_EVERY_S = 0.2
PROBE_S_MAX = 1.0  # what Kubernetes gives a probe if nothing else is configured
CLIENT_S_MAX = 10.0
STARTED = "started"


@dataclass
class Counts:
    """What came of it so far."""

    scrapes: int = 0
    probes: int = 0
    unanswered: int = 0
    slowest_probe_s: float = 0.0


class Clients:
    """Those of one port. Each is a thread, and goes on if the server cuts it off."""

    def __init__(self, port: int) -> None:
        self.counts = Counts()
        self._address = HOST, port
        self._ending, self._lock = threading.Event(), threading.Lock()
        deeds: Mapping[Callable[[], None], int] = {
            self._scrape: ASKERS,
            self._ask_slowly: SLOW,
            self._probe: 1,
        }
        self._threads = [
            threading.Thread(target=self._go_on, args=(deed,), daemon=True)
            for deed, number in deeds.items()
            for _ in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let each end what it does."""
        self._ending.set()
        for thread in self._threads:
            thread.join(CLIENT_S_MAX)

    def _go_on(self, deed: Callable[[], None]) -> None:
        while not self._ending.is_set():
            with suppress(OSError):
                deed()

    def _scrape(self) -> None:
        if self._answer("/metrics", CLIENT_S_MAX):
            with self._lock:
                self.counts.scrapes += 1

    def _ask_slowly(self) -> None:
        with socket.create_connection(self._address, CLIENT_S_MAX) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\nslow: ")
            while not self._ending.wait(SLOW_BYTE_EVERY_S):
                connection.sendall(b"y")

    def _probe(self) -> None:
        """Ask; the probe is answered if the whole answer came in time."""
        began = time.monotonic()
        answer = b""
        with suppress(OSError):
            answer = self._answer(("/livez", "/readyz")[self.counts.probes % 2], PROBE_S_MAX)
        seconds = time.monotonic() - began
        self.counts.probes += 1
        self.counts.unanswered += not (b" 200 " in answer and seconds <= PROBE_S_MAX)
        self.counts.slowest_probe_s = max(self.counts.slowest_probe_s, seconds)
        self._ending.wait(PROBE_EVERY_S)

    def _answer(self, path: str, seconds: float) -> bytes:
        with socket.create_connection(self._address, seconds) as connection:
            connection.sendall(b"GET %b HTTP/1.1\r\nHost: worker\r\n\r\n" % path.encode())
            return b"".join(iter(lambda: connection.recv(65_536), b""))


if __name__ == "__main__":
    clients = Clients(int(sys.argv[1]))
    print(STARTED, flush=True)
    sys.stdin.read()
    clients.end()
    print(json.dumps(asdict(clients.counts)))
