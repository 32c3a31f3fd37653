"""The rule of a worker that only screens: what no list blocks passes, as often as it comes, and nothing waits."""

from collections.abc import Iterator

import numpy as np

from streamdedup.events import Integers, Verdict, Verdicts
from streamdedup.keys.hashing import Digests


class PassAll:
    """In place of the duplicates rule; as `DuplicatesRule` says."""

    pending = late = 0
    room = 1 << 62
    watermark = None

    def judge(self, digests: Digests, _times: Integers, *, within_budget: bool) -> Verdicts:  # noqa: ARG002 - there is none
        """As `DuplicatesRule.judge`."""
        return np.full(len(digests), Verdict.PASS, dtype=np.uint8)

    def seal(self) -> None:
        """As `DuplicatesRule.seal`."""

    def admit(self) -> Iterator[None]:
        """As `DuplicatesRule.admit`."""
        yield from ()

    def forget(self) -> None:
        """As `DuplicatesRule.forget`."""

    def fold(self, _digests: Digests, _times: Integers) -> Iterator[None]:
        """As `DuplicatesRule.fold`."""
        yield from ()

    def start_at(self, _watermark: int | None) -> Iterator[None]:
        """As `DuplicatesRule.start_at`."""
        yield from ()
