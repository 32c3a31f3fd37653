"""`python -m tests.mutants [NAME ...]`, or `make mutants`: break each promise once, and see a test go red.

The changes are made in a copy of the repository, one at a time; without any, all the tests named must be green: they
are run once. Ends with status 1 where a mutant survives, and 2 where its change does not fit the source any more.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.broker.base import Unavailable
from tests.broker.ladder import BOOTSTRAP, find_broker
from tests.mutants.mutant import Mutant
from tests.mutants.promises import MUTANTS

ROOT = Path(__file__).parents[2]
LEFT_OUT = (".git", ".venv", "var", "dist", "build", "__pycache__", ".*_cache")
TESTS_S_MAX = 900
GREEN, RED = 0, 1  # pytest's exit statuses
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--tb=native", "-p", "no:cacheprovider")
PATIENCE = ("-p", "tests.mutants.patience")
# A client that a slow machine left behind unclosed is told of by whatever test comes next: that turns none of ours red.
NO_LEAKS = (
    "-W",
    "ignore::ResourceWarning",
    "-W",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def main(names: Sequence[str]) -> int:
    """Try all mutants, or those of `names`; prints a line for each."""
    if unknown := set(names) - {mutant.name for mutant in MUTANTS}:
        print(f"no such mutants: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    try:
        broker = find_broker()
    except (ConnectionError, Unavailable) as error:
        print(f"no broker, without which nothing would go red: {error}", file=sys.stderr)
        return 2
    with closing(broker), tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        os.environ[BOOTSTRAP] = broker.bootstrap_servers  # one for all
        copy = Path(directory) / "streamdedup"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        whole = sorted({test for mutant in chosen for test in mutant.tests})
        status, told = _run(copy, whole)
        if status != GREEN:
            print(f"{told}\nwithout any mutant the tests end with status {status}: mend them first")
            return 2
        results = [_try(copy, mutant) for mutant in chosen]
    print(f"{sum(results)} of {len(results)} mutants turned a test red")
    return 0 if all(results) else 1


def _try(copy: Path, mutant: Mutant) -> bool:
    began = time.monotonic()
    with _mutated(copy, mutant):
        status, told = _run(copy, mutant.tests)
    outcome = {GREEN: "SURVIVED", RED: "red"}.get(status, f"pytest's status {status}")
    test = re.search(r"^FAILED \S+::(\S+)", told, re.MULTILINE)
    seconds = time.monotonic() - began
    by = f" by {test[1]}" if test else ""
    print(f"{outcome:8}  {mutant.name:31}  {mutant.promise}{by}, {seconds:.0f} s", flush=True)
    if status not in (GREEN, RED):
        print(told[-3000:], file=sys.stderr)
    return status == RED


@contextmanager
def _mutated(copy: Path, mutant: Mutant) -> Iterator[None]:
    path = copy / "streamdedup" / mutant.file
    source = path.read_text("utf-8")
    try:
        path.write_text(mutant.applied_to(source), "utf-8")
        yield
    finally:
        path.write_text(source, "utf-8")


def _run(copy: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Pytest's exit status, and what it told."""
    done = subprocess.run(
        [*PYTEST, *PATIENCE, *NO_LEAKS, *tests],
        cwd=copy,
        timeout=TESTS_S_MAX,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
