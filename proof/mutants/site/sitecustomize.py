"""What a Python that a test starts imports first: it enters the mutant, as the test's own process has."""

import os

from proof.mutants.applied import MUTANT_ENV, enter

if MUTANT_ENV in os.environ:
    enter()
