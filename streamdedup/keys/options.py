"""What identifies an event, as an operator states it: the `key` section of the configuration."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Origin = Literal["json", "key", "value", "header"]
Tombstones = Literal["pass", "judge", "drop"]  # what becomes of events with a null value
Normalization = Literal["none", "trim", "lowercase"]
PathText = Annotated[str, Field(min_length=1)]


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class KeyOptions(BaseModel):
    """Where the key of an event stands and how it is read.

    Changing any of these but `on_malformed` changes the keys, so the output is folded again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    from_: Origin = Field(
        default="json",
        alias="from",
        description="Where the key stands: in a JSON value, or as the bytes of the record's key, "
        "of its value, or of one header.",
    )
    field: Annotated[
        PathText | Annotated[tuple[PathText, ...], Field(min_length=1)] | None,
        BeforeValidator(_as_tuple, json_schema_input_type=str | list[str]),
    ] = Field(
        default=None,
        description="With `from: json`, a path of names (`url`, `user.id`) or, beginning with `/`, "
        "a JSON Pointer; a list of them makes one key of several fields. With `from: header`, the "
        "name of the header. Required for these two, refused for the others.",
        examples=["url", "user.id", "/user/id", ["tenant", "user.id"]],
    )
    normalize: Normalization = Field(
        default="none",
        description="What is done to the key's text before it is hashed: `trim` takes white space from both of its "
        "ends, `lowercase` does so and makes all letters small. A key that is not UTF-8 is then malformed.",
    )
    hash: Literal["murmur3", "siphash"] | None = Field(
        default=None,
        description="The same as `filter.hash`, which chooses the hash; refused where the two differ.",
    )
    on_malformed: Literal["dead_letter", "pass", "drop"] = Field(
        default="dead_letter",
        description="What happens to an event without a usable key. Not set, it means `pass` where "
        "there is no `sink.dead_letter_topic`.",
    )

    def conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield what contradicts itself: the leaves concerned, the faulty one first, and why."""
        takes_field = self.from_ in ("json", "header")
        if takes_field and self.field is None:
            yield (
                ("field", "from"),
                f"is required with key.from: {self.from_}; name the {_SUBJECT[self.from_]}",
            )
        elif not takes_field and self.field is not None:
            yield (
                ("field", "from"),
                f"means nothing with key.from: {self.from_}; delete it, or set key.from: json",
            )
        if self.from_ == "header" and isinstance(self.field, tuple):
            yield ("field", "from"), "must be one name, not a list, with key.from: header"
        if self.from_ == "json":
            for path in [self.field] if isinstance(self.field, str) else self.field or ():
                if path.startswith("/") and re.search(r"~(?![01])", path):
                    yield (
                        ("field",),
                        f"holds the wrong JSON Pointer {path!r}; write ~0 for ~ and ~1 for /",
                    )


_SUBJECT = {"json": "field, like url or /user/id", "header": "header"}
