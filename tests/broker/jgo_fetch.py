"""Run as a script, `jgo_fetch.py DIRECTORY COORDINATE...`: download jars by jgo's Maven client."""

import shutil
import sys
import tempfile
from pathlib import Path


def main(into: str, *coordinates: str) -> None:
    """Download each coordinate's jar, past the user's Maven cache, which may be broken."""
    try:
        from jgo.maven import MavenContext
    except ImportError:
        sys.exit("jgo is not installed (pip install jgo)")
    with tempfile.TemporaryDirectory() as repository:
        maven = MavenContext(repo_cache=Path(repository), timeout=60)
        for coordinate in coordinates:
            shutil.move(maven.create_dependency(coordinate).artifact.resolve(), into)


if __name__ == "__main__":
    main(*sys.argv[1:])
