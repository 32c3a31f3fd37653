"""The tree of all options, assembled from the sections that each room declares, and the contradictions between them.

A leaf is an option; its path is (section, name), or (section, group, name) if it belongs to a group: options of a
section that are set together, or not at all. `Settings` reads no file and no environment: `load` passes it the sources.
"""

# How to add an option (paths are below `streamdedup/`, unless they begin with another folder)
#
# 1. The model of its section: `kafka/options.py`, `keys/options.py`, `filters/options.py` or `settings/sections.py`,
#    with type, bounds, default and a description. The unit is the end of its name. Contradictions with other options
#    of the section are in `conflicts` of the model, those with options of other sections here.
# 2. The place that reads it. There is no option that does nothing. One that changes which key an event has, or what a
#    filter holds, is also read by the identity in `delivery/recipe.py`.
# 3. config/dedup.yaml: a line, or a comment. A test fails if it is missing, and lists those that are rarely needed.
# 4. A test of its effect. Those of `tests/settings/` take its place in the file, in the environment and on the command
#    line from the model; `test_schema.py` counts the numbers, `test_errors.py` has a row for values that are refused.
#
# Tools write the rest: `make docs` the tables of docs/configuration.md, `python -m proof golden` the schema, once its
# record is deleted.

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel, PrivateAttr, SecretStr, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from streamdedup.filters.options import UNUSED_CAPACITY, FilterOptions
from streamdedup.kafka.options import (
    BLOCKED_BY,
    MARK,
    NOT_OURS,
    DeliveryOptions,
    KafkaOptions,
    SinkOptions,
    SourceOptions,
)
from streamdedup.keys.options import SCHEMA_FORMATS, KeyOptions
from streamdedup.settings.fitting import unfit
from streamdedup.settings.sections import (
    AllowlistOptions,
    BlocklistOptions,
    ServerOptions,
    SnapshotOptions,
)
from streamdedup.units import Quantity

KeyPath = tuple[str, ...]


class Settings(BaseSettings):
    """The configuration of a streamdedup worker."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kafka: KafkaOptions
    source: SourceOptions
    key: KeyOptions
    allowlist: AllowlistOptions = AllowlistOptions()
    blocklist: BlocklistOptions = BlocklistOptions()
    filter: FilterOptions
    sink: SinkOptions
    delivery: DeliveryOptions = DeliveryOptions()
    snapshot: SnapshotOptions
    server: ServerOptions = ServerOptions()

    _origins: Mapping[tuple[str, ...], str] = PrivateAttr(default={})

    @property
    def origins(self) -> Mapping[tuple[str, ...], str]:
        """Where each leaf was set, by its path. A leaf that was left at its default has no entry."""
        return self._origins

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_named: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Merge the argument `sources`, which `load` passes; the first source wins.

        Without that argument, the arguments are the only source. The environment never is.
        """
        sources: tuple[PydanticBaseSettingsSource, ...]
        sources = init_settings().get("sources", (init_settings,))
        return sources

    @model_validator(mode="before")
    @classmethod
    def _leave_defaults(cls, given: Any) -> Any:  # noqa: ANN401 - whatever is to be checked
        """Drop each `null`, which means the default; without a filter, fill in what is required but unused."""
        given = _without_empty_groups(_without_nulls(given))
        if not isinstance(given, Mapping) or not isinstance(given.get("filter"), Mapping):
            return given
        if given["filter"].get("kind") != "none":
            return given
        unused: dict[str, dict[str, Any]] = {
            "filter": {"capacity": UNUSED_CAPACITY},
            "snapshot": {"directory": UNUSED_DIRECTORY},
        }
        return {**given, **{name: {**made, **given.get(name, {})} for name, made in unused.items()}}

    @model_validator(mode="after")
    def _resolve_dead_letters(self) -> "Settings":
        """Without a topic for dead letters, options that were not set get a value that does not need it."""
        unset = {"key": {"on_malformed": "pass"}, "sink": {"on_rejected": "stop"}}
        for section, resolved in unset.items():
            options = getattr(self, section)
            if not self.sink.dead_letter_topic and options.model_fields_set.isdisjoint(resolved):
                made = options.model_copy(update=resolved)
                object.__setattr__(self, section, made)  # frozen for all but this validator
        return self

    @model_validator(mode="after")
    def _refuse_conflicts(self) -> "Settings":
        errors = [
            InitErrorDetails(
                type=PydanticCustomError("conflict", "{why}", {"why": why, "leaves": leaves}),
                loc=leaves[0],
                input=None,
            )
            for leaves, why in self._conflicts()
        ]
        if errors:
            raise ValidationError.from_exception_data("Settings", errors, hide_input=True)
        return self

    def _conflicts(self) -> Iterator[tuple[list[KeyPath], str]]:
        """Yield each contradiction: the leaves concerned, the faulty one first, and the reason."""
        for section in ("kafka", "source", "key", "filter", "server"):
            for names, why in getattr(self, section).conflicts():
                yield [(section, name) for name in names], why
        if self.key.on_malformed == "dead_letter" and not self.sink.dead_letter_topic:
            yield (
                [("key", "on_malformed"), ("sink", "dead_letter_topic")],
                "needs sink.dead_letter_topic; set that topic, or choose pass or drop",
            )
        if self.sink.on_rejected == "dead_letter" and not self.sink.dead_letter_topic:
            yield (
                [("sink", "on_rejected"), ("sink", "dead_letter_topic")],
                "needs sink.dead_letter_topic; set that topic, or choose stop",
            )
        if self.sink.duplicates_headers and self.sink.duplicates_topic is None:
            yield (
                [("sink", "duplicates_headers"), ("sink", "duplicates_topic")],
                "means nothing without sink.duplicates_topic; set that topic, or unset duplicates_headers",
            )
        refreshes = self.filter.kind == "window" and self.filter.refresh
        if refreshes and self.delivery.exactly_once:
            yield (
                [("filter", "refresh"), ("delivery", "guarantee")],
                "does not work with exactly_once: duplicates are not in the output, so a restart would forget what they"
                " refreshed; set refresh: false, or guarantee: at_least_once",
            )
        for name in self.key.headers:
            if name in (MARK, *BLOCKED_BY):
                yield (
                    [("key", "parts" if self.key.parts else "field")],
                    f"must not be {name}: streamdedup writes that header itself; name another header",
                )
        if self.key.hash not in (None, self.filter.hash):
            yield (
                [("key", "hash"), ("filter", "hash")],
                f"differs from filter.hash: {self.filter.hash}; set filter.hash: {self.key.hash} to keep that hash, or"
                " delete it",
            )
        for names, why in unfit(self.filter):
            yield [("filter", name) for name in names], why
        yield from self._about_registry()
        yield from self._about_lists()
        yield from self._about_repartition()
        yield from self._about_topics()

    def _about_topics(self) -> Iterator[tuple[list[KeyPath], str]]:
        """Yield the contradictions between names of topics."""
        seen: dict[str, KeyPath] = {}
        for leaf in _TOPICS:
            topic = self._value(leaf)
            first = seen.setdefault(topic, leaf)
            if topic is not None and first != leaf:
                yield [leaf, first], f"must differ from {'.'.join(first)}; name another topic"
            if topic is not None and topic.startswith("__"):
                yield [leaf], f"must not name {topic}: {NOT_OURS}"
            if topic in (self.source.topics or ()):
                yield (
                    [leaf, _SOURCES],
                    ("must not be in source.topics: it would be a loop; name another topic"),
                )

    def _value(self, leaf: KeyPath) -> Any:  # noqa: ANN401 - an option's own type
        """Return the value of a leaf; None if its group is not set."""
        value: Any = self
        for name in leaf:
            value = value and getattr(value, _attribute(value, name))
        return value

    @property
    def own_topics(self) -> frozenset[str]:
        """The topics that this deployment writes, or reads besides its input: as an input, one would be a loop."""
        return frozenset(filter(None, (self._value(leaf) for leaf in _TOPICS[1:])))

    def _about_repartition(self) -> Iterator[tuple[list[KeyPath], str]]:
        """Yield the contradictions between `source.repartition` and other sections."""
        if self.source.repartition is None:
            return
        if self.source.repartition.max_skew is not None and not self.filter.by_event_time:
            yield (
                [("source", "repartition", "max_skew"), ("filter", "retention")],
                "means nothing without filter.kind: window and filter.retention, because then no event is late; unset"
                " it, or set these",
            )
        if not self.filter.remembers:
            yield (
                [_MIDDLE_TOPIC, ("filter", "kind")],
                "means nothing with filter.kind: none, because lists judge each event by itself, in whichever"
                " partition it is; unset source.repartition, or choose a kind",
            )
        group_bytes = len(self.kafka.group_id.encode()) + len(REPARTITION_SUFFIX)
        if group_bytes > GROUP_BYTES_MAX:
            yield (
                [("kafka", "group_id"), _MIDDLE_TOPIC],
                f"is too long for source.repartition, whose group has {REPARTITION_SUFFIX} behind it: that takes"
                f" {group_bytes} bytes, and Kafka allows {GROUP_BYTES_MAX}; choose a shorter one",
            )

    def _about_registry(self) -> Iterator[tuple[list[KeyPath], str]]:
        """Yield the contradictions between `kafka.schema_registry` and `key.format`, and within the former."""
        registry, needed = self.kafka.schema_registry, self.key.needs_schemas
        if registry is None:
            if needed:
                yield (
                    [("kafka", *_REGISTRY, "url"), ("key", "format")],
                    f"is required with key.format: {self.key.format}; set the address of the registry",
                )
            return
        if not needed:
            yield (
                [("kafka", *_REGISTRY, "url"), ("key", "format")],
                f"means nothing with key.format: {self.key.format}, which needs no registry; unset it, or set"
                f" key.format: {' or '.join(SCHEMA_FORMATS)}",
            )
        for names, why in registry.conflicts():
            yield [("kafka", *_REGISTRY, name) for name in names], why

    def _about_lists(self) -> Iterator[tuple[list[KeyPath], str]]:
        """Yield the contradictions about lists, and about a filter that does not exist."""
        if self.sink.duplicates_topic is not None and not self.filter.remembers:
            yield (
                [("sink", "duplicates_topic"), ("filter", "kind")],
                "means nothing with filter.kind: none, because then no event is a duplicate; unset it, or choose a"
                " kind",
            )
        if self.blocklist.exact is not None and self.blocklist.on_positive == "drop":
            yield (
                [("blocklist", "exact"), ("blocklist", "on_positive")],
                "means nothing with blocklist.on_positive: drop; set blocklist.on_positive: verify, or unset it",
            )
        if self.blocklist.file is not None:
            name = "parts" if self.key.parts else "field"
            if len(self.key.parts or self.key.paths) > 1:
                yield (
                    [_BLOCKLIST, ("key", name)],
                    f"needs keys of one field, but key.{name} names several: a list holds no joined keys; name one"
                    " field, or unset it",
                )
            return
        if not self.filter.remembers:
            yield (
                [("filter", "kind"), _BLOCKLIST],
                "leaves nothing to do without blocklist.file: every event would pass; set blocklist.file, or choose a"
                " kind",
            )
        for leaf in (
            ("allowlist", "file"),
            ("blocklist", "control_topic"),
            ("blocklist", "on_positive"),
            ("sink", "blocked_topic"),
        ):
            if self._value(leaf) not in (None, "drop"):
                yield (
                    [leaf, _BLOCKLIST],
                    "means nothing without blocklist.file; set blocklist.file, or unset it",
                )


UNUSED_DIRECTORY = Path("unused")  # without a filter, nothing is saved
REPARTITION_SUFFIX = "-repartition"  # of the group that fills the middle topic
GROUP_BYTES_MAX = 2**15 - 1  # the protocol writes the length of a name in 16 bits, with a sign
_REGISTRY: KeyPath = ("schema_registry",)
_BLOCKLIST: KeyPath = ("blocklist", "file")
_MIDDLE_TOPIC: KeyPath = ("source", "repartition", "topic")
_SOURCES: KeyPath = ("source", "topics")
_TOPICS: tuple[KeyPath, ...] = (
    ("source", "topic"),
    ("sink", "topic"),
    ("sink", "duplicates_topic"),
    ("sink", "blocked_topic"),
    ("sink", "dead_letter_topic"),
    ("blocklist", "control_topic"),
    _MIDDLE_TOPIC,
)


def _attribute(options: BaseModel, name: str) -> str:
    """Return the attribute that holds the option `name`, which may be another if the name is taken."""
    aliased = f"{name}_"
    return aliased if aliased in type(options).model_fields else name


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - likewise
    if not isinstance(value, Mapping):
        return value
    return {name: _without_nulls(part) for name, part in value.items() if part is not None}


def _without_empty_groups(given: Any) -> Any:  # noqa: ANN401 - likewise
    """Drop each group that has no option: all of them are at their default, which is that it is not set."""
    if not isinstance(given, Mapping):
        return given
    return {
        section: {
            name: value for name, value in options.items() if value or (section, name) not in GROUPS
        }
        if isinstance(options, Mapping)
        else options
        for section, options in given.items()
    }


def sections() -> dict[str, type[BaseModel]]:
    """Return the model of each section by its name, in the order of the tree."""
    return {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def options_of(
    path: KeyPath, model: type[BaseModel]
) -> Iterator[tuple[KeyPath, FieldInfo, type[BaseModel] | None]]:
    """Yield the path and the field of each option of a section or group; of a group in it, the model, too."""
    for name, field in model.model_fields.items():
        members = (field.annotation, *get_args(field.annotation))
        models = (m for m in members if isinstance(m, type) and issubclass(m, BaseModel))
        yield (*path, field.alias or name), field, next(models, None)


def _groups() -> dict[KeyPath, type[BaseModel]]:
    return {
        path: group
        for section, model in sections().items()
        for path, _, group in options_of((section,), model)
        if group is not None
    }


def _leaves() -> dict[KeyPath, FieldInfo]:
    return {
        leaf: of
        for section, model in sections().items()
        for path, field, group in options_of((section,), model)
        for leaf, of, _ in (options_of(path, group) if group else [(path, field, None)])
    }


GROUPS: Mapping[KeyPath, type[BaseModel]] = _groups()
LEAVES: Mapping[KeyPath, FieldInfo] = _leaves()
PASS_THROUGH = frozenset({("kafka", "consumer"), ("kafka", "producer")})
SECRETS = frozenset(
    leaf for leaf, field in LEAVES.items() if SecretStr in get_args(field.annotation)
)


def leaf_of(path: Sequence[Any]) -> KeyPath | None:
    """Return the leaf that a path leads to, or into, as a client's option does; None if there is none."""
    parts = tuple(map(str, path[:3]))
    return next((parts[:n] for n in (2, 3) if parts[:n] in LEAVES), None)


def quantity_of(field: FieldInfo) -> Quantity | None:
    """Return the unit and the bounds of a leaf that takes a quantity; None for any other leaf."""
    return next((mark for mark in field.metadata if isinstance(mark, Quantity)), None)


def allowed(field: FieldInfo) -> str:
    """Describe in words which values a leaf takes, such as `a number from 0 to 10`."""
    if quantity := quantity_of(field):
        return quantity.range
    low = next((mark.ge for mark in field.metadata if isinstance(mark, Ge)), None)
    high = next((mark.le for mark in field.metadata if isinstance(mark, Le)), None)
    if low is not None and high is not None:
        return f"a number from {low} to {high}"
    return _allowed_type(field.annotation)


def choices(annotation: object) -> tuple[str, ...]:
    """Return the texts of a type that takes no others, such as a `Literal` or a bool; else none."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return members
    if annotation is bool:
        return "true", "false"
    parts = [choices(member) for member in members if member is not type(None)]
    return tuple(chain.from_iterable(parts)) if all(parts) else ()


def _allowed_type(annotation: object) -> str:
    """Describe a type in words; for a union, all its members but None."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return members[0] if len(members) == 1 else f"one of {', '.join(members)}"
    if origin is Annotated:
        return _allowed_type(members[0])
    if origin is tuple:
        part = members[0]
        is_model = isinstance(part, type) and issubclass(part, BaseModel)
        of = f"mappings, each with {' or '.join(part.model_fields)}" if is_model else "texts"
        return f"a list of {of}"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return "a mapping of aiokafka's option names to values"
    if members:
        words = [_allowed_type(member) for member in members if member is not type(None)]
        return " or ".join(dict.fromkeys(words))
    return _WORDS[annotation]


_WORDS: Mapping[object, str] = {
    bool: "true or false",
    str: "a text",
    SecretStr: "a text",
    Path: "a path",
}
