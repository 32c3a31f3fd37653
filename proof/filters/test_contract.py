"""The claims of tests/filters/test_contract.py about members, with as many keys as there may be."""

from tests.filters.cases import REMOVABLE, Case
from tests.filters.test_contract import played, replaced
from tests.rows import table


@table(REMOVABLE)
def test_churn_of_a_large_filter_loses_no_member(case: Case) -> None:
    """Forty thousand keys, half of them replaced four times."""
    replaced(case, 40_000)


@table(REMOVABLE)
def test_removable_kinds_answer_as_sets_or_multisets(case: Case) -> None:
    """In five times as many examples."""
    played(case, 15)
