"""Claims about the mutants: each can be entered, changes the product, is left without a trace, and names tests."""

import ast
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tests.mutants.finding import node_id
from tests.mutants.mutant import Mutant
from tests.mutants.patches import product_modules
from tests.mutants.promises import MUTANTS
from tests.mutants.text import TextMutant

ROOT = Path(__file__).parent.parent
PATCHES = [mutant for mutant in MUTANTS if isinstance(mutant, Mutant)]
TEXTS = [mutant for mutant in MUTANTS if isinstance(mutant, TextMutant)]


@pytest.mark.parametrize("mutant", PATCHES, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_the_product_while_it_is_entered(mutant: Mutant) -> None:
    """Something is another object then, and after it is left, all is as it was."""
    before = _product()
    with mutant.breaks():
        assert _changed(before, _product())
    assert not _changed(before, _product())


@pytest.mark.parametrize("mutant", PATCHES, ids=lambda mutant: mutant.name)
def test_the_tests_of_a_mutant_exist(mutant: Mutant) -> None:
    """Each is the name of one function."""
    for test in mutant.tests:
        assert node_id(test).endswith(f".py::{test}")


def test_the_names_of_mutants_differ() -> None:
    """The name is how the plugin finds the mutant."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", TEXTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made(mutant: TextMutant) -> None:
    """What it changes stands in the product once, and what it makes of it is Python, but other than before."""
    source = (ROOT / "streamdedup" / mutant.file).read_text()
    changed = mutant.applied_to(source)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    with pytest.raises(ValueError, match=f"{mutant.name}: .* 0 times"):
        mutant.applied_to("")


@pytest.mark.parametrize("mutant", TEXTS, ids=lambda mutant: mutant.name)
def test_the_tests_of_a_text_mutant_exist(mutant: TextMutant) -> None:
    """By file and name."""
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert node_id(name) == test
        assert (ROOT / path).exists()


def _product() -> dict[tuple[str, ...], object]:
    """All that can be patched: what stands in the product's modules, its classes and dictionaries, and code."""
    state: dict[tuple[str, ...], object] = {}
    for module in product_modules():
        for name, held in list(vars(module).items()):
            state[module.__name__, name] = held
            inner = vars(held) if isinstance(held, type) else held
            if isinstance(inner, Mapping) and name != "__builtins__":
                state |= {(module.__name__, name, str(key)): value for key, value in inner.items()}
            if isinstance(function := getattr(held, "py_func", held), FunctionType):
                state[module.__name__, name, "__code__"] = function.__code__
    return state


def _changed(one: dict[tuple[str, ...], object], other: dict[tuple[str, ...], object]) -> list[Any]:
    nothing = object()
    return [
        key
        for key in one.keys() | other.keys()
        if one.get(key, nothing) is not other.get(key, nothing)
    ]
