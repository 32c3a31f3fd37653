"""How the worker reaches a Schema Registry, as an operator configures it: `kafka.schema_registry`."""

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

from streamdedup.secret import (
    AllowPlaintext,
    AuthoritiesFile,
    CertificateFile,
    RegularFile,
    Secret,
    SecretFile,
    conflicting_secrets,
    half_certificates,
    is_loopback,
    is_word,
    secret,
    secret_file,
    sent_in_clear,
)


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address like https://registry.example:8081")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user; set basic_auth_user and basic_auth_password_file")
    if parts.query or parts.fragment:
        raise ValueError("must end with its path, without ? and #")
    return url.rstrip("/")


class SchemaRegistryOptions(BaseModel):
    """Where the schemas are of values that `key.format` decodes."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: Annotated[str, AfterValidator(_check_url)] = Field(
        description="The address of the registry, with its path.",
        examples=["https://registry.example:8081"],
    )
    context: Annotated[str, Field(pattern=r"^\.?[A-Za-z0-9_-]+$")] | None = Field(
        default=None,
        description="The context in which schemas have their ids, if it is not the registry's default.",
        examples=["eu"],
    )
    basic_auth_user: str | None = Field(
        default=None, min_length=1, description="The user, if the registry asks for a password."
    )
    basic_auth_password_file: SecretFile | None = secret_file("the password of `basic_auth_user`")
    basic_auth_password: Secret = secret("the password of `basic_auth_user`")
    bearer_token_file: SecretFile | None = secret_file("the token, if the registry asks for one")
    bearer_token: Secret = secret("the token, if the registry asks for one")
    ssl_cafile: AuthoritiesFile = None
    ssl_certfile: CertificateFile = None
    ssl_keyfile: RegularFile | None = Field(
        default=None, description="The private key of `ssl_certfile`, PEM, not encrypted."
    )

    allow_plaintext: AllowPlaintext = False

    @field_validator("bearer_token")
    @classmethod
    def _check_token(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and not is_word(token.get_secret_value()):
            raise ValueError(
                "must be one line of visible ASCII characters; take out line ends, blanks and all else"
            )
        return token

    @property
    def is_encrypted(self) -> bool:
        """Whether the address is one of HTTPS."""
        return self.url.startswith("https:")

    @property
    def sends_in_clear(self) -> bool:
        """Whether credentials go to another machine without encryption."""
        has_any = self.bearer_token is not None or self.basic_auth_user is not None
        return (
            has_any and not self.is_encrypted and not is_loopback(urlsplit(self.url).hostname or "")
        )

    @property
    def address(self) -> str:
        """The address below which the paths of the API are, with the context."""
        if self.context is None:
            return self.url
        return f"{self.url}/contexts/.{self.context.removeprefix('.')}"

    def conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield each contradiction: the options concerned, the wrong one first, and the reason."""
        where = "kafka.schema_registry"
        yield from conflicting_secrets(self, where, "basic_auth_password", "bearer_token")
        if self.basic_auth_password is not None and self.basic_auth_user is None:
            yield ("basic_auth_user",), "is required with a password; name the user"
        if self.basic_auth_user is not None and self.basic_auth_password is None:
            yield (
                ("basic_auth_password", "basic_auth_password_file", "basic_auth_user"),
                "is required with kafka.schema_registry.basic_auth_user; set"
                " STREAMDEDUP_KAFKA__SCHEMA_REGISTRY__BASIC_AUTH_PASSWORD or basic_auth_password_file",
            )
        if self.basic_auth_user is not None and self.bearer_token is not None:
            yield (
                ("bearer_token", "bearer_token_file", "basic_auth_user"),
                "does not go with kafka.schema_registry.basic_auth_user; set one of them",
            )
        if self.sends_in_clear and not self.allow_plaintext:
            leaves = ("url", "basic_auth_user", "bearer_token", "bearer_token_file")
            yield leaves, sent_in_clear("the credentials", "an address of https", where)
        if self.allow_plaintext and self.is_encrypted:
            yield ("allow_plaintext", "url"), "means nothing with an address of https; delete it"
        yield from half_certificates(self, where)
        for leaf in ("ssl_cafile", "ssl_certfile") if not self.is_encrypted else ():
            if getattr(self, leaf) is not None:
                yield (leaf, "url"), "means nothing with an address of http; delete it"
