"""Asks a Schema Registry, over the REST API that Confluent's and those like it have. All of it blocks.

A schema is asked for by its id, then each that it refers to, by subject and version. Answers are bounded, and so is the
time that each takes. A schema that exceeds a limit counts as one that cannot be read: anybody may have registered it.
"""

import json
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3

from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.client.tls import TlsFiles, tls_remedy
from streamdedup.kafka.registry_options import SchemaRegistryOptions
from streamdedup.keys.formats.schema import Reference, Schema, SchemaError
from streamdedup.version import __version__

CONNECT_S_MAX, READ_S_MAX = 5.0, 10.0
ANSWER_S_MAX = 20.0  # of its body, which may come byte by byte
ANSWER_BYTES_MAX = 4 << 20  # registries take schemas of 1 MB by default
READ_BYTES = 1 << 16
REFERENCES_MAX = 200
TOO_MANY = 429
# The codes of the body of a 404 that say that there is no such schema, subject or version.
_UNKNOWN_CODES = (40401, 40402, 40403)
_REFUSALS = (401, 403)
_WHERE = "kafka.schema_registry"


class UnknownSchemaError(Exception):
    """The registry has no schema of that id, or none that it refers to."""


class RegistryAwayError(OSError):
    """Nobody answers, or the registry asks to wait. The message names the host, and no secret."""


class NoTlsError(RegistryAwayError):
    """The registry and we do not agree on TLS. Later in a worker's life, renewed certificates may mend that."""


class Client:
    """A client of one registry, for several threads. ConfigError if the files for TLS cannot be loaded.

    They are read for each request, so rotated certificates are in force at once.
    """

    def __init__(self, options: SchemaRegistryOptions) -> None:
        self._base = options.address
        self._host = urlsplit(options.url).netloc
        files = options.ssl_cafile, options.ssl_certfile, options.ssl_keyfile
        self._tls = TlsFiles(*files) if options.is_encrypted else None
        try:
            self._context()
        except NoTlsError as error:
            raise ConfigError(str(error)) from None
        headers = {
            "Accept": "application/vnd.schemaregistry.v1+json, application/json",
            "User-Agent": f"streamdedup/{__version__}",
        }
        if options.bearer_token is not None:
            headers["Authorization"] = f"Bearer {options.bearer_token.get_secret_value()}"
        if options.basic_auth_user is not None and options.basic_auth_password is not None:
            both = f"{options.basic_auth_user}:{options.basic_auth_password.get_secret_value()}"
            headers |= urllib3.make_headers(basic_auth=both)
        self._headers = headers

    def check(self) -> None:
        """Ask whether it is there, as a worker starts.

        Raises RegistryAwayError if nobody answers; ConfigError if it refuses us, if we do not agree on TLS, or if no
        registry answers.
        """
        try:
            status, body = self._get("/schemas/types")
            if status == 200 and isinstance(_parsed(status, body), list):
                return
            with suppress(UnknownSchemaError, SchemaError):  # old registries do not have that path
                _text(self._object("/schemas/ids/1"))
        except (DeliveryError, NoTlsError) as error:
            raise ConfigError(str(error)) from None

    def schema(self, number: int | str) -> Schema:
        """Return the schema of an id, or a GUID, and all that it refers to; why it was not read, if it exceeds a limit.

        Raises UnknownSchemaError if the registry does not have it, RegistryAwayError if it is away, DeliveryError if it
        refuses us or answers as no registry does.
        """
        found: dict[tuple[str, int], Reference] = {}
        try:
            where = "ids" if isinstance(number, int) else "guids"
            answer = self._object(f"/schemas/{where}/{number}")
            self._collect(answer, found)
        except SchemaError as error:
            return Schema("", "", why_not=str(error))
        return Schema(_type(answer), _text(answer), tuple(found.values()))

    def _collect(self, answer: Mapping[str, Any], found: dict[tuple[str, int], Reference]) -> None:
        """Add to `found` what `answer` refers to, each after what it refers to itself."""
        references = answer.get("references") or ()
        if not isinstance(references, Sequence):
            raise _no_registry("references that are no list")
        for each in references:
            match each:
                case {"name": str(name), "subject": str(subject), "version": int(version)}:
                    pass
                case _:
                    raise _no_registry("a reference without a subject and a version")
            if (subject, version) in found:
                continue
            if len(found) == REFERENCES_MAX:
                raise SchemaError(f"it has more than {REFERENCES_MAX} references")
            escaped = quote(subject, safe="", errors="replace")
            # A subject that was deleted is no longer offered, but what refers to it stays in use.
            there = self._object(f"/subjects/{escaped}/versions/{version}?deleted=true")
            found[subject, version] = Reference(name, _text(there))
            if sum(len(reference.text) for reference in found.values()) > ANSWER_BYTES_MAX:
                raise SchemaError(f"its references have more than {ANSWER_BYTES_MAX >> 20} MiB")
            self._collect(there, found)
            found[subject, version] = found.pop((subject, version))

    def _object(self, path: str) -> Mapping[str, Any]:
        status, body = self._get(path)
        if len(body) > ANSWER_BYTES_MAX and status == 200 and body.startswith(b"{"):
            raise SchemaError(f"it has more than {ANSWER_BYTES_MAX >> 20} MiB")
        answer = _parsed(status, body)
        if isinstance(answer, dict):
            if status == 200:
                return answer
            if status == 404 and answer.get("error_code") in _UNKNOWN_CODES:
                raise UnknownSchemaError
        raise _no_registry(f"status {status}")

    def _get(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of an answer that does not refuse us, and does not ask to wait."""
        status, body = self._answer(path)
        if status in _REFUSALS:
            raise DeliveryError(
                f"the schema registry refuses us, with status {status}",
                remedy=f"set or correct the credentials of {_WHERE} (basic_auth_... or bearer_token...), or have it let"
                " us read schemas",
                finding="registry-refuses",
            )
        if status == TOO_MANY or status >= 500:
            raise RegistryAwayError(f"{self._host} answers with status {status}")
        return status, body

    def _answer(self, path: str) -> tuple[int, bytes]:
        # A schema is asked for once, so each request has a connection of its own.
        pool = urllib3.PoolManager(
            headers=self._headers,
            timeout=urllib3.Timeout(connect=CONNECT_S_MAX, read=READ_S_MAX),
            retries=False,
            ssl_context=self._context(),
        )
        try:
            with pool:
                answer = pool.request(
                    "GET", self._base + path, redirect=False, preload_content=False
                )
                body = _body(answer)
        except RegistryAwayError:
            raise
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._away(error) from None
        return answer.status, body

    def _context(self) -> ssl.SSLContext | None:
        try:
            return self._tls.context() if self._tls else None
        except OSError as error:
            raise NoTlsError(
                f"{_WHERE}.ssl_cafile, ssl_certfile, ssl_keyfile: the files cannot be loaded ({error}); give PEM files"
                " that fit together, with a key that is not encrypted"
            ) from None

    def _away(self, error: Exception) -> RegistryAwayError:
        # urllib3 has the error of a connection that stood as an argument, and that of one that was not made as a cause.
        closed = next(
            (it for it in error.args if isinstance(it, ssl.SSLError | ConnectionError)), None
        )
        name, protocol = "use a name that it contains", "if it has no TLS, begin it with http:"
        if isinstance(closed, ssl.SSLError) and (
            remedy := tls_remedy(
                closed, self._host, _WHERE, name=("url", name), protocol=("url", protocol)
            )
        ):
            return NoTlsError(remedy)
        if closed is not None:
            # In TLS 1.3 we may not see why a registry does not trust us: it closes the connection while we ask.
            what = f"require another {_WHERE}.ssl_certfile" if self._tls else "expect https:"
            why = f"it closed the connection; it may {what}"
        elif isinstance(error.__cause__, OSError) and error.__cause__.strerror:
            why = error.__cause__.strerror
        else:
            why = type(error).__name__
        return RegistryAwayError(f"no answer from {self._host}: {why}")


def _body(answer: urllib3.BaseHTTPResponse) -> bytes:
    """Return the body, or as much of it as shows that it is too large."""
    body, until = bytearray(), time.monotonic() + ANSWER_S_MAX
    with closing(answer):
        while len(body) <= ANSWER_BYTES_MAX and (part := answer.read1(READ_BYTES)):
            body += part
            if time.monotonic() > until:
                raise RegistryAwayError(f"an answer that takes longer than {ANSWER_S_MAX:g} s")
    return bytes(body)


def _parsed(status: int, body: bytes) -> object:
    if len(body) > ANSWER_BYTES_MAX:
        raise _no_registry(f"an answer of more than {ANSWER_BYTES_MAX >> 20} MiB")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _no_registry(f"status {status} and no JSON") from None


def _no_registry(what: str) -> DeliveryError:
    return DeliveryError(
        f"{_WHERE}.url answers as no schema registry does: {what}",
        remedy="give the address below which it has /schemas/ids",
    )


def _type(answer: Mapping[str, Any]) -> str:
    kind = answer.get("schemaType") or "AVRO"  # left out for Avro, which was there first
    if not isinstance(kind, str):
        raise _no_registry("a type that is no text")
    return kind


def _text(answer: Mapping[str, Any]) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise _no_registry("a schema that is no text")
    return text
