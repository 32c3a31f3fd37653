"""`python -m proof mutants [NAME ...]`: break each promise once, and see a test go red.

Each mutant is entered in a pytest process of its own, and in the processes that the tests start. Before, all the tests
named are run once without any, and must be green. Ends with status 1 if a mutant survives, and with 2 if one is
unknown, or the tests cannot be run. `--quick` leaves out the tests in proof/, so that a mutant that only these see
survives: docs/testing.md names those.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bench.entry import add_names
from proof.mutants.applied import MUTANT_ENV
from proof.mutants.finding import is_quick, node_id
from proof.mutants.mutant import Mutant
from proof.mutants.promises import MUTANTS
from streamdedup.kernel import CACHE_ENV
from tests.broker.base import Unavailable
from tests.broker.ladder import BOOTSTRAP, find_broker

ROOT = Path(__file__).parents[2]
TESTS_S_MAX = 900
GREEN, RED = 0, 1  # pytest's exit statuses
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--tb=native", "-p", "no:cacheprovider")
PLUGIN = ("-p", "proof.mutants.plugin")
# A client that a slow machine left behind unclosed is told of by whatever test comes next: that turns none of ours red.
NO_LEAKS = (
    "-W",
    "ignore::ResourceWarning",
    "-W",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def main(names: Sequence[str], *, quick: bool = False) -> int:
    """Try all mutants, or those of `names`; prints a line for each. `quick`: with those of their tests in tests/."""
    chosen = [
        _with_tests_of(mutant, quick) for mutant in MUTANTS if not names or mutant.name in names
    ]
    try:
        broker = find_broker()
    except (ConnectionError, Unavailable) as error:
        print(f"no broker, without which nothing would go red: {error}", file=sys.stderr)
        return 2
    with closing(broker):
        os.environ[BOOTSTRAP] = broker.bootstrap_servers  # one for all
        whole = sorted({test for mutant in chosen for test in mutant.tests})
        status, told = _run(whole)
        if status != GREEN:
            print(f"{told}\nwithout any mutant the tests end with status {status}: mend them first")
            return 2
        results = [_try(mutant) for mutant in chosen]
    print(f"{sum(results)} of {len(results)} mutants turned a test red")
    return 0 if all(results) else 1


def _with_tests_of(mutant: Mutant, quick: bool) -> Mutant:
    return replace(mutant, tests=tuple(filter(is_quick, mutant.tests))) if quick else mutant


def _try(mutant: Mutant) -> bool:
    if not mutant.tests:
        print(f"SURVIVED  {mutant.name:31}  {mutant.promise}: its tests are in proof/", flush=True)
        return False
    began = time.monotonic()
    status, told = _outcome(mutant)
    test = re.search(r"^(?:FAILED|ERROR) \S+::(\S+)", told, re.MULTILINE)
    is_red = (
        status == RED and test is not None
    )  # pytest ends with that status for faults of its own, too
    outcome = "red" if is_red else "SURVIVED" if status == GREEN else f"pytest's status {status}"
    seconds = time.monotonic() - began
    by = f" by {test[1]}" if test else ""
    print(f"{outcome:8}  {mutant.name:31}  {mutant.promise}{by}, {seconds:.0f} s", flush=True)
    if not is_red and status != GREEN:
        print(told[-3000:], file=sys.stderr)
    return is_red


def _outcome(mutant: Mutant) -> tuple[int, str]:
    broken = {MUTANT_ENV: mutant.name}
    if not mutant.fresh_kernels:
        return _run(mutant.tests, broken)
    with tempfile.TemporaryDirectory(prefix="kernels-") as cache:
        return _run(mutant.tests, broken | {CACHE_ENV: cache})


def _run(tests: Iterable[str], environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Pytest's exit status, and what it printed."""
    done = subprocess.run(
        [*PYTEST, *PLUGIN, *NO_LEAKS, *map(node_id, tests)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": _path(), **(environ or {})},
        timeout=TESTS_S_MAX,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def _path() -> str:
    """What child processes run, wherever they start, is the product of this checkout, too."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m proof mutants", description=__doc__)
    add_names(parser, "NAME", [mutant.name for mutant in MUTANTS])
    parser.add_argument("--quick", action="store_true", help="with the tests in tests/ alone")
    asked = parser.parse_args()
    sys.exit(main(asked.names, quick=asked.quick))
