"""Secrets of the configuration: from the environment, or from a file that the option `<name>_file` names.

A model declares `<name>_file` before `<name>`, which is a `Secret`, or validated by `read_secret`. No message holds a
secret.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, SecretStr, ValidationInfo

from streamdedup.named_files import can_be_read_again, open_regular, read_short
from streamdedup.units import LocalPath

_READ: ContextVar[dict[Path, bytes | OSError] | None] = ContextVar("_READ", default=None)

TOKEN_CHARACTERS = (16, 1024)  # the fewest and the most


@contextmanager
def reading_once() -> Iterator[None]:
    """Within this context, read each secret's file once, however often it is asked for: it may be a pipe."""
    before = _READ.set({})
    try:
        yield
    finally:
        _READ.reset(before)


def _check_regular(path: Path) -> Path:
    try:
        os.close(open_regular(path))
    except OSError as error:
        raise _unreadable(error) from None
    return path


def _unreadable(error: OSError) -> ValueError:
    return ValueError(f"cannot be read: {error.strerror}; name a file that this user may read")


def _check_secret(path: Path) -> Path:
    return _check_regular(path) if can_be_read_again(path) else path


# The file of a list or a certificate is mapped, or looked at again; that of a secret is read once, and may be a pipe.
RegularFile = Annotated[LocalPath, AfterValidator(_check_regular)]
SecretFile = Annotated[LocalPath, AfterValidator(_check_secret)]


def read_token(path: Path) -> bytes:
    """Return the token in a file, without white space around it. ValueError, with a remedy, if there is none."""
    least, most = TOKEN_CHARACTERS
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            content = file.read(2 * most)
    except OSError as error:
        raise _unreadable(error) from None
    token = content.strip()
    if not (least <= len(token) <= most and is_word(token.decode("latin-1"))):
        raise ValueError(
            f"must hold one word of {least} to {most} visible ASCII characters; make one with `openssl rand -hex 32`"
        )
    return token


def _check_token(path: Path) -> Path:
    read_token(path)
    return path


# A token is read again when its file changes, so it can be no pipe.
TokenFile = Annotated[LocalPath, AfterValidator(_check_token)]

# `ssl_cafile` and `ssl_certfile` of every section that has them.
AuthoritiesFile = Annotated[
    RegularFile | None,
    Field(description="The certificates of trusted authorities, PEM; not set, the system's."),
]
CertificateFile = Annotated[
    RegularFile | None, Field(description="The worker's certificate, PEM; requires `ssl_keyfile`.")
]


def read_secret(secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
    """Return `secret`, or the content of its file without one line end.

    Raises ValueError if the file cannot be read, is empty, or is not UTF-8.
    """
    path: Path | None = info.data.get(f"{info.field_name}_file")
    if secret is not None or path is None:
        return secret
    try:
        text = _content(path).decode("utf-8")
    except OSError as error:
        raise ValueError(
            f"cannot be read from {path}: {error.strerror}; name a file, or a pipe that is written at once"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"cannot be read from {path} as UTF-8 text") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise ValueError(f"cannot be read from {path}, which is empty")
    return SecretStr(text)


# A secret of a section, after its `<name>_file`; `secret_file` and `secret` are their fields.
Secret = Annotated[SecretStr | None, Field(validate_default=True), AfterValidator(read_secret)]


def secret_file(of: str) -> Any:  # noqa: ANN401 - a field, as pydantic's `Field`
    """Return the field that names the file of a secret, which is `of` something."""
    return Field(default=None, description=f"A file holding {of}.")


def secret(of: str) -> Any:  # noqa: ANN401 - likewise
    """Return the field of a secret, which is `of` something."""
    return Field(
        default=None,
        description=f"{of[0].upper()}{of[1:]}. Secret: only from the environment.",
    )


def _content(path: Path) -> bytes:
    known = _READ.get()
    content = None if known is None else known.get(path)
    if content is None:
        try:
            content = read_short(path)
        except OSError as error:
            content = error
        if known is not None:
            known[path] = content
    if isinstance(content, OSError):
        raise content
    return content


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


def is_word(token: str) -> bool:
    """Return whether a token is one word of a header: visible ASCII. A line end in it would begin another header."""
    return re.fullmatch("[!-~]+", token) is not None


def is_address(host: str) -> bool:
    """Return whether a host is an address, of IPv4 or IPv6, without brackets."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether what is sent to `host` stays on this machine: `localhost`, or an address of the loopback."""
    if host.lower().removesuffix(".") == "localhost":
        return True
    if not is_address(host):
        return False
    address = ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


# `allow_plaintext` of every section that has credentials.
AllowPlaintext = Annotated[
    bool,
    Field(
        description="Whether credentials may be sent without encryption to another machine. Whoever can listen on the"
        " way can then use them."
    ),
]


def sent_in_clear(what: str, encrypted: str, section: str) -> str:
    """Return why credentials are refused, for a model's `conflicts`."""
    return (
        f"sends {what} over the network in clear; set {encrypted}, or {section}.allow_plaintext: true if nobody can"
        " listen there"
    )


def half_certificates(options: BaseModel, section: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield, for a model's `conflicts`, `ssl_certfile` and `ssl_keyfile` if only one of the two is set."""
    missing = [leaf for leaf in ("ssl_certfile", "ssl_keyfile") if getattr(options, leaf) is None]
    if len(missing) == 1:
        (given,) = {"ssl_certfile", "ssl_keyfile"}.difference(missing)
        yield (missing[0], given), f"is required with {section}.{given}; name the PEM file"
