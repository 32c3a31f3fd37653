"""A plugin of pytest for mutants: the product is broken, in child processes, too, and a test waits for 15 s at most.

What a mutant keeps from happening never comes. The tests wait no longer without a mutant either, so that a slow machine
is not taken for a red test. `STREAMDEDUP_MUTANT=label-ahead python -m pytest -p proof.mutants.plugin TEST` debugs one.
"""

import os
import sys
from pathlib import Path

import pytest

from proof.mutants.applied import MUTANT_ENV, enter

SITE = Path(__file__).with_name("site")
ROOT = Path(__file__).parents[2]
WAIT_S_MAX = 15.0


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Enter it before a module of the tests is imported, and have every Python that a test starts enter it at once."""
    if MUTANT_ENV not in os.environ:
        return
    try:
        enter()
    except Exception as error:
        # Any other exception would end pytest with the status of a test that failed.
        raise pytest.UsageError(f"the mutant cannot be entered: {error}") from error
    os.environ["PYTHONPATH"] = path_of_children()


def path_of_children() -> str:
    """The PYTHONPATH with which a Python enters the mutant that its environment names."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(SITE), str(ROOT), *filter(None, inherited)])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shorten the deadline that the modules of the tests name."""
    modules = {item.module for item in items if isinstance(item, pytest.Function)}
    for module in (sys.modules["tests.local"], *modules):
        if (named := vars(module).get("DEADLINE_S")) is not None:
            vars(module)["DEADLINE_S"] = min(named, WAIT_S_MAX)
