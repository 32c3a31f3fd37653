"""What all tests share: brokers (`broker`, `private_broker`), workers in this process (`start`), digests of keys."""

import gc
from collections.abc import Callable, Iterator

import hypothesis
import pytest

from streamdedup.keys.hashing import Digests, Hash

pytest_plugins = ["tests.broker.plugin", "tests.local", "tests.lists.tools"]

# How long an example takes is no claim, and the examples are the same in every run: nothing fails by chance.
# `pytest --hypothesis-profile=default` draws others.
hypothesis.settings.register_profile(
    "tests",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tests")

CONTAINERS = "--containers"
KEYS = 1_400_000  # what tells 0.1 % from a quarter more, and the members


def pytest_addoption(parser: pytest.Parser) -> None:
    """The image is built, and what it does is tested, only where that is asked for: it takes minutes."""
    parser.addoption(CONTAINERS, action="store_true", help="build and run the image, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `container`, unless they are asked for."""
    if config.getoption(CONTAINERS):
        return
    left_out = [item for item in items if item.get_closest_marker("container")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    """Give what a worker in this process froze back to the garbage collector.

    On Python 3.14, hypothesis finds nobody among the frozen who refers to its generator of random numbers, and warns.
    """
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def family_digests() -> Callable[[str, Hash], Digests]:
    """Give digests by a family's name and a hash: the same (1,400,000, 2), of different keys, to all who ask."""
    from tests.filters.key_families import digests_of

    return lambda family, hash_: digests_of(family, hash_, KEYS)
