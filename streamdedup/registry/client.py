"""Asks a Schema Registry, over the REST API that Confluent's and those like it have. All of it blocks.

A schema is asked for by its id, then each that it refers to, by subject and version. Answers are bounded.
"""

import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import urllib3

from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.registry_options import SchemaRegistryOptions
from streamdedup.keys.formats.schema import Reference, Schema
from streamdedup.version import __version__

CONNECT_S_MAX, READ_S_MAX = 5.0, 10.0
ANSWER_BYTES_MAX = 4 << 20
REFERENCES_MAX = 200
TOO_MANY = 429
# The codes of the body of a 404 that say that there is no such schema, subject or version.
_UNKNOWN_CODES = (40401, 40402, 40403)
_REFUSALS = (401, 403)
_REMEDY = "look at kafka.schema_registry"


class UnknownSchemaError(Exception):
    """The registry has no schema of that id, or none that it refers to."""


class RegistryAwayError(OSError):
    """Nobody answers, or the registry asks to wait. The message has no address's user and no secret."""


class Client:
    """A client of one registry, for several threads."""

    def __init__(self, options: SchemaRegistryOptions) -> None:
        self._base = options.address
        headers = {
            "Accept": "application/vnd.schemaregistry.v1+json, application/json",
            "User-Agent": f"streamdedup/{__version__}",
        }
        if options.bearer_token is not None:
            headers["Authorization"] = f"Bearer {options.bearer_token.get_secret_value()}"
        if options.basic_auth_user is not None and options.basic_auth_password is not None:
            both = f"{options.basic_auth_user}:{options.basic_auth_password.get_secret_value()}"
            headers |= urllib3.make_headers(basic_auth=both)
        self._pool = urllib3.PoolManager(
            headers=headers,
            timeout=urllib3.Timeout(connect=CONNECT_S_MAX, read=READ_S_MAX),
            retries=False,
            ssl_context=_context(options) if options.is_encrypted else None,
        )

    def check(self) -> None:
        """Raise RegistryAwayError if nobody answers, DeliveryError if the registry refuses us."""
        self._get("/schemas/types", must_be_known=False)

    def schema(self, number: int) -> Schema:
        """Return the schema of an id, and all that it refers to.

        Raises UnknownSchemaError if the registry does not have it, RegistryAwayError if it is away, DeliveryError if it
        refuses us or answers as no registry does.
        """
        answer = self._get(f"/schemas/ids/{number}")
        found: dict[tuple[str, int], Reference] = {}
        self._collect(answer, found)
        return Schema(_type(answer), _text(answer), tuple(found.values()))

    def _collect(self, answer: Mapping[str, Any], found: dict[tuple[str, int], Reference]) -> None:
        """Add to `found` what `answer` refers to, each after what it refers to itself."""
        for each in answer.get("references") or ():
            match each:
                case {"name": str(name), "subject": str(subject), "version": int(version)}:
                    pass
                case _:
                    raise _no_registry("a reference without a subject and a version")
            if (subject, version) in found:
                continue
            if len(found) == REFERENCES_MAX:
                raise _no_registry(f"more than {REFERENCES_MAX} references of a schema")
            there = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            found[subject, version] = Reference(name, _text(there))
            self._collect(there, found)
            found[subject, version] = found.pop((subject, version))

    def _get(self, path: str, *, must_be_known: bool = True) -> Mapping[str, Any]:
        try:
            answer = self._pool.request(
                "GET", self._base + path, redirect=False, preload_content=False
            )
            body = answer.read(ANSWER_BYTES_MAX + 1, decode_content=True)
            answer.close()  # a schema is asked for once, so the connection would not be used again
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise RegistryAwayError(f"no answer: {type(error).__name__}") from None
        return _read(answer.status, body, must_be_known=must_be_known)


def _read(status: int, body: bytes, *, must_be_known: bool) -> Mapping[str, Any]:
    if status in _REFUSALS:
        raise DeliveryError(
            f"the schema registry refuses us, with status {status}: set or correct the credentials of"
            " kafka.schema_registry (basic_auth_... or bearer_token...), or have it let us read schemas"
        )
    if status == TOO_MANY or status >= 500:
        raise RegistryAwayError(f"status {status}")
    if not must_be_known:
        return {}
    if len(body) > ANSWER_BYTES_MAX:
        raise _no_registry(f"an answer of more than {ANSWER_BYTES_MAX >> 20} MiB")
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise _no_registry(f"status {status} and no JSON") from None
    if isinstance(answer, dict):
        if status == 200:
            return answer
        if status == 404 and answer.get("error_code") in _UNKNOWN_CODES:
            raise UnknownSchemaError
    raise _no_registry(f"status {status}")


def _no_registry(what: str) -> DeliveryError:
    return DeliveryError(
        f"kafka.schema_registry.url answers as no schema registry does: {what}; {_REMEDY}.url"
    )


def _type(answer: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever the registry calls it
    return answer.get("schemaType") or "AVRO"  # left out for Avro, which was there first


def _text(answer: Mapping[str, Any]) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise _no_registry("a schema that is no text")
    return text


def _context(options: SchemaRegistryOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ssl_cafile)
        if options.ssl_certfile is not None:
            context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile)
    except (ssl.SSLError, OSError):
        raise ConfigError(
            "kafka.schema_registry: ssl_cafile, ssl_certfile or ssl_keyfile is no such PEM file, or the key does not"
            " belong to the certificate; correct them"
        ) from None
    return context
