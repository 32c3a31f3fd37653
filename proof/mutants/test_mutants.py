"""Claims about the mutants: each can be entered, changes the product, is left without a trace, and names tests."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from operator import is_
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from proof.mutants.applied import MUTANT_ENV
from proof.mutants.finding import is_quick, node_id
from proof.mutants.mutant import Mutant
from proof.mutants.patches import product_modules, recompiled, replaced
from proof.mutants.plugin import path_of_children
from proof.mutants.promises import MUTANTS
from streamdedup.filters.exact.digest_map import _merge
from streamdedup.snapshot import files, store
from streamdedup.snapshot.files import publish

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_the_product_while_it_is_entered(mutant: Mutant) -> None:
    """Something is another object then, and after it is left, all is as it was."""
    product = _State()
    with mutant.breaks():
        assert product.has_changed()
    assert not product.has_changed()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_of_a_mutant_exist(mutant: Mutant) -> None:
    """Each is the name of one function."""
    for test in mutant.tests:
        assert node_id(test).endswith(f"::{test}")


def test_the_page_names_what_only_proof_kills() -> None:
    """`make test` kills at least 130; docs/testing.md names the others."""
    told = (ROOT / "docs/testing.md").read_text("utf-8").partition("Only `proof/` kills")[2]
    only = {mutant.name for mutant in MUTANTS if not any(map(is_quick, mutant.tests))}
    assert set(re.findall(r"`([\w-]+)`", told.partition(".\n")[0])) == only
    assert len(MUTANTS) - len(only) >= 130


def test_the_names_of_mutants_differ() -> None:
    """The name is how the plugin finds the mutant."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("name", ["test_the_names", "pytest_addoption"])
def test_a_test_is_one_function_of_the_whole_name(name: str) -> None:
    """A part of a name names none, nor does a function that is no test."""
    with pytest.raises(LookupError, match=f"{name} stands in 0 files"):
        node_id(name)


def test_a_function_is_replaced_wherever_it_was_imported() -> None:
    """Whoever imported it calls the replacement, which may call the function."""
    holders = [vars(files), vars(store)]
    with replaced(publish, lambda *_: publish):
        assert [holder["publish"]() for holder in holders] == [publish, publish]
    assert [holder["publish"] for holder in holders] == [publish, publish]


def test_what_the_product_does_not_hold_cannot_be_replaced() -> None:
    """A patch that would reach nothing is no mutant."""
    with pytest.raises(LookupError, match="nothing in streamdedup holds"), replaced(node_id, print):
        pass


def test_a_kernel_is_not_compiled_with_other_globals() -> None:
    """What the replacement means by a name is what the kernel's module means by it."""

    def replacement() -> object:
        return publish

    kernel: Any = _merge
    code = kernel.py_func.__code__
    with (
        pytest.raises(LookupError, match="publish of replacement is another in"),
        recompiled(kernel, replacement),
    ):
        pass
    assert kernel.py_func.__code__ is code


def test_a_child_process_is_broken_too() -> None:
    """A Python that a test starts has entered the mutant before its first line, wherever it runs."""
    [name, *_] = [each.name for each in MUTANTS if "test_files_are_private" in each.tests]
    told = subprocess.run(
        [sys.executable, "-c", "from streamdedup.snapshot import store; print(store.publish)"],
        env={**os.environ, MUTANT_ENV: name, "PYTHONPATH": path_of_children()},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert publish.__name__ not in told.stdout.split()[1]
    assert not told.stderr


def test_a_mutant_that_cannot_be_entered_is_no_failed_test() -> None:
    """It has a status of its own: nobody takes it for a mutant that was noticed."""
    options = ["-p", "proof.mutants.plugin", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        env={**os.environ, MUTANT_ENV: "unheard-of"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "STREAMDEDUP_MUTANT=unheard-of: no such mutant" in done.stderr


class _State:
    """All that can be patched: what stands in the product's modules, its classes and mappings, and code."""

    def __init__(self) -> None:
        self._held: list[tuple[Mapping[Any, object], dict[Any, object]]] = []
        self._codes: list[tuple[FunctionType, object]] = []
        for module in product_modules():
            self._keep(vars(module))
            for name, held in list(vars(module).items()):
                inner = vars(held) if isinstance(held, type) else held
                if isinstance(inner, Mapping) and name != "__builtins__":
                    self._keep(inner)
                if isinstance(function := getattr(held, "py_func", held), FunctionType):
                    self._codes.append((function, function.__code__))

    def has_changed(self) -> bool:
        """Whether a name holds another object than at first, or a function has other code."""
        return any(function.__code__ is not code for function, code in self._codes) or not all(
            len(now) == len(then) and all(map(is_, map(now.get, then), then.values()))
            for now, then in self._held
        )

    def _keep(self, holder: Mapping[Any, object]) -> None:
        self._held.append((holder, dict(holder)))
