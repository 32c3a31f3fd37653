"""Where nothing is compiled yet, `streamdedup plan` says that it compiles."""

import os
import subprocess
from pathlib import Path

from tests.commands.test_plan import COMMAND, COMPILES


def test_a_first_run_says_that_it_compiles(tmp_path: Path) -> None:
    """One line on standard error where nothing is compiled yet, and none on the next run."""
    environment = os.environ | {"STREAMDEDUP_CACHE": str(tmp_path)}
    command = [*COMMAND, "--keys", "1k", "--error-rate", "1e-15", "--window", "7d"]
    told = [
        subprocess.run(command, env=environment, capture_output=True, check=True).stderr
        for _ in range(2)
    ]
    assert told == [COMPILES, b""]
