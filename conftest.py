"""What all tests share: brokers (`broker`, `private_broker`), workers in this process (`start`), digests of keys."""

import gc
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis
import pytest
import structlog

from streamdedup.errors import StreamdedupError
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.metrics.findings import Finding, Kind
from streamdedup.worker import worker

pytest_plugins = [
    "tests.broker.labs",
    "tests.broker.plugin",
    "tests.broker.reading",
    "tests.lists.screening",
    "tests.lists.tools",
    "tests.cli.processes",
    "tests.kernel_probes",
    "tests.local",
    "tests.registry.real",
    "tests.timing",
]

# How long an example takes is no claim, and the examples are the same in every run: nothing fails by chance.
# `pytest --hypothesis-profile=default` draws others.
hypothesis.settings.register_profile(
    "tests",
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tests")

ROOT = Path(__file__).parent
FOLDERS = (ROOT / "tests", ROOT / "proof")
CONTAINERS = "--containers"
KEYS = 1_400_000  # what tells 0.1 % from a quarter more, and the members


def pytest_addoption(parser: pytest.Parser) -> None:
    """The image is built, and what it does is tested, only where that is asked for: it takes minutes."""
    parser.addoption(CONTAINERS, action="store_true", help="build and run the image, too")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import a share of the test modules before all of them are collected: a share for each process of a run.

    In a fresh clone pytest rewrites the assertions of each module that it imports first, which takes 5 s for all, and
    keeps the result for other processes. Processes that start side by side would each rewrite all.
    """
    given = getattr(session.config, "workerinput", {})
    folders = [ROOT / name for name in session.config.args]
    if not given or not all(folder in FOLDERS for folder in folders):
        return
    count, own = int(given["workercount"]), int(given["workerid"].removeprefix("gw"))
    paths = sorted(path for folder in folders for path in folder.rglob("test_*.py"))
    for path in paths[own::count]:
        with suppress(Exception, pytest.skip.Exception):  # collecting reports it
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `container`, unless they are asked for."""
    if config.getoption(CONTAINERS):
        return
    left_out = [item for item in items if item.get_closest_marker("container")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test marked `finding` if it does not cause the findings, or the errors of findings, that it names."""
    named = {name for mark in item.iter_markers("finding") for name in mark.args}
    if not named:
        return (yield)
    caused, at, init = set[str](), Kind.at, StreamdedupError.__init__

    def noted(kind: Kind, place: str | None, sentence: str, remedy: str | None = None) -> Finding:
        caused.add(kind.id)
        return at(kind, place, sentence, remedy)

    def noted_error(error: StreamdedupError, *given: Any, **named: Any) -> None:
        caused.add(named.get("finding") or "")
        init(error, *given, **named)

    with patch.object(Kind, "at", noted), patch.object(StreamdedupError, "__init__", noted_error):
        result = yield
    if missing := named - caused:
        pytest.fail(f"the test does not cause {', '.join(sorted(missing))}", pytrace=False)
    return result


class YoungCollector:
    """Stands in for `gc` in a worker of this process, which collects fully at its start, and freezes what is left.

    Here that would visit all that the tests loaded, for 0.2 s, and keep the garbage collector from what it froze.
    """

    def __init__(self) -> None:
        self.is_asked = False

    def collect(self) -> None:
        """Leave it to the end of the test."""
        self.is_asked = True

    def freeze(self) -> None:
        """Do nothing. On Python 3.14 hypothesis warns if its generator of random numbers is frozen."""


@pytest.fixture(autouse=True)
def logs_are_as_before() -> Iterator[None]:
    """Undo how a command that ran in this process has set up its logs.

    It also would have loggers keep that for good, and what a later test captures would lack their lines.
    """
    configure, level = structlog.configure, logging.root.level

    def uncached(*arguments: Any, **options: Any) -> None:
        configure(*arguments, **{**options, "cache_logger_on_first_use": False})

    with patch.object(structlog, "configure", uncached):
        yield
    structlog.reset_defaults()
    logging.root.setLevel(level)


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Let files and directories have all permissions that they are made with."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def young_collector() -> Iterator[None]:
    """Collect what a worker of the test left, without what was there long before."""
    collector = YoungCollector()
    with patch.object(worker, "gc", collector):
        yield
    if collector.is_asked:
        gc.collect(1)


@pytest.fixture(scope="session")
def family_digests() -> Callable[[str, Hash], Digests]:
    """Give digests by a family's name and a hash: the same (1,400,000, 2), of different keys, to all who ask."""
    from proof.filters.key_families import digests_of

    return lambda family, hash_: digests_of(family, hash_, KEYS)
