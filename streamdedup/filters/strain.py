"""How much longer keys take in a table than random ones would. Beyond a bound, an addition is refused.

murmur3 is invertible: whoever knows that it is the hash can choose keys that meet in one place of a table, so that each
takes longer than the one before. The places cannot be secret, because their order is part of files and of the fold.

The strain is an account in steps. Each new key charges the steps that it took, and pays in three times what a random
one takes on average in a table at its capacity. So chosen keys take at most three times as long as random ones, and
STRAIN_MAX steps more, once. Beyond the capacity of a cuckoo table, and among the copies of a multiset, random keys take
long, too: there none is refused, but each search is short, in a multiset once the account is half used. The account is
of this process only: no file has it. So only a multiset, which no fold makes again, may depend on it.
"""

import numpy as np

from streamdedup.errors import ConfigError
from streamdedup.filters.memory import Counts
from streamdedup.kernel import inlined
from streamdedup.keys.hashing import Hash

STRAIN_MAX = 1 << 14
"""At the largest size and a load of 0.9 an exact set has runs of up to 4,000; random keys stay below half of this."""

# Indexes in a filter's `_counts`, after its own two. CREDIT is what each new key pays in.
STRAIN, FLAGS, CREDIT, NEEDED = 2, 3, 4, 5
COUNTS = 6

# Bits of FLAGS: half of a bound was exceeded; the last addition was refused.
STRAINED, REFUSED = 1, 2

STRAIN_HALF = STRAIN_MAX // 2


class ChosenKeysError(ConfigError):
    """An addition was refused, and changed nothing: somebody seems to choose keys that slow the filter down."""


def chosen_keys(kind: str, hash_: Hash) -> ChosenKeysError:
    """Return the error for a filter of this kind and hash."""
    return ChosenKeysError(
        f"filter.hash {hash_.name}: in a filter of kind {kind}, keys take longer than keys at random ever do, so"
        " somebody seems to choose them, and one is refused",
        remedy=chosen_keys_remedy(hash_),
        finding="keys-chosen",
    )


def chosen_keys_remedy(hash_: Hash) -> str:
    """Return what to set, and where, if keys seem to be chosen for a filter of this hash."""
    if hash_.key:
        return "set filter.hash_key to another secret, which nobody else knows"
    return "set filter.hash: siphash (of pipe and lists build: --hash siphash); the filter is then built anew"


def take_refusal(counts: Counts) -> bool:
    """Return whether the last addition was refused, and forget it."""
    refused = bool(counts[FLAGS] & REFUSED)
    counts[FLAGS] &= ~REFUSED
    return refused


@inlined
def relieve(counts: Counts) -> None:
    """Count a new key that took no more than one step."""
    if counts[STRAIN] != 0:
        counts[STRAIN] = max(np.int64(0), counts[STRAIN] - counts[CREDIT])


@inlined
def charge(counts: Counts, steps: int) -> None:
    """Count a new key that took `steps`."""
    owe(counts, steps)
    if counts[STRAIN] > STRAIN_HALF:
        counts[FLAGS] |= STRAINED


@inlined
def owe(counts: Counts, steps: int) -> None:
    """Count a key that took `steps`, and is no sign of chosen keys."""
    counts[STRAIN] = max(np.int64(0), counts[STRAIN] + steps - counts[CREDIT])


@inlined
def refuse(counts: Counts) -> None:
    """Note that an addition is refused."""
    counts[FLAGS] |= REFUSED | STRAINED
