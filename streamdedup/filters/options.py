"""The `filter` section of the configuration: the kind, the size and the hash of the filters that remember keys."""

import re
from collections.abc import Iterator
from math import ceil
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from streamdedup.filters.kinds import GROWABLE, KINDS
from streamdedup.filters.sizing import WINDOW_GENERATIONS
from streamdedup.secret import SecretFile, conflicting_secrets, read_secret
from streamdedup.units import count, milliseconds, size_bytes

# The kinds that take keys one after the other.
Kind = Literal[
    "bloom", "blocked", "exact", "bitmap", "counting", "cuckoo", "dleft", "dlcbf", "window"
]
YEAR_MS = 366 * 86_400_000
WINDOWED = KINDS["window"].options
# The kinds whose positions come from one probe sequence.
PROBED = tuple(kind.name for kind in KINDS.values() if "probe" in kind.options)
UNUSED_CAPACITY = 1  # the capacity that `kind: none` has
# The options that apply to `kind: none` as well, because they decide how lists are looked up.
WITHOUT_FILTER = ("kind", "hash", "hash_key_file", "hash_key")
_HEX = "32 hexadecimal digits (16 random bytes), as from: openssl rand -hex 16"


class FilterOptions(BaseModel):
    """How known keys are remembered: the kind of filter, its size, its hash, and what happens when it is full."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal[Kind, "none"] = Field(
        default="cuckoo",
        description="The structure of the filter. `cuckoo` is small and fast; `bloom` is smaller at error rates above "
        "0.1 %, and needs no copy for a snapshot; `blocked` is the fastest and larger; `exact` makes practically no "
        "errors; `window` forgets keys that are older than `retention`, for topics without an end. `bitmap` is a Bloom "
        "filter with one hash. `counting`, `dleft` and `dlcbf` are for comparison: they can remove keys, which the "
        "worker never does. `none` "
        "(`filter: null` for short) remembers no key: the worker then only screens by `blocklist`. Of this section "
        "it takes `hash` and `hash_key_file` alone, and needs them only if the lists were built under a secret; it "
        "needs no option of `snapshot`, and no history of its output.",
    )
    capacity: Annotated[int, count(1, 10**12, "keys")] = Field(
        description="Distinct keys that the whole topic may bring before the filters are full; "
        "every partition gets its share. Memory follows from this and `error_rate`.",
        examples=["100M"],
    )
    error_rate: float = Field(
        default=1e-6,
        ge=1e-15,
        le=0.5,
        allow_inf_nan=False,
        description="The greatest probability, with the filter at capacity, that a new event is "
        "dropped as a false duplicate.",
    )
    on_full: Literal["grow", "stop", "warn"] = Field(
        default="grow",
        description="What happens when a partition's filter is at capacity. `grow`: it gets another stage, twice as "
        "large, until `max_size` is reached; all stages together keep `error_rate`. A `window` also gives back stages "
        "whose keys it has forgotten. `stop`, and `grow` at `max_size`: the worker stops consuming the partition and "
        "reports it. `warn`: the worker goes on and logs a warning; the error rate grows. Kinds with cells (`cuckoo`, "
        "`dleft`, `dlcbf`, `window`) go on until 32,768 keys have no cell, then stop; `exact` stops at capacity. A "
        "`bitmap` cannot grow, and a `window` without `retention` is never full: their default is `stop`.",
    )
    max_size: Annotated[int | None, size_bytes(1024, 1 << 50)] = Field(
        default=None,
        description="With `on_full: grow`, the most memory that the filters of all partitions take together. "
        "Not set, it is 16 times the memory they begin with, enough for about 7 times the keys.",
        examples=["8GiB"],
    )
    partition_headroom: float = Field(
        default=0.2,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="By how much each partition's filter is larger than an even split of "
        "`capacity`, because keys spread unevenly; 0.2 is 20 %.",
    )
    hash: Literal["murmur3", "siphash"] = Field(
        default="siphash",
        description="The 128-bit hash that identifies a key. `siphash`: SipHash-2-4 under a secret, so that nobody can "
        "choose keys that are taken for one another. Without a `hash_key`, each partition draws a secret when its "
        "filter begins empty, and keeps it in its snapshots. `murmur3`: MurmurHash3 x64 128, which has no secret: only "
        "for keys that no outsider chooses. After a change, the worker folds the output again.",
    )
    hash_key_file: SecretFile | None = Field(
        default=None,
        description="A file that holds the secret of `hash: siphash`, for all partitions and lists.",
    )
    hash_key: SecretStr | None = Field(
        default=None,
        validate_default=True,
        description="The secret of `hash: siphash`, 32 hexadecimal digits, the same for all workers, and for the lists "
        "that are built for them. Not set, each partition draws its own, and lists are looked up by murmur3. "
        "Secret: only from the environment.",
    )
    probe: Literal["standard", "double"] = Field(
        default="standard",
        description="The sequence of a key's positions in a `bitmap`, `bloom` or `counting` filter; "
        "`double` is the h1 + i * h2 of the literature, which errs more if the filter is small.",
    )

    retention: Annotated[int | None, milliseconds(1, 100 * YEAR_MS, bare=False)] = Field(
        default=None,
        description="How long a `window` remembers a key, by the timestamps of the events; `capacity` is then the "
        "number of distinct keys within that time and one generation, however they come. Not set, a `window` remembers "
        "the last `capacity` keys.",
        examples=["7d"],
    )
    generations: Annotated[int, count(2, 64, "generations")] = Field(
        default=WINDOW_GENERATIONS,
        description="The number of steps in which a `window` forgets: a key is remembered up to 1 / (generations - 1) "
        "longer than `retention`. One more than 8, 16 or 32 takes one bit more for each key.",
    )
    late: Literal["pass", "drop"] = Field(
        default="pass",
        description="What a `window` does with an event that is older than `retention` when it arrives: the window no "
        "longer knows whether it is a duplicate.",
    )
    refresh: bool = Field(
        default=False,
        description="Whether a duplicate renews its key in a `window`. The output does not record the renewal, so a "
        "restart forgets it; `exactly_once` therefore refuses this option.",
    )
    max_jump: Annotated[int | None, milliseconds(1, 100 * YEAR_MS, bare=False)] = Field(
        default=None,
        description="How far one event may advance the time of a `window`. Set it if the output's brokers accept "
        "timestamps that are ahead (`message.timestamp.after.max.ms`): one wrong timestamp would empty the window. "
        "After a longer pause, the window catches up by this much with each new key. Not set, there is no limit.",
        examples=["1h"],
    )

    @model_validator(mode="after")
    def _resolve_on_full(self) -> "FilterOptions":
        if "on_full" not in self.model_fields_set and not self._can_grow:
            object.__setattr__(self, "on_full", "stop")  # frozen for all but this validator
        return self

    @property
    def _can_grow(self) -> bool:
        return can_grow(self.kind, self.error_rate, self.retention)

    @property
    def remembers(self) -> bool:
        """Whether there is a filter. Without one, a worker only screens, and keeps no state for a partition."""
        return self.kind != "none"

    @property
    def first_error_rate(self) -> float:
        """The error rate for which a filter is made: half of `error_rate` for the first stage of one that grows."""
        return self.error_rate / 2 if self.on_full == "grow" else self.error_rate

    @property
    def footprint_options(self) -> dict[str, int]:
        """What the footprint of this kind takes besides capacity and error rate, by name."""
        if self.kind != "window":
            return {}
        return {"generations": self.generations, "by_count": self.retention is None}

    @property
    def window_ms(self) -> int:
        """The longest time a window by event time remembers a key: `retention` plus one generation; else 0."""
        retention = self.retention or 0
        return retention + -(-retention // (self.generations - 1))

    @property
    def remembered_ms(self) -> int | None:
        """How long a key is remembered after its event's time, in ms; None if that is not bounded, 0 without a filter.

        A window by count remembers its last keys, however old they are.
        """
        if not self.remembers:
            return 0
        return self.window_ms if self.by_event_time else None

    @property
    def by_event_time(self) -> bool:
        """Whether the filter forgets by the timestamps of the events."""
        return self.kind == "window" and self.retention is not None

    @field_validator("hash_key")
    @classmethod
    def _read_hash_key(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        secret = read_secret(secret, info)
        if secret is not None and not re.fullmatch("[0-9a-fA-F]{32}", secret.get_secret_value()):
            path = info.data.get("hash_key_file")
            raise ValueError(f"must be {_HEX}" + (f"; {path} holds something else" if path else ""))
        return secret

    @property
    def hash_key_bytes(self) -> bytes:
        """The 16 bytes of `hash_key`; empty if it is not set."""
        return bytes.fromhex(self.hash_key.get_secret_value()) if self.hash_key else b""

    @property
    def draws_secret(self) -> bool:
        """Whether each filter that begins empty gets a secret of its own."""
        return self.remembers and self.hash == "siphash" and self.hash_key is None

    def conflicts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield each contradiction: the options concerned, the faulty one first, and the reason."""
        yield from conflicting_secrets(self, "filter", "hash_key")
        if self.hash == "murmur3" and self.hash_key is not None:
            leaf = "hash_key_file" if self.hash_key_file else "hash_key"
            yield (
                (leaf, "hash"),
                f"means nothing with filter.hash: {self.hash}; unset it, or set filter.hash: siphash",
            )
        yield from self._misplaced() if self.remembers else self._unused()
        if self.probe != "standard" and self.kind not in PROBED:
            yield (
                ("probe", "kind"),
                f"means nothing with filter.kind: {self.kind}; set probe: standard, or choose {', '.join(PROBED)}",
            )

    def _unused(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield each option that is set although there is no filter."""
        unset = {"capacity": UNUSED_CAPACITY, "on_full": "stop"}
        elsewhere = (*WITHOUT_FILTER, "probe")
        for name, field in type(self).model_fields.items():
            if name not in elsewhere and getattr(self, name) != unset.get(name, field.default):
                yield (
                    (name, "kind"),
                    "means nothing with filter.kind: none, which remembers no key; unset it, or choose a kind",
                )

    def _misplaced(self) -> Iterator[tuple[tuple[str, ...], str]]:
        fields = type(self).model_fields
        given = [name for name, field in fields.items() if getattr(self, name) != field.default]
        if self.on_full == "grow" and self.kind == "window" and self.retention is None:
            yield (
                ("on_full", "retention"),
                "means nothing without filter.retention: this window counts keys, and is never full; unset it, or set"
                " retention",
            )
        elif self.on_full == "grow" and not self._can_grow:
            at = f", error_rate: {self.error_rate:g}" if self.kind in GROWABLE else ""
            yield (
                ("on_full", "kind"),
                f"is not for filter.kind: {self.kind}{at}; choose stop or warn, or a kind that can grow",
            )
        if self.max_size is not None and self.on_full != "grow":
            yield (
                ("max_size", "on_full"),
                f"means nothing with filter.on_full: {self.on_full}; unset it, or choose grow",
            )
        for name in WINDOWED:
            if name in given and self.kind != "window":
                yield (
                    (name, "kind"),
                    f"means nothing with filter.kind: {self.kind}; unset it, or choose window",
                )
        for name in ("late", "max_jump"):
            if name in given and self.kind == "window" and self.retention is None:
                yield (
                    (name, "retention"),
                    "means nothing without filter.retention: this window counts keys; unset it, or set retention",
                )
        if self.by_event_time and (self.retention or 0) < self.generations - 1:
            yield (
                ("retention", "generations"),
                f"is too short for {self.generations} generations: it is split into {self.generations - 1} of at least"
                " 1ms each; raise it, or take fewer generations",
            )

    def share(self, whole: int, partitions: int) -> int:
        """One partition's share of `whole`, with its headroom for skew; never more than `whole`."""
        return min(whole, ceil(whole * (1 + self.partition_headroom) / partitions))


def can_grow(kind: str, error_rate: float, retention: object = None) -> bool:
    """Whether a filter of `kind` accepts `on_full: grow`, given that its first stage has half of the error rate.

    A window does with a `retention` only: by count it is never full.
    """
    if kind not in GROWABLE:
        return False
    low = error_rate / 2 < KINDS[kind].error_rate_min
    never_full = kind == "window" and retention is None
    return not low and not never_full
