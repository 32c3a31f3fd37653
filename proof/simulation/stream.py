"""What was fed, and what becomes of it by the book: a plain model of the rules, beside which the product is held."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Protocol

from typing_extensions import override

from streamdedup.events import NO_TIMESTAMP
from streamdedup.kafka.options import MARK
from streamdedup.testing import Logged
from streamdedup.units import parse_milliseconds

REJECTED, FOREIGN = b"ahead", b"foreign"
MARKS = PASS, DUPLICATE, BLOCKED, MALFORMED = (b"pass", b"duplicate", b"blocked", b"malformed")
AHEAD_MS = 2 * 3_600_000  # beyond what the output takes, and for as long as a history lasts
Place = tuple[bytes | None, bytes | None]
"""Key and value of an event, of which no two are fed alike."""


class Kind(StrEnum):
    """What an event is, whatever came before it."""

    JUDGED = "judged"
    UNJUDGED = "unjudged"
    MALFORMED = "malformed"
    REJECTED = "rejected"
    BLOCKED = "blocked"


def kind_of(event: Logged, *, is_listed: bool = False) -> Kind:
    """By what stands in it, and whether the block list has its key."""
    if event.value is None:
        return Kind.UNJUDGED
    if event.key is None:
        return Kind.MALFORMED
    if event.value.startswith(REJECTED):
        return Kind.REJECTED
    return Kind.BLOCKED if is_listed else Kind.JUDGED


def mark_of(event: Logged) -> bytes:
    """What its last mark tells; that it passed, where it has none."""
    marks = [value for name, value in event.headers if name == MARK]
    return marks[-1] or PASS if marks else PASS


def is_foreign(event: Logged) -> bool:
    """Whether it was written to the output by somebody else."""
    return bool(event.value and event.value.startswith(FOREIGN))


class Memory(Protocol):
    """Which keys are known."""

    def take(self, key: bytes, time_ms: int) -> bool:
        """Whether the next event passes; its key is then known."""

    def fold(self, key: bytes, time_ms: int) -> None:
        """An event that passed, whatever was known."""

    def forget(self, key: bytes) -> None:
        """Its events were deleted."""

    def known(self) -> set[bytes]:
        """The keys that would not pass, at the time that was reached."""


def memory(filter_: dict[str, Any]) -> Memory:
    """An empty one, by the section `filter` of the settings."""
    if filter_["kind"] == "none":
        return Never()
    return Within(filter_) if filter_["kind"] == "window" else Forever()


def folded(filter_: dict[str, Any], output: Iterable[Logged]) -> Memory:
    """What is known after `output`."""
    seen = memory(filter_)
    for event in output:
        if event.key is not None and event.value is not None:
            seen.fold(event.key, event.timestamp)
    return seen


class Never(Memory):
    """Knows nothing: every event passes."""

    @override
    def take(self, _key: bytes, _time_ms: int) -> bool:
        return True

    @override
    def fold(self, key: bytes, time_ms: int) -> None:
        return

    @override
    def forget(self, key: bytes) -> None:
        return

    @override
    def known(self) -> set[bytes]:
        return set()


class Forever(Memory):
    """Forgets nothing."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    @override
    def take(self, key: bytes, time_ms: int) -> bool:
        fresh = key not in self._keys
        self.fold(key, time_ms)
        return fresh

    @override
    def fold(self, key: bytes, _time_ms: int) -> None:
        self._keys.add(key)

    @override
    def forget(self, key: bytes) -> None:
        self._keys.discard(key)

    @override
    def known(self) -> set[bytes]:
        return self._keys


class Within(Memory):
    """A window, by the events' times alone (docs/windows.md): each key has the generations in which it was taken."""

    def __init__(self, filter_: dict[str, Any]) -> None:
        self._count = int(filter_["generations"])
        self._slot = -(-parse_milliseconds(filter_["retention"]) // (self._count - 1))
        jump = filter_.get("max_jump")
        self._jump = parse_milliseconds(jump) if jump else None
        self._late_passes = filter_["late"] == "pass"
        self._mark: int | None = None
        self._keys: dict[bytes, set[int]] = {}
        self._undated: set[bytes] = set()

    @override
    def take(self, key: bytes, time_ms: int) -> bool:
        if key in self._undated:
            return False
        if time_ms == NO_TIMESTAMP:
            if self._mark is None:
                self._undated.add(key)
                return True
            time_ms = self._mark
        own = time_ms // self._slot
        oldest = max(own, self._current(own)) - self._count
        if any(generation > oldest for generation in self._keys.get(key, ())):
            return False
        late = own <= self._current(own) - self._count
        self.fold(key, time_ms)
        return self._late_passes or not late

    def fold(self, key: bytes, time_ms: int) -> None:
        """As `Memory.fold`; what is late is not remembered."""
        if time_ms == NO_TIMESTAMP:
            if self._mark is None:
                self._undated.add(key)
                return
            time_ms = self._mark
        own = time_ms // self._slot
        if own <= self._current(own) - self._count:
            return
        if self._mark is None:
            self._mark = time_ms
            for undated in self._undated:
                self._keys.setdefault(undated, set()).add(own)
            self._undated.clear()
        ahead = time_ms if self._jump is None else min(time_ms, self._mark + self._jump)
        self._mark = max(self._mark, ahead)
        self._keys.setdefault(key, set()).add(min(own, self._mark // self._slot))

    @override
    def forget(self, key: bytes) -> None:
        self._keys.pop(key, None)
        self._undated.discard(key)

    @override
    def known(self) -> set[bytes]:
        oldest = self._current(0) - self._count
        live = {key for key, taken in self._keys.items() if max(taken) > oldest}
        return live | self._undated

    def _current(self, own: int) -> int:
        return own if self._mark is None else self._mark // self._slot
