"""A plugin of pytest: the product is broken by the mutant that $STREAMDEDUP_MUTANT names, in child processes, too.

`STREAMDEDUP_MUTANT=label-ahead python -m pytest -p proof.mutants.plugin TEST` debugs one.
"""

import os
from pathlib import Path

import pytest

from proof.mutants.applied import enter

SITE = Path(__file__).with_name("site")
ROOT = Path(__file__).parents[2]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Enter it before a module of the tests is imported, and have every Python that a test starts enter it at once."""
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
