"""What a worker does when it is asked over HTTP, beside its pages: the seam between the server and the worker."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamdedup.explain.beside import Answering

Check = Callable[[Sequence[bytes]], bytes]
"""Returns what `lists check` prints of keys by the lists in force. Any thread may call it; it may wait for a disk.

StreamdedupError if there is no block list.
"""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of an action: a sentence, and more for programs."""

    sentence: str
    more: dict[str, Any] = field(default_factory=dict)


Act = Callable[[], Awaitable[Done]]
"""Acts, on the worker's loop. To do it again is safe."""


@dataclass(frozen=True)
class Doing:
    """What one worker offers to those who have its token."""

    answering: Answering
    check: Check
    snapshot: Act
    drain: Act
    reload: Act
