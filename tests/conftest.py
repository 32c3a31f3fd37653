"""What all tests share: brokers (`broker`, `private_broker`), local workers (`start`), and digests of real keys."""

from collections.abc import Callable

import pytest

from streamdedup.keys.hashing import Digests, Hash

pytest_plugins = ["tests.broker.plugin", "tests.local"]

KEYS = 1_400_000  # what tells 0.1 % from a quarter more, and the members


@pytest.fixture(scope="session")
def family_digests() -> Callable[[str, Hash], Digests]:
    """Give digests by a family's name and a hash: the same (1,400,000, 2), of different keys, to all who ask."""
    from tests.key_families import digests_of

    return lambda family, hash_: digests_of(family, hash_, KEYS)
