"""What `doctor` promises, broken."""

from pathlib import Path
from unittest.mock import patch

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.doctor import groups, output
from streamdedup.doctor.examine import _of_unknown
from streamdedup.doctor.lines import Line, ok, unknown

MUTANTS = (
    Mutant(
        "doctor-unknown-is-ok",
        "what doctor could not find out is unknown, and never ok",
        lambda: replaced(unknown, _well),
        (
            "test_no_unknown_is_ok",
            "test_an_answer_that_never_comes_makes_its_lines_unknown[api_versions]",
        ),
    ),
    Mutant(
        "doctor-error-is-ok",
        "a check that ends by an error is unknown",
        lambda: replaced(_of_unknown, _nothing_wrong),
        ("test_no_unknown_is_ok",),
    ),
    Mutant(
        "doctor-keeps-its-file",
        "doctor removes the file that it writes",
        lambda: patch.object(Path, "unlink", lambda _self: None),
        ("test_it_leaves_no_trace",),
    ),
    Mutant(
        "doctor-sees-no-stranger",
        "doctor names who wrote to the output since our last commit",
        lambda: replaced(output._first_event, _nobody),
        ("test_each_check_finds_its_cause[output-writers-failure-second-writer]",),
    ),
    Mutant(
        "doctor-always-sees-movement",
        "doctor names a partition that stands still",
        lambda: replaced(groups._moved, _all_moved),
        ("test_each_check_finds_its_cause",),
    ),
)


def _well(sentence: str, remedy: str, place: str | None = None) -> Line:
    return ok(f"{sentence}; {remedy}", place)


def _nothing_wrong(_error: Exception) -> Line:
    return ok("nothing is wrong")


async def _nobody(*_: object) -> None:
    return None


async def _all_moved(*arguments: object) -> frozenset[object]:
    numbers = arguments[-1]
    return frozenset(numbers if isinstance(numbers, list) else ())
