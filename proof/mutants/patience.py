"""A plugin of pytest: a test waits for 15 s at most, since what a mutant keeps from happening never comes.

The tests wait no longer without a mutant either, so that a slow machine is not taken for a red test.
"""

import sys

import pytest

WAIT_S_MAX = 15.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shorten the deadline that the modules of the tests name."""
    modules = {item.module for item in items if isinstance(item, pytest.Function)}
    for module in (sys.modules["tests.local"], *modules):
        if (named := vars(module).get("DEADLINE_S")) is not None:
            vars(module)["DEADLINE_S"] = min(named, WAIT_S_MAX)
