"""What a contender in a process of its own is asked to do, and how it says that it has begun.

Its only argument is what it is asked, as JSON; a line of JSON on standard error says that it has
partitions, as the worker's log does; at SIGTERM it finishes and commits what is in hand, and ends.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """One run of a contender; the words are those of the worker's configuration."""

    bootstrap: str
    group: str
    source: str
    sink: str
    key: str
    guarantee: str
    compression: str

    @property
    def exactly_once(self) -> bool:
        """Whether output and offsets are to be committed together."""
        return self.guarantee == "exactly_once"


def asked() -> Asked:
    """What this process is asked to do."""
    return Asked(**json.loads(sys.argv[1]))


def tell_assigned(partitions: Iterable[int]) -> None:
    """The clock starts."""
    print(json.dumps({"event": "assigned", "partitions": [*partitions]}), file=sys.stderr)
