"""Secrets of the configuration: from the environment, or from a file that the option `<name>_file` names.

A model declares `<name>_file` before `<name>`, and validates `<name>` by `read_secret`. No message holds a
secret.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, SecretStr, ValidationInfo

from streamdedup.units import LocalPath


def _check_readable(path: Path) -> Path:
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ValueError(
            f"cannot be read: {error.strerror}; name a file that this user may read"
        ) from None


ReadableFile = Annotated[LocalPath, AfterValidator(_check_readable)]


def read_secret(secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
    """Return `secret`, or the content of its file without one line end.

    Raises ValueError if the file cannot be read, is empty, or is not UTF-8.
    """
    path: Path | None = info.data.get(f"{info.field_name}_file")
    if secret is not None or path is None:
        return secret
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"cannot be read from {path} as UTF-8 text") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise ValueError(f"cannot be read from {path}, which is empty")
    return SecretStr(text)


def conflicting_secrets(
    options: BaseModel, section: str, *leaves: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield, for a model's `conflicts`, those of the secrets `leaves` that are set both directly and by a file."""
    for leaf in leaves:
        if {leaf, f"{leaf}_file"} <= options.model_fields_set:
            yield (
                (f"{leaf}_file", leaf),
                f"is set, and so is {section}.{leaf}; set one of the two",
            )
