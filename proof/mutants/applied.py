"""The mutant of a process: the one that $STREAMDEDUP_MUTANT names is entered once, until the process ends."""

import os
from contextlib import ExitStack

from proof.mutants.promises import MUTANTS

MUTANT_ENV = "STREAMDEDUP_MUTANT"

_entered = ExitStack()  # holds the patch: one that nobody holds is left


def enter() -> None:
    """Break the promise. LookupError if there is no such mutant."""
    name = os.environ[MUTANT_ENV]
    for mutant in MUTANTS:
        if mutant.name == name:
            _entered.enter_context(mutant.breaks())
            return
    raise LookupError(f"{MUTANT_ENV}={name}: no such mutant")
