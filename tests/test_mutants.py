"""Claims about the mutants: each still fits the source, leaves it Python, and names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.promises import MUTANTS

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made(mutant: Mutant) -> None:
    """What it changes stands in the product once, and what it makes of it is Python, but other than before."""
    source = (ROOT / "streamdedup" / mutant.file).read_text()
    changed = mutant.applied_to(source)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    with pytest.raises(ValueError, match=f"{mutant.name}: .* 0 times"):
        mutant.applied_to("")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_of_a_mutant_exist(mutant: Mutant) -> None:
    """By file and name."""
    for test in mutant.tests:
        path, _, name = test.partition("::")
        function = name.rpartition("::")[2].partition("[")[0]
        assert re.search(rf"def {function}\b" if name else "def test_", (ROOT / path).read_text())
