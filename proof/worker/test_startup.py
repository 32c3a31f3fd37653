"""Claims about what is said before the group is joined."""

import os
import subprocess
import sys
from pathlib import Path

from streamdedup.kernel import cache_root
from tests.broker.base import DEADLINE_S

STARTS = """
import sys
from pathlib import Path
from streamdedup import logs
from streamdedup.delivery.recipe import Recipe
from streamdedup.kafka.topics import Topic, Topology
from streamdedup.worker.startup import try_filter
from streamdedup.settings import load

logs.set_up()
settings = load(Path("dedup.yaml"))
recipe = Recipe(settings, 1)
try_filter(recipe, Topology(None, {"unique": Topic("unique", None, 1, 1)}))
print(*sys.modules)
"""
CONFIG = """\
kafka: {bootstrap_servers: localhost:9092, group_id: dedup}
source: {topic: events}
sink: {topic: unique}
"""
SCREENING = "key: {from: key}\nfilter: {kind: none}\nblocklist: {file: blocked.list}\n"
FILTERING = "key: {field: id}\nfilter: {capacity: 1000}\nsnapshot: {directory: var/snapshots}\n"


def started(directory: Path, job: str, cache: Path) -> tuple[list[str], set[str]]:
    """Start a worker with this job; return what it says about compiling, and the modules that it loaded."""
    (directory / "dedup.yaml").write_text(CONFIG + job)
    (directory / "blocked.list").touch()
    done = subprocess.run(
        [sys.executable, "-c", STARTS],
        cwd=directory,
        env=os.environ | {"STREAMDEDUP_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    said = [line for line in done.stderr.splitlines() if '"compiling"' in line]
    return said, set(done.stdout.split())


def test_a_first_start_that_compiles_says_so_once(tmp_path: Path) -> None:
    """With an empty cache one line explains the silence; the next start finds it all, and says nothing.

    A worker that only screens has the fewest kernels.
    """
    (first, _), (second, _) = (started(tmp_path, SCREENING, tmp_path / "cache") for _ in range(2))
    assert (len(first), second) == (1, [])
    assert "kept for the next start" in first[0]


def test_the_next_start_of_a_filter_over_json_compiles_nothing(tmp_path: Path) -> None:
    """What the usual worker compiles is kept, too: in the cache of the tests, which mostly has it before they begin.

    Nor does it load the kernels of other kinds of filter, which takes a tenth of a second.
    """
    cache = cache_root()
    said, loaded = started(tmp_path, FILTERING, cache)
    assert not said or not started(tmp_path, FILTERING, cache)[0]
    assert "streamdedup.filters.growing.chain" in loaded  # of which the sizes are computed
    of_families = (name.split(".") for name in loaded if name.startswith("streamdedup.filters."))
    families = {rest[0] for _, _, *rest in of_families if len(rest) > 1 and rest[1] != "kinds"}
    assert families.isdisjoint({"bitmap", "bloom", "dleft", "fuse"})
