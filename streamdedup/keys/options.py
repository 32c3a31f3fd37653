"""The `key` section of the configuration: how an operator states what identifies an event."""

# How to add a source of keys (paths are below `streamdedup/`, unless they begin with another folder)
#
# 1. Here: the name in `Origin`, the description of `from`, and in `conflicts` whether it takes a `field`.
# 2. `keys/extract.py`: a case in `_read`, which returns a column of keys and the reasons of those that have none; in
#    `READINGS`, how much Python it takes for each event. If a kernel finds the key, call it in `warm_up`.
# 3. Tests: `test_extract.py` for the keys, the reasons and the rows a turn; the tests of the normalizers have a list of
#    the sources. The golden schema of the configuration changes.
# 4. Documents: the tables of docs/keys.md, its reasons for malformed events (`test_docs.py` compares them with the
#    extractor), the comment in config/dedup.yaml, and the table of docs/configuration.md, which `settings/tree.py` says
#    how to generate.

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from streamdedup.errors import ConfigError
from streamdedup.keys.formats.schema_registry import Framing

Origin = Literal["json", "key", "value", "header"]
Format = Literal["json", "avro", "protobuf", "json_schema"]
FRAMED_FORMATS = ("avro", "protobuf", "json_schema")
SCHEMA_FORMATS = ("avro", "protobuf")  # those that are read by schemas of a registry
Tombstones = Literal["pass", "judge", "drop"]  # what happens to events with a null value
Normalization = Literal["none", "trim", "lowercase", "email", "url"]
EmailPreset = Literal["provider", "strict"]
PathText = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class EmailRules:
    """The rules by which several addresses are one mailbox: tags, dots in the local part, aliases of a domain."""

    tags: bool
    dots: bool
    aliases: bool

    @classmethod
    def of(
        cls,
        preset: EmailPreset,
        *,
        tags: bool | None = None,
        dots: bool | None = None,
        aliases: bool | None = None,
    ) -> Self:
        """Return the rules of `preset`, except for those that are given."""
        given = (tags, dots, aliases)
        return cls(*(preset == "provider" if rule is None else rule for rule in given))

    @property
    def names(self) -> str:
        """The names of the rules that are on, for people and for identities; "strict" if none is."""
        on = [name for name in ("tags", "dots", "aliases") if getattr(self, name)]
        return "+".join(on) or "strict"


@dataclass(frozen=True)
class UrlRules:
    """The rules by which URLs that a server may answer differently are one: each is off unless it is asked for.

    `tracking` drops parameters that only track, `slash` the slashes at the end of a path, `www` a `www.` before a host,
    `scheme` the difference between http and https, `port` the port of the scheme, `dot` dots at the end of a host.
    `fragments` keeps what follows a `#`, `order` the order of the parameters. `ignore` are names of further parameters
    that are dropped, in lowercase, ascending: capitals of theirs do not count.
    """

    tracking: bool = False
    slash: bool = False
    www: bool = False
    scheme: bool = False
    fragments: bool = False
    port: bool = False
    dot: bool = False
    order: bool = False
    ignore: tuple[str, ...] = ()

    @classmethod
    def of(cls, ignore: Iterable[str] = (), /, **switches: bool) -> Self:
        """Return the rules with these parameters to ignore, in any order. ConfigError if one is not such a name."""
        given = list(ignore)
        for name in given:
            check_ignored(name)
        lowered = {name.encode().lower().decode() for name in given}  # capitals of ASCII
        return cls(**switches, ignore=tuple(sorted(lowered)))

    @property
    def names(self) -> str:
        """The rules that are on, for people and for identities; empty if none is."""
        on = [name for name in URL_SWITCHES if getattr(self, name)]
        return "+".join([*on, *([f"ignore={','.join(self.ignore)}"] if self.ignore else [])])


URL_SWITCHES = tuple(each.name for each in fields(UrlRules) if each.default is False)
IGNORED_MAX = 100  # names of parameters


def check_ignored(name: str) -> None:
    """ConfigError if `name` is not the name of a parameter, as it is meant: without escapes."""
    if not re.fullmatch(r"[^\s,&=#*?%+\ud800-\udfff]{1,100}", name):
        raise ConfigError(
            "url_ignore has a name that no parameter has; write each as in sid, of 1 to 100 characters, without"
            " escapes, wildcards, spaces and commas"
        )


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _ignored(name: str) -> str:
    try:
        check_ignored(name)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return name


IgnoredName = Annotated[str, AfterValidator(_ignored)]

Names = Annotated[
    PathText | Annotated[tuple[PathText, ...], Field(min_length=1)] | None,
    BeforeValidator(_as_tuple, json_schema_input_type=str | list[str]),
]


def _listed(names: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names or ()


class PartOptions(BaseModel):
    """A part of a key: a header, or a field of the value. Of a list, the first counts that is neither missing nor null.

    One of the two is set.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    header: Names = None
    field: Names = None

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of the headers, in their order."""
        return _listed(self.header)

    @property
    def fields(self) -> tuple[str, ...]:
        """The paths of the fields, in their order."""
        return _listed(self.field)


class KeyOptions(BaseModel):
    """Where the key of an event is, and how it is read.

    A change of any of these options but `on_malformed` changes the keys, so the output is folded again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    from_: Origin = Field(
        default="json",
        alias="from",
        description="Where the key is: in a field of the value, which is JSON or of another `format`; or the bytes of "
        "the record's key, of its value, or of one header.",
    )
    field: Names = Field(
        default=None,
        description="With `from: json`, a path of names (`url`, `user.id`) or, beginning with `/`, "
        "a JSON Pointer; a list of paths makes one key of several fields. With `from: header`, the "
        "name of the header. Required for these two, refused for the others, and with `parts`.",
        examples=["url", "user.id", "/user/id", ["tenant", "user.id"]],
    )
    parts: Annotated[tuple[PartOptions, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="In place of `field`: a key of several parts, each `{header: NAME}` or `{field: PATH}`. A list in "
        "the place of a name, like `{field: [after.id, before.id]}`, is one part: the first name counts that is "
        "neither missing nor null.",
        examples=[[{"header": "tenant"}, {"field": ["after.id", "before.id"]}]],
    )
    format: Format = Field(
        default="json",
        description="With `from: json`, how values are written: as plain JSON, or by a serializer of a Schema Registry "
        "as `avro`, `protobuf` or `json_schema`. The first two need `kafka.schema_registry`. A value that no "
        "serializer framed is read as JSON. The format never changes a key.",
    )
    framing: Framing = Field(
        default="auto",
        description="With another `format` than `json`, how a value names its schema: by a `prefix` of a zero byte and "
        "an id of four bytes, by the `header` `__value_schema_id` of the record (an id, or a GUID), or by a prefix "
        "with an id of eight bytes (`id64`), as Apicurio's serializers do by default. `auto`: by the header if there "
        "is one, else by the prefix, with eight bytes if the four are 0.",
    )
    normalize: Normalization = Field(
        default="none",
        description="How the key's text is changed before it is hashed: `trim` removes white space from both of its "
        "ends; `lowercase` also makes it lowercase. With both, a key that is not UTF-8 is malformed. `email` makes one "
        "key of all ways to write one e-mail address, and `url` one of all ways to write one URL; a key that is no "
        "address or URL is malformed.",
    )
    email_preset: EmailPreset = Field(
        default="provider",
        description="With `normalize: email`: `provider` makes one key of all addresses that their provider delivers "
        "to one mailbox, by the three rules below; `strict` only makes letters lowercase and domains ASCII.",
    )
    email_tags: bool | None = Field(
        default=None,
        description="With `normalize: email`, whether tags like `+news` are removed if the provider has them. If not "
        "set, `email_preset` decides.",
    )
    email_dots: bool | None = Field(
        default=None,
        description="With `normalize: email`, whether dots are removed if the provider ignores them. If not set, "
        "`email_preset` decides.",
    )
    email_aliases: bool | None = Field(
        default=None,
        description="With `normalize: email`, whether domains that lead to the same mailbox, like "
        "`googlemail.com` and `gmail.com`, count as one. If not set, `email_preset` decides.",
    )
    url_tracking: bool = Field(
        default=False,
        description="With `normalize: url`, whether parameters that only track, like `utm_source`, are removed from "
        "the query.",
    )
    url_slash: bool = Field(
        default=False,
        description="With `normalize: url`, whether slashes at the end of the path are removed, so `/x/` and `/x` "
        "count as one.",
    )
    url_www: bool = Field(
        default=False,
        description="With `normalize: url`, whether `www.` is removed from the beginning of the host.",
    )
    url_scheme: bool = Field(
        default=False,
        description="With `normalize: url`, whether `https` and `http` count as one.",
    )
    url_fragments: bool = Field(
        default=False,
        description="With `normalize: url`, whether fragments are kept, so `/x#a` and `/x#b` count as two.",
    )
    url_port: bool = Field(
        default=False,
        description="With `normalize: url`, whether the scheme's own port is removed, so `http://h:80/` and "
        "`http://h/` count as one.",
    )
    url_dot: bool = Field(
        default=False,
        description="With `normalize: url`, whether dots at the end of the host are removed, so `http://h.example./` "
        "and `http://h.example/` count as one.",
    )
    url_order: bool = Field(
        default=False,
        description="With `normalize: url`, whether parameters keep their order, so `/x?a=1&b=2` and `/x?b=2&a=1` "
        "count as two.",
    )
    url_ignore: Annotated[
        tuple[IgnoredName, ...],
        BeforeValidator(_as_tuple, json_schema_input_type=list[str]),
        Field(max_length=IGNORED_MAX),
    ] = Field(
        default=(),
        description="With `normalize: url`, parameters that mean nothing to your servers, such as ids of sessions: "
        "they are removed from the query. Capitals of their names do not count.",
        examples=[["sid", "phpsessid"]],
    )
    hash: Literal["murmur3", "siphash"] | None = Field(
        default=None,
        description="The same as `filter.hash`, which chooses the hash; refused if the two differ.",
    )
    on_malformed: Literal["dead_letter", "pass", "drop"] = Field(
        default="dead_letter",
        description="What happens to an event without a usable key. If it is not set, and there is "
        "no `sink.dead_letter_topic`, it means `pass`.",
    )

    @property
    def needs_schemas(self) -> bool:
        """Whether values are read by the schemas of a registry."""
        return bool(self.paths) and self.format in SCHEMA_FORMATS

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of all headers that have a part of the key."""
        if self.parts:
            return tuple(name for part in self.parts for name in part.headers)
        return _listed(self.field) if self.from_ == "header" else ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all fields that have a part of the key."""
        if self.parts:
            return tuple(path for part in self.parts for path in part.fields)
        return _listed(self.field) if self.from_ == "json" else ()

    @property
    def rules(self) -> EmailRules | UrlRules | None:
        """The rules of the normalization, if it has any."""
        match self.normalize:
            case "email":
                return EmailRules.of(
                    self.email_preset,
                    tags=self.email_tags,
                    dots=self.email_dots,
                    aliases=self.email_aliases,
                )
            case "url":
                switches = {name: getattr(self, f"url_{name}") for name in URL_SWITCHES}
                return UrlRules.of(self.url_ignore, **switches)
            case _:
                return None

    def conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield each contradiction: the leaves concerned, the faulty one first, and the reason."""
        takes_field = self.from_ in ("json", "header")
        if self.parts:
            yield from self._conflicts_of_parts()
        elif takes_field and self.field is None:
            yield (
                ("field", "from", "parts"),
                f"is required with key.from: {self.from_}; name the {_SUBJECT[self.from_]}",
            )
        elif not takes_field and self.field is not None:
            yield (
                ("field", "from"),
                f"means nothing with key.from: {self.from_}; delete it, or set key.from: json",
            )
        for name, of in _RULES.items():
            if (
                self.normalize != of
                and getattr(self, name) != type(self).model_fields[name].default
            ):
                yield (
                    (name, "normalize"),
                    f"means nothing with key.normalize: {self.normalize}; delete it, or set key.normalize: {of}",
                )
        if not self.parts and self.from_ != "json" and self.format != "json":
            yield (
                ("format", "from"),
                f"means nothing with key.from: {self.from_}; delete it, or set key.from: json",
            )
        if self.framing != "auto" and self.format not in FRAMED_FORMATS:
            yield (
                ("framing", "format"),
                "means nothing with key.format: json; delete it, or set key.format to that of the serializer",
            )
        if self.from_ == "header" and isinstance(self.field, tuple):
            yield ("field", "from"), "must be one name, not a list, with key.from: header"
        for path in self.paths:
            if path.startswith("/") and re.search(r"~(?![01])", path):
                yield (
                    ("parts" if self.parts else "field",),
                    "holds a wrong JSON Pointer; write ~0 for ~ and ~1 for /",
                )

    def _conflicts_of_parts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the contradictions of `parts`: within them, and with the options that they replace."""
        for number, part in enumerate(self.parts or (), 1):
            if bool(part.headers) == bool(part.fields):
                yield (
                    ("parts",),
                    f"has {'both' if part.headers else 'neither'} of `header` and `field` in part {number}; write"
                    " {header: NAME} or {field: PATH}, each as a part of its own",
                )
        if self.field is not None:
            yield ("field", "parts"), "means nothing with key.parts; delete one of the two"
        if self.from_ != "json":
            yield (
                ("from", "parts"),
                "means nothing with key.parts, of which each says what it is; delete one of the two",
            )
        if not self.paths and self.format != "json":
            yield ("format", "parts"), "means nothing without a field in key.parts; delete it"


# The options that are rules of one normalization, and which.
_RULES: dict[str, Normalization] = {
    **dict.fromkeys(("email_preset", "email_tags", "email_dots", "email_aliases"), "email"),
    **dict.fromkeys((f"url_{each.name}" for each in fields(UrlRules)), "url"),
}
_SUBJECT = {"json": "field, like url or /user/id", "header": "header"}
