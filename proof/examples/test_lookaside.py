"""The measurement of docs/lookaside.md, with few keys and a real Redis."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.test_lookaside import SCRIPT, table

KEYS, LOOKUPS = 2000, 2000


NO_REDIS = "there is no redis-server (Debian: apt install redis-server)"


@pytest.mark.skipif(shutil.which("redis-server") is None, reason=NO_REDIS)
def test_it_asks_redis_for_what_may_be_present_only(tmp_path: Path) -> None:
    """Redis counts the keys that it is asked for: with the filter those that are present, and a few more."""
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--keys", str(KEYS), "--lookups", str(LOOKUPS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "Redis" in run.stdout.splitlines()[1]
    assert "user:new: b'a value'" in run.stdout
    rows = [re.split(r" *\| *", line.strip("| ")) for line in table(run.stdout)[2:]]
    assert [present for present, *_ in rows] == ["1 %"] * 4 + ["50 %"] * 4
    for present, way, asked, *_ in rows:
        share = float(asked.removesuffix(" %"))
        least = float(present.removesuffix(" %"))
        if "filter" in way:
            assert least <= share < least + 1
        else:
            assert share == 100
