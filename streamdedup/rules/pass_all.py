"""The rule of a worker without a duplicates filter: every key that no list blocks passes, each time it comes."""

from collections.abc import Iterator

import numpy as np

from streamdedup.events import Integers, Verdict, Verdicts
from streamdedup.keys.hashing import Digests


class PassAll:
    """Takes the place of the duplicates rule, and follows its protocol. No key is ever pending."""

    pending = late = untimed = ancient = 0
    room = 1 << 62
    watermark = None

    def judge(self, digests: Digests, _times: Integers, *, within_budget: bool) -> Verdicts:  # noqa: ARG002 - there is none
        """Return PASS for every event."""
        return np.full(len(digests), Verdict.PASS, dtype=np.uint8)

    def seal(self) -> None:
        """Do nothing: no key is pending."""

    def admit(self) -> Iterator[None]:
        """Do nothing: no key is pending."""
        yield from ()

    def forget(self) -> None:
        """Do nothing: no key is pending."""

    def fold(self, _digests: Digests, _times: Integers) -> Iterator[None]:
        """Do nothing: no key is remembered."""
        yield from ()

    def start_at(self, _watermark: int | None) -> Iterator[None]:
        """Do nothing: there is no filter."""
        yield from ()
