"""The lowest versions that pyproject.toml allows of what the package needs, for `make lowest`.

The output is a file of constraints for pip. The tools of the extra `dev` are left out: nobody installs them to use it.
What the dependencies bring along is left to pip, which takes the newest that fits: their own bounds are not ours.
"""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def constraints() -> Iterator[str]:
    """Yield a line for each dependency. ValueError if one has no lowest version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for text in (*project["dependencies"], *extras["demo"], *extras["scrapy"]):
        needed = Requirement(text)
        lowest = [each.version for each in needed.specifier if each.operator == ">="]
        if len(lowest) != 1:
            raise ValueError(f"{text} has no lowest version")
        marker = f"; {needed.marker}" if needed.marker else ""
        yield f"{needed.name}=={lowest[0]}{marker}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in constraints())
