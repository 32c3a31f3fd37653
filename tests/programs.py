"""Programs that the tests need and pip does not bring: those of Debian's packages, which `.ci/tools` installs."""

import os
import shutil

import pytest


def program_of_debian(name: str, package: str) -> str:
    """Return the path of a program; without it, skip the test by name, or fail in CI."""
    if (path := shutil.which(name)) is not None:
        return path
    reason = f"there is no {name} (Debian: apt install {package})"
    if os.environ.get("STREAMDEDUP_TEST_TOOLS") == "installed":
        pytest.fail(f"{reason}, though .ci/tools installed it", pytrace=False)
    pytest.skip(reason)
