"""What a measured figure is worth nothing without: the machine and the versions."""

import os
import platform
from importlib.metadata import version


def machine(*packages: str) -> str:
    """The machine on a line, Python and `packages` with their versions on the next."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("streamdedup-kafka", *packages))
    return (
        f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} cores\n"
        f"Python {platform.python_version()}, {versions}"
    )
