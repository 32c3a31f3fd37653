"""A secret that an operator gives to the wrong option is not repeated by any message: all forms of it."""

from functools import partial
from pathlib import Path

from tests.rows import every
from tests.settings.conftest import file as file  # noqa: PLC0414 - a fixture
from tests.settings.test_misplaced_secrets import FORMS, OTHERS, is_not_repeated


def test_no_form_of_a_refused_value_is_repeated(file: Path) -> None:
    """Whatever it looks like, whichever option it is given to, and wherever it is written."""
    every([*FORMS, *OTHERS], partial(is_not_repeated, file))
