"""What the path to a key leads to in a JSON text, and how a reason names it."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Kinds = npt.NDArray[np.uint8]  # a `Kind` for each row


class Kind(IntEnum):
    """What stands at the end of the path. Those up to ESCAPED are keys."""

    PLAIN = 0  # a string without escapes, or an integer
    ESCAPED = 1  # a string that has escapes
    MISSING = 2
    NULL = 3
    BOOLEAN = 4
    NOT_INTEGER = 5
    ARRAY = 6
    OBJECT = 7
    NOT_JSON = 8
    NO_TEXT = 9  # the text itself is null


NAMES = {
    Kind.MISSING: "missing",
    Kind.NULL: "null",
    Kind.BOOLEAN: "a boolean",
    Kind.NOT_INTEGER: "not an integer",
    Kind.ARRAY: "an array",
    Kind.OBJECT: "an object",
}
