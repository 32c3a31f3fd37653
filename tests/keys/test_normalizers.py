"""Claims about normalization: the kernels do to ASCII what Python does, and to nothing else anything."""

import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.events import Column
from streamdedup.keys.extract import Extractor, json_keys
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.base import NO_TEXT, NOT_UTF8, Normalizer, characters_check
from streamdedup.keys.options import Normalization
from tests.keys.test_extract import batch_of
from tests.rows import table

BLANKS = " \t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u2003\u3000"
EVERY_BYTE = [bytes([byte]) for byte in range(256)]
texts = st.text(
    st.sampled_from(BLANKS + "aAzZ@[`{ßİΣé0") | st.characters(codec="utf-8"), max_size=12
)
cells = st.lists(st.none() | st.binary(max_size=5) | texts.map(str.encode), max_size=12)


def named(name: Normalization) -> Normalizer:
    """The normalizer of this name."""
    found = normalizer(name)
    assert found is not None
    return found


def meant(name: str, text: str) -> str:
    """What the documentation says."""
    return text.strip().lower() if name == "lowercase" else text.strip()


@pytest.mark.parametrize("name", ["trim", "lowercase"])
@given(keys=cells)
@settings(deadline=None)  # compiled within
@example(keys=EVERY_BYTE)
@example(keys=[b" " + byte + b"A" + byte for byte in EVERY_BYTE])
@example(
    keys=["ΟΔΟΣ ".encode(), "\u3000İ".encode(), "ẞ".encode(), b"", b" ", None, b"\xff", b"\xc3"]
)
def test_a_column_is_normalized_as_its_keys_are(
    name: Normalization, keys: list[bytes | None]
) -> None:
    """Row by row it is what `str` makes of the text; nulls stay, and what is no text is malformed, by its row."""
    expected: list[bytes | None] = []
    malformed = []
    for row, key in enumerate(keys):
        if key is not None and (b"\0" in key or not is_utf8(key)):
            expected.append(None)
            malformed.append(row)
        else:
            expected.append(None if key is None else meant(name, key.decode()).encode())
    found, reasons = named(name).of_column(Column.of(keys))
    assert list(found) == expected
    assert list(reasons) == malformed
    for row, why in reasons.items():
        key = keys[row] or b""
        assert why == NOT_UTF8 or key[:1] == b"\0" or (why == NO_TEXT and b"\0" in key)
    for key, wanted in zip(keys, expected, strict=True):
        if key is not None and wanted is not None:
            assert named(name).of_key(key) == wanted


def is_utf8(key: bytes) -> bool:
    """Whether it can be decoded."""
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


REGISTERED = "the key looks like Schema Registry data, schema id {}: take its bytes as they are"


@table(
    [
        (b"\0\0\0\0\x07\x80\x01abc", REGISTERED.format(7)),
        (b"\0\0\1\0\2\xff", REGISTERED.format(65538)),
        (b"\0\0\0\0\x80", REGISTERED.format(128)),
        (b"\0\0\0\0\7\x02a", REGISTERED.format(7)),
        (b"\0\0\0\x80", NO_TEXT),
        (b"\1\0\0\0\7\x80", NO_TEXT),
        (b" \0\0\0\0\7a", NO_TEXT),
        (b"\0\0\0\x12\x34\x56\x78\x9a", NO_TEXT),
        (b"\0\0\0\0\0\0\0\x20", NO_TEXT),
        (b"\1\2\3\x80", NOT_UTF8),
    ]
)
def test_a_key_of_a_schema_registry_is_told_as_such(key: bytes, reason: str) -> None:
    """Its schema is named, with what to do; an integer of 8 bytes, which may look so, is only said to be no text."""
    for origin in ["key", "value", "header"]:
        fields = ("h",) if origin == "header" else ()
        extractor = Extractor(origin, fields, normalizer=named("trim"))  # type: ignore[arg-type]
        found = extractor.extract(batch_of([key], [key], [[("h", key)]]))
        assert list(found.keys) == [None]
        assert found.malformed[0].startswith(reason)
        assert found.malformed[0].endswith("plain text") is (reason not in {NOT_UTF8, NO_TEXT})


def test_bytes_that_are_not_to_be_text_may_hold_anything() -> None:
    """Without a normalization no key is looked at."""
    keys: list[bytes | None] = [b"\0\0\0\0\7\x02a", b"\xff"]
    found = Extractor("value").extract(batch_of(keys))
    assert list(found.keys) == keys


@table(["key", "value", "header"])
def test_keys_of_every_origin_are_normalized(origin: str) -> None:
    """Each row has its own key or its own reason, whatever the others have; a tombstone is none."""
    keys: list[bytes | None] = [b" A\xc3\x84 ", None, b"\xff", b"a\xc3\xa4", b" A"]
    headers = [[("h", key)] for key in keys]
    values = keys if origin == "value" else [b"v"] * 5
    fields = ("h",) if origin == "header" else ()
    extractor = Extractor(origin, fields, "judge", named("lowercase"))  # type: ignore[arg-type]
    found = extractor.extract(batch_of(values, keys, headers))  # type: ignore[arg-type]
    assert list(found.keys) == ["aä".encode(), None, None, "aä".encode(), b"a"]
    assert found.malformed[2] == NOT_UTF8
    assert list(found.malformed) == [1, 2]
    assert "null" in found.malformed[1]


def test_a_json_field_is_normalized() -> None:
    """What a kernel finds, and what the exact reader does."""
    texts = Column.of(
        [b'{"a":" X"}', b'{"a":"\\u0058\\t"}', '{"a":"Ä"}'.encode(), b'{"a":17}', b"{"]
    )
    keys, malformed = json_keys(["a"], texts, named("lowercase"))
    assert list(keys) == [b"x", b"x", "ä".encode(), b"17", None]
    assert malformed == {4: "the value is not valid JSON: it ends too early, at byte 2"}


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="docs/keys.md names Python up to 3.14")
def test_pythons_differ_in_letters_as_documented() -> None:
    """Up to Python 3.13 all treat all characters alike; Python 3.14 knows more capitals, and no other white space."""
    assert characters_check(lowers=False) == 0xAEA9BC87
    assert characters_check(lowers=True) == (
        0xD8852625 if sys.version_info >= (3, 14) else 0xC81B27ED
    )


def test_a_cell_outside_of_its_buffer_is_no_key() -> None:
    """It is a fault of ours, and says so, as the hashes do."""
    column = Column(b"abc", np.array([0, 2]), np.array([1, 5]))
    with pytest.raises(ValueError, match=r"^row 1 is not within its buffer$"):
        named("trim").of_column(column)


def test_the_command_offers_what_the_configuration_does() -> None:
    """One list of names; the command's own does not bring the settings' library for --help."""
    source = Path("streamdedup/cli/arguments.py").read_text(encoding="utf-8")
    assert f"choices={get_args(Normalization)}".replace("'", '"') in source
