"""A plugin of pytest: the product is broken by the mutant that $STREAMDEDUP_MUTANT names, in child processes, too.

`STREAMDEDUP_MUTANT=label-ahead python -m pytest -p tests.mutants.plugin TEST` debugs one.
"""

import os
from pathlib import Path

import pytest

from tests.mutants.applied import enter

SITE = Path(__file__).with_name("site")
ROOT = Path(__file__).parents[2]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Enter it before a module of the tests is imported, and have every Python that a test starts enter it at once."""
    enter()
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE), str(ROOT), *filter(None, inherited)])
