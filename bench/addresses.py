"""`python -m bench.addresses`: what an e-mail address takes to normalize, by what it looks like."""

import random
import sys
from collections.abc import Callable
from functools import partial

from bench.harness import machine_text, print_rates
from streamdedup.events import Column
from streamdedup.keys.normalizers.email import EmailNormalizer
from streamdedup.keys.options import EmailRules

BATCH, ROUNDS = 8_192, 7
PYTHONS = 256  # of those that Python reads
HOSTS = (
    "gmail.com",
    "outlook.com",
    "yahoo.com",
    "example.com",
    "mail.company.example",
    "web.example.org",
)


def main() -> int:
    """Print it."""
    print(machine_text("numpy", "numba", "email-validator", "idna"))
    rng, email = random.Random(1), EmailNormalizer(EmailRules.of("provider"))
    calls = {}
    for name, count, make in KINDS:
        column = Column.of([make(rng).encode() for _ in range(count)])
        email.of_column(column)
        calls[name] = count, partial(email.of_column, column)
    print_rates(calls, ROUNDS)
    return 0


def _name(rng: random.Random) -> str:
    return f"{rng.choice('abcdefgh')}{rng.randrange(10**6)}.{rng.choice('uvwxyz')}{rng.randrange(10**4)}"


def _ascii(rng: random.Random) -> str:
    return f"{_name(rng)}@{rng.choice(HOSTS)}"


def _tagged(rng: random.Random) -> str:
    return f"{_name(rng).title()}+shop@GoogleMail.com"


def _international(rng: random.Random) -> str:
    return f"{_name(rng)}@bücher-{rng.randrange(10**4)}.example"


def _crafted(rng: random.Random) -> str:
    """The worst that is known: five long labels of different letters."""
    letters = [chr(letter) for letter in range(0x3B1, 0x3C9) if letter != 0x3C2]  # Greek
    return f"a@{'.'.join(''.join(rng.sample(letters, 20)) for _ in range(5))}.com"


def _wrong(rng: random.Random) -> str:
    return f"{_name(rng)} at example.com"


KINDS: list[tuple[str, int, Callable[[random.Random], str]]] = [
    ("ASCII", BATCH, _ascii),
    ("capitals, dots, a tag, an alias", BATCH, _tagged),
    ("an international domain", PYTHONS, _international),
    ("long labels of other letters", PYTHONS, _crafted),
    ("no address", PYTHONS, _wrong),
]


if __name__ == "__main__":
    sys.exit(main())
