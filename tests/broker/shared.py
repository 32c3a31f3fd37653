"""One broker for all processes of a test run: the first that asks starts it, the others get its address.

Each process that uses the broker holds a lock, which the system takes back if the process is killed. The process that
started the broker closes it last: it waits until no other process holds that lock.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.broker.base import Broker, admin_client, answers, wait_until

ADDRESS, TURN, USERS = "broker.address", "broker.turn", "broker.users"
ANSWER_S = 10


class SharedBroker:
    """A broker that several processes use. Only the process that has `started` it ends it."""

    owned = True

    def __init__(self, bootstrap_servers: str, directory: Path, started: Broker | None) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._directory, self._started = directory, started
        self._users: int | None = os.open(directory / USERS, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._users, fcntl.LOCK_SH)

    def close(self) -> None:
        """Stop using it; the process that started it waits for all others, then ends it."""
        if self._users is None:
            return
        if self._started is not None:
            with _turn(self._directory):  # who asks from here on starts another
                (self._directory / ADDRESS).unlink(missing_ok=True)
            fcntl.flock(self._users, fcntl.LOCK_UN)  # else two who wait here wait for each other
            fcntl.flock(self._users, fcntl.LOCK_EX)
            self._started.close()
        os.close(self._users)
        self._users = None


def shared_broker(directory: Path, start: Callable[[], Broker]) -> Broker:
    """Return the broker that another process shares in `directory`; if none answers, `start` one and share it.

    Whatever `start` raises is raised here, and the next process tries again.
    """
    with _turn(directory):
        if address := _address(directory):
            return SharedBroker(address, directory, None)
        broker = start()
        (directory / ADDRESS).write_text(broker.bootstrap_servers, "utf-8")
        return SharedBroker(broker.bootstrap_servers, directory, broker)


def _address(directory: Path) -> str | None:
    """The address of the shared broker. None if nobody shares one, or it went with a process that was killed."""
    with suppress(FileNotFoundError, TimeoutError):
        address = (directory / ADDRESS).read_text("utf-8")
        client = admin_client(address)
        wait_until(lambda: answers(client), ANSWER_S, lambda: "no answer")
        return address
    return None


@contextmanager
def _turn(directory: Path) -> Iterator[None]:
    with (directory / TURN).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
