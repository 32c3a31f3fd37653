"""How `try` would name data in the place of fields."""

from unittest.mock import patch

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.keys import field_names
from streamdedup.keys.field_names import FieldNames

MUTANTS = (
    Mutant(
        "map-is-open",
        "a map keyed by data stays closed, be one of its keys as frequent as it may",
        lambda: replaced(FieldNames._may_be_named, lambda *_: True),
        ("test_a_map_keyed_by_data_stays_closed",),
    ),
    Mutant(
        "few-events-name-a-field",
        "a name that fewer than a tenth of the events have may be data",
        lambda: patch.multiple(field_names, SHARE_MIN=0, EVENTS_MIN=1),
        ("test_a_name_needs_a_tenth_of_the_events_and_five",),
    ),
)
