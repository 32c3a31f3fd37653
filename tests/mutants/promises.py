"""The promises, and how each is broken."""

from tests.mutants import columns, invariants, lists, rules_1_to_7, rules_8_to_19
from tests.mutants.mutant import Mutant
from tests.mutants.text import TextMutant

MUTANTS: tuple[Mutant | TextMutant, ...] = (
    *rules_1_to_7.MUTANTS,
    *rules_8_to_19.MUTANTS,
    *invariants.MUTANTS,
    *columns.MUTANTS,
    *lists.MUTANTS,
)
