"""Claims about what is said before the group is joined."""

import os
import subprocess
import sys
from pathlib import Path

from tests.broker.base import DEADLINE_S

STARTS = """
from pathlib import Path
from streamdedup import logs
from streamdedup.delivery.recipe import Recipe
from streamdedup.kafka.topics import Topic, Topology
from streamdedup.worker.startup import try_filter
from streamdedup.settings import load

logs.set_up()
settings = load(Path(CONFIG))
recipe = Recipe(settings, 1)
try_filter(recipe, Topology(None, {"unique": Topic("unique", None, 1, 1)}))
"""
CONFIG = """\
kafka: {bootstrap_servers: localhost:9092, group_id: dedup}
source: {topic: events}
key: {field: id}
filter: {capacity: 1000}
sink: {topic: unique}
snapshot: {directory: var/snapshots}
"""


def test_a_first_start_that_compiles_says_so_once(tmp_path: Path) -> None:
    """With an empty cache one line explains the silence; the next start finds it all, and says nothing."""
    config = tmp_path / "dedup.yaml"
    config.write_text(CONFIG)

    def lines() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", STARTS.replace("CONFIG", repr(str(config)))],
            env=os.environ | {"STREAMDEDUP_CACHE": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
            timeout=DEADLINE_S,
        )
        return [line for line in done.stderr.splitlines() if '"compiling"' in line]

    first, second = lines(), lines()
    assert (len(first), second) == (1, [])
    assert "kept for the next start" in first[0]
