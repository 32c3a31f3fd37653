"""`python -m bench hashes`: the hashes of `ClassicBloom` on keys with a structure; writes results/hashes.md's table.

One hash at a time sets bits in a table of m = 8 n, so that ideally 11.8 % of other keys are false positives; then eight
at once, ideally 2.6 %. Ends with status 1 where murmur3, siphash or MD5 are not ideal, or no string hash shows its
weakness: then the page would warn of what is not so.
"""

import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench.harness import RESULTS, put_between
from proof.filters.key_families import FAMILIES, keys_of
from streamdedup import ClassicBloom
from streamdedup.filters.bloom.classic import STRING_HASHES, salted_md5
from streamdedup.keys.hashing import Hash
from tests.filters.cases import SIGMAS

DOCUMENT = RESULTS / "hashes.md"
BEGIN, END = "<!-- written by `python -m bench hashes` -->", "<!-- end -->"

KEYS = 8192
PROBES = 4 * KEYS
SIZES = {"2^16": 1 << 16, "65,537": 65_537}  # a prime
SOUND = ("salted_md5", "murmur3", "siphash")

Hashes = Sequence[str | Callable[[Any], int]]


def main() -> int:
    """1 where a row is not as the page says."""
    rows = {name: ratios(hashes) for name, hashes in contenders().items()}
    lines = table(rows)
    print("\n".join(lines))
    put_between(DOCUMENT, BEGIN, END, "\n".join(lines))
    wrong = list(faults(rows))
    for fault in wrong:
        print(fault, file=sys.stderr)
    return 1 if wrong else 0


def faults(rows: Mapping[str, Sequence[float]]) -> list[str]:
    """What contradicts the page: a sound hash that is not ideal, or weak ones that all are."""
    ideal = -math.expm1(-KEYS / SIZES["2^16"])
    room = SIGMAS * math.sqrt(
        2 / (ideal * PROBES)
    )  # a filling's own spread is not above that of the probes
    sound = [
        f"{name} errs {ratio:.2f} times as often as it should; {1 - room:.2f} to {1 + room:.2f} are allowed"
        for name in SOUND
        for ratio in rows[name]
        if abs(ratio - 1) > room
    ]
    weak = [name for name in rows if name not in SOUND and max(rows[name]) > 2]
    return sound if weak else [*sound, "no string hash errs twice as often as it should"]


def contenders() -> Mapping[str, Hashes]:
    """The hashes of each row."""
    single: dict[str, Hashes] = {name: [name] for name in STRING_HASHES if name != "elf"}
    single["salted_md5"] = [partial(salted_md5, "0")]
    for hash_ in (Hash(), Hash("siphash", bytes(range(16)))):
        single[hash_.name] = [partial(_first_word, hash_)]
    return {**single, "all eight string hashes": list(STRING_HASHES)}


def _first_word(hash_: Hash, key: str) -> int:
    return hash_.digest(key)[0]


def ratios(hashes: Hashes) -> list[float]:
    """Errors as multiples of what independent, even hashes give: for each size, each family of keys."""
    return [_ratio(bits, hashes, family) for bits in SIZES.values() for family in FAMILIES]


def _ratio(bits: int, hashes: Hashes, family: str) -> float:
    seen, keys = ClassicBloom(bits, hashes), keys_of(family, KEYS + PROBES)
    random.Random(1).shuffle(keys)
    for key in keys[:KEYS]:
        seen.add(key)
    found = sum(key in seen for key in keys[KEYS:])
    return found / PROBES / seen.expected_error(KEYS)


def table(rows: Mapping[str, Sequence[float]]) -> list[str]:
    """The lines of the table."""
    columns = [f"{family}, m = {size}" for size in SIZES for family in FAMILIES]
    head = [f"| Hash | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    cells = {name: " | ".join(f"{ratio:.2f}" for ratio in ratios) for name, ratios in rows.items()}
    titles = {"pjw": "`pjw`, `elf`", "all eight string hashes": "all eight string hashes, k = 8"}
    return [*head, *(f"| {titles.get(name, f'`{name}`')} | {cells[name]} |" for name in rows)]


if __name__ == "__main__":
    sys.exit(main())
