"""The promises, and how each is broken."""

from proof.mutants import (
    chosen,
    columns,
    doctor,
    explaining,
    fencing,
    folding,
    growing,
    invariants,
    library,
    lists,
    membership,
    naming,
    partitions,
    repartition,
    resuming,
    secrets,
    transactions,
)
from proof.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *fencing.MUTANTS,
    *resuming.MUTANTS,
    *folding.MUTANTS,
    *transactions.MUTANTS,
    *membership.MUTANTS,
    *invariants.MUTANTS,
    *columns.MUTANTS,
    *lists.MUTANTS,
    *secrets.MUTANTS,
    *partitions.MUTANTS,
    *repartition.MUTANTS,
    *chosen.MUTANTS,
    *growing.MUTANTS,
    *naming.MUTANTS,
    *library.MUTANTS,
    *explaining.MUTANTS,
    *doctor.MUTANTS,
)
