"""Plays a version: storms by the scenarios of `python -m proof chaos`, and the tests with a broker, several at a time.

Both start brokers of the version that STREAMDEDUP_TEST_KAFKA names, from its jars.
"""

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

from proof.chaos.driver import ATTEMPTS_MAX, line_of, play_round
from proof.chaos.matrix import SCENARIOS
from proof.chaos.results import CODE, ROOT, Result, code_id
from proof.compat.results import OfVersion, Storm, TestFile, origin
from tests.broker.ladder import BOOTSTRAP, RUNG
from tests.broker.plugin import TOO_OLD
from tests.broker.versions import NEWEST, WANTED, Kafka, known

DIRECTORY = ROOT / "var" / "compat"
STORMS = {
    "kill": SCENARIOS["kill"],
    "storm": replace(
        SCENARIOS["storm"], must_abort=False
    ),  # the kills prove that aborts are survived
}
SEED = "1"
TESTS_S = 7200.0
PROCESSES = 4  # most of these tests wait
TESTED = ("streamdedup", "tests", "proof")

VERSIONS = [
    *(kafka for kafka in known() if kafka != Kafka(NEWEST)),
    Kafka(NEWEST, 0),
    Kafka(NEWEST, 1),
    Kafka(NEWEST),
]
"""What is played: each version with a lock file, and the newest with every level of transactions."""


def play_storms(kafka: Kafka, of: OfVersion) -> Iterator[OfVersion]:
    """Play the scenarios that were, `of` this version, not played with this code; yields what came of each."""
    code = code_id(CODE)
    missing = [name for name in STORMS if not _is_played(of.storms.get(name), code)]
    if not missing:
        return
    with _wanted(kafka), closing(STORMS[missing[0]].brokers()) as brokers:
        for name in missing:
            for attempt in range(ATTEMPTS_MAX):
                result = play_round(
                    STORMS[name],
                    0,
                    attempt,
                    brokers,
                    DIRECTORY / str(kafka).replace("/", "-"),
                    seed=SEED,
                    code=code,
                )
                print(f"{kafka}: {line_of(result)}", flush=True)
                if result.counts:
                    break
            yield OfVersion(storms={name: _storm(result)})


def play_tests(kafka: Kafka, of: OfVersion) -> Iterator[OfVersion]:
    """Run the test files that were, `of` this version, not run with this code; yields what came of them."""
    code = code_id(TESTED)
    with _wanted(kafka):
        paths = files_with_a_broker()
        missing = [path for path in paths if not _is_played(of.files.get(path), code)]
        if not missing:
            return
        ran = run_files(missing)
        for path, file in ran.items():
            print(f"{kafka}: {path}: {line_of_file(file)}", flush=True)
        yield OfVersion(files=ran, files_in_all=len(paths))


def files_with_a_broker() -> list[str]:
    """Collect the test files that have tests marked `broker`."""
    lines = _pytest("--collect-only", "-q", "tests", "proof").stdout.splitlines()
    return list(dict.fromkeys(line.split("::")[0] for line in lines if "::" in line))


def run_files(paths: Sequence[str]) -> dict[str, TestFile]:
    """Run the tests with a broker of these files; what came of each, by its path."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    with TemporaryDirectory() as directory:
        written = Path(directory) / "results.xml"
        done = _pytest(
            *paths,
            "-q",
            f"--numprocesses={PROCESSES}",
            "--dist=worksteal",
            "--override-ini=junit_family=xunit1",  # it names the file of each test
            f"--junit-xml={written}",
        )
        if not written.exists():
            raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout}")
        cases = list(ET.parse(written).iter("testcase"))  # noqa: S314 (as above)
    if any(map(_is_bad, cases)):
        (DIRECTORY / "failed").mkdir(parents=True, exist_ok=True)
        log = DIRECTORY / "failed" / os.environ[WANTED].replace("/", "-")
        log.with_name(f"{log.name}.txt").write_text(done.stdout, "utf-8")
    by_path: defaultdict[str, list[ET.Element]] = defaultdict(list)
    for case in cases:
        by_path[case.attrib["file"]].append(case)
    return {path: _of_file(path, cases, at) for path, cases in by_path.items()}


def _of_file(path: str, cases: Sequence[ET.Element], at: str) -> TestFile:
    bad = [f"{path}::{case.get('name')}" for case in cases if _is_bad(case)]
    skipped = Counter(
        (found.get("message") or "").removeprefix(TOO_OLD)
        for case in cases
        if (found := case.find("skipped")) is not None
    )
    return TestFile(
        origin=origin(TESTED, at, sum(float(case.get("time", 0)) for case in cases)),
        passed=len(cases) - len(bad) - sum(skipped.values()),
        failed=[re.sub(r"\s", " ", name) for name in bad],
        skipped=dict(sorted(skipped.items())),
    )


def _is_bad(case: ET.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def line_of_file(file: TestFile) -> str:
    """A file in one line, for whoever watches."""
    said = f"{file.passed} passed, {len(file.failed)} failed, {sum(file.skipped.values())} skipped"
    reasons = "".join(f"\n    {count} skipped: {why}" for why, count in file.skipped.items())
    return said + reasons + "".join(f"\n    failed: {name}" for name in file.failed)


def _storm(result: Result) -> Storm:
    found = result.finding
    return Storm(
        origin=origin(CODE, result.at, result.seconds),
        events=found.events if found else 0,
        faults=sum(result.tried.values()),
        hits=result.hits or 0,
        aborted_records=found.aborted_records if found else 0,
        lost=found.lost if found else 0,
        doubled=found.doubled if found else 0,
        failures=result.failures if result.counts else ["no round counts"],
    )


def _is_played(part: Storm | TestFile | None, code: str) -> bool:
    """Whether that was done with this code and need not be done again; what failed is."""
    if part is None or part.origin.code != code:
        return False
    return not (part.failures if isinstance(part, Storm) else part.failed)


@contextmanager
def _wanted(kafka: Kafka) -> Iterator[None]:
    """Start brokers of that version, from jars, here and in child processes."""
    ours = {WANTED: str(kafka), RUNG: "jars", BOOTSTRAP: ""}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _pytest(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "broker", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TESTS_S,
        check=False,
    )
