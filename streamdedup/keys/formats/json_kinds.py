"""What the path to a key leads to in a JSON text, and how a reason names it."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Kinds = npt.NDArray[np.uint8]  # a `Kind` for each row
DEPTH_MAX = 1024  # of nesting, which is orjson's, too


class Kind(IntEnum):
    """What stands at the end of the path. Those up to ESCAPED are keys; from EMPTY on, the text is no JSON."""

    PLAIN = 0  # a string without escapes, or an integer
    ESCAPED = 1  # a string that has escapes
    MISSING = 2
    NULL = 3
    BOOLEAN = 4
    NOT_INTEGER = 5
    ARRAY = 6
    OBJECT = 7
    NO_TEXT = 8  # the text itself is null
    EMPTY = 9
    TOO_SHORT = 10
    NO_NAME = 11
    NO_COLON = 12
    NO_VALUE = 13
    NO_COMMA = 14
    REST = 15
    NUMBER = 16
    ESCAPE = 17
    CONTROL = 18
    NOT_UTF8 = 19
    DEEP = 20


NAMES = {
    Kind.MISSING: "missing",
    Kind.NULL: "null",
    Kind.BOOLEAN: "a boolean",
    Kind.NOT_INTEGER: "not an integer",
    Kind.ARRAY: "an array",
    Kind.OBJECT: "an object",
}
NOT_JSON = "the value is not valid JSON"
AT_BYTE = ", at byte "  # in a reason, before the number of the byte, counted from 1
FAULTS = {
    Kind.EMPTY: f"{NOT_JSON}: it is empty",
    Kind.TOO_SHORT: f"{NOT_JSON}: it ends too early",
    Kind.NO_NAME: f"{NOT_JSON}: a name in double quotes is missing",
    Kind.NO_COLON: f"{NOT_JSON}: a colon is missing",
    Kind.NO_VALUE: f"{NOT_JSON}: a value is missing or wrong",
    Kind.NO_COMMA: f"{NOT_JSON}: a comma or a closing bracket is missing",
    Kind.REST: f"{NOT_JSON}: something follows its end",
    Kind.NUMBER: f"{NOT_JSON}: a number is wrong",
    Kind.ESCAPE: f"{NOT_JSON}: an escape in a string is wrong",
    Kind.CONTROL: f"{NOT_JSON}: a control character is in a string",
    Kind.NOT_UTF8: f"{NOT_JSON}: a string is not UTF-8",
    Kind.DEEP: f"the value is nested deeper than {DEPTH_MAX:,} levels",
}


def without_place(reason: str) -> str:
    """Return a reason without the byte that it names: what to count by, since each event may name another one."""
    return reason.partition(AT_BYTE)[0]
