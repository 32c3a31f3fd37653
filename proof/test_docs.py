"""The code of the documents runs, and prints what stands below it; tests/test_docs.py has all other claims."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.test_docs import BLOCKS, ROOT, Block

BLOCK_S_MAX = 600


RUN = [b for b in BLOCKS if b.language in ("sh", "python") and b.not_run is None]


@pytest.mark.parametrize("block", RUN, ids=str)
def test_code_runs(block: Block, tmp_path: Path) -> None:
    """A code block ends in success where only config/ is there, and prints what stands below it."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    interpreter = ["bash", "-euo", "pipefail"] if block.language == "sh" else [sys.executable]
    (tmp_path / "block").write_text(block.text)
    done = subprocess.run(
        [*interpreter, "block"],
        cwd=tmp_path,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=BLOCK_S_MAX,
    )
    assert done.returncode == 0, done.stderr
    if block.output is not None:
        assert done.stdout == block.output


def _environment() -> Mapping[str, str]:
    """Give this process's environment, without settings of ours, this Python's commands first."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STREAMDEDUP_")}
    return environment | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
