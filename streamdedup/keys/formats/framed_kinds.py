"""What a field is in a value that a serializer of a Schema Registry wrote, and how a reason names it."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

FramedKinds = npt.NDArray[np.uint8]  # a `FramedKind` for each row


class FramedKind(IntEnum):
    """What the value of a row has at the end of the path; only KEY is a key."""

    KEY = 0
    MISSING = 1
    NULL = 2
    BOOLEAN = 3
    FLOAT = 4
    DECIMAL = 5
    DURATION = 6
    ARRAY = 7
    MAP = 8
    RECORD = 9
    ANY = 10
    NOT_UTF8 = 11
    UNFIT = 12  # the bytes are not those of the schema
    TOO_DEEP = 13
    UNREADABLE = 14  # the schema itself is
    UNKNOWN = 15  # the schema of that id
    UNFRAMED = 16  # it does not begin with an id, or is null


# For kernels, as they are in an array of kinds.
KEY, MISSING, NOT_UTF8, UNFIT, TOO_DEEP = (
    np.uint8(kind)
    for kind in (
        FramedKind.KEY,
        FramedKind.MISSING,
        FramedKind.NOT_UTF8,
        FramedKind.UNFIT,
        FramedKind.TOO_DEEP,
    )
)

NAMES = {
    FramedKind.MISSING: "missing",
    FramedKind.NULL: "null",
    FramedKind.BOOLEAN: "a boolean",
    FramedKind.FLOAT: "a float",
    FramedKind.DECIMAL: "a decimal",
    FramedKind.DURATION: "a duration",
    FramedKind.ARRAY: "an array",
    FramedKind.MAP: "a map",
    FramedKind.RECORD: "a record",
    FramedKind.ANY: "an Any",
    FramedKind.NOT_UTF8: "not UTF-8",
}
