"""Lists that `lists build` wrote are written alike by every later one; the records say what is found in them."""

from pathlib import Path

import pytest

from proof.golden.lists import DIRECTORY, RECIPES, Recipe, build
from proof.golden.test_filters_and_lists import header_of, made_by

SIZE_BYTES_MAX = 200_000  # of all files together: they stay in the repository for ever


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_list_is_built_the_same_to_the_byte(recipe: Recipe, tmp_path: Path) -> None:
    """Of the same entries, at the same moment; apart from by whom."""
    golden = recipe.path.read_bytes()
    assert made_by(build(recipe, tmp_path).read_bytes(), header_of(golden)) == golden


def test_each_list_has_its_recipe_and_all_are_small() -> None:
    """And each store lies beside its list."""
    there = {*(recipe.path for recipe in RECIPES), *(recipe.store for recipe in RECIPES)}
    assert {*DIRECTORY.iterdir()} == there - {None}
    sizes = [path.stat().st_size for path in DIRECTORY.rglob("*") if path.is_file()]
    assert sum(sizes) <= SIZE_BYTES_MAX


def test_every_kind_of_list_has_a_golden_file() -> None:
    """Those that the command offers."""
    from proof.golden.test_records import recorded

    (kind,) = (one for one in recorded("commands")["lists build"] if one["name"] == ["--kind"])
    assert {*kind["choices"]} == {recipe.name.split("-")[0] for recipe in RECIPES}
