"""The meaning: all that decides which key an event has, and to which output it goes.

Workers of one group have the same meaning, by the name of their assignor: a group refuses a worker of another name
(`kafka.client.assignor`). The format of values is in it, since an event that one worker can read, another may not; but
it never changes a key, so it is in no identity. Whatever workers of one group may differ in is no part of it: the hash,
the filter's kind and size, lists, side topics, the guarantee, and Python's tables of characters. What of it decides the
keys is in the identity of a snapshot, too; both are made here.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

from streamdedup.kafka.options import RepartitionOptions
from streamdedup.keys.extract import Extractor
from streamdedup.keys.formats.json_fields import canonical
from streamdedup.keys.formats.schema_registry import Framing
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import Format, KeyOptions
from streamdedup.keys.parts import Part
from streamdedup.settings import Settings

VERSION = 1  # increased by every change of the extraction by which an event could get another key, or none
NAME_PREFIX = "streamdedup-"
NAME_DIGITS, CHECK_DIGITS = 16, 8  # of 64 hex digits; the check's are the first of the name's
NEW_PROTOCOL, SHARE = "consumer", "share"  # what brokers and tools call them
STICKY = "sticky"  # how workers joined before their names stood for a meaning, and aiokafka's own assignor
_WITHOUT = "none"  # in the place of a normalizer


@dataclass(frozen=True)
class Meaning:
    """From the input topic `source`, by `extractor`, to the output topic `sink`; `remembers` if there is a filter.

    `repartition` is set in both stages of a worker that has a middle topic: its partitions are where keys belong, in
    whichever inputs their events are. So the middle topic is the `source` of both, and inputs may come and go.
    """

    extractor: Extractor
    source: str
    sink: str
    remembers: bool
    repartition: RepartitionOptions | None = None

    @classmethod
    def of(cls, settings: Settings) -> "Meaning":
        """Return the meaning of these settings."""
        key = settings.key
        normalizing = normalizer(key.normalize, key.rules)
        repartition = settings.source.repartition
        tombstones = settings.source.tombstones
        parts = _parts(key)
        extractor = (
            Extractor.of_parts(parts, tombstones, normalizing, key.format, key.framing)
            if parts
            else Extractor(key.from_, (), tombstones, normalizing)
        )
        return cls(
            extractor,
            repartition.topic if repartition else settings.source.topic,
            settings.sink.topic,
            settings.filter.remembers,
            repartition,
        )

    @property
    def parts(self) -> Mapping[str, Any]:
        """Everything that it consists of, as plain JSON values."""
        normalizing = self.extractor.normalizer
        placement = {"placement": self.repartition.partitions} if self.repartition else {}
        format_, framing = self.extractor.format, self.extractor.framing
        return {
            "version": VERSION,
            "source": self.source,
            "sink": self.sink,
            "key": self._key,
            "normalize": normalizing.rules_id if normalizing else _WITHOUT,
            "filter": self.remembers,
            **placement,
            **({} if format_ == "json" else {"format": format_}),
            **({} if framing == "auto" else {"framing": framing}),
        }

    @property
    def name(self) -> str:
        """The name under which workers of this meaning join their group."""
        return f"{NAME_PREFIX}{self._digits[:NAME_DIGITS]}"

    @property
    def check(self) -> int:
        """The first 32 bits of the digest, which a note has room for."""
        return int(self._digits[:CHECK_DIGITS], 16)

    @cached_property
    def kin(self) -> frozenset[int]:
        """The checks of the meanings that differ in the format of values and its frame alone: the keys are the same."""
        others = (
            replace(self.extractor, format=format_, framing=framing)
            for format_ in get_args(Format)
            for framing in get_args(Framing)
        )
        return frozenset(replace(self, extractor=each).check for each in others) - {self.check}

    @property
    def identity_key(self) -> Mapping[str, Any]:
        """The field `key` of a snapshot's identity. It names no version 1: files from before the versions have it."""
        version = {} if VERSION == 1 else {"version": VERSION}
        return {**self._key, **version, **self._placement}

    @property
    def identity_normalize(self) -> str:
        """The field `normalize` of a snapshot's identity, which also names Python's tables of characters."""
        return self.extractor.normalizer.id if self.extractor.normalizer else _WITHOUT

    @property
    def _key(self) -> dict[str, Any]:
        extractor = self.extractor
        mixed = [{part.origin: list(part.names)} for part in extractor.mixed]
        return {
            "from": extractor.origin,
            "fields": list(extractor.fields),
            **({"parts": mixed} if mixed else {}),
            "tombstones": extractor.tombstones,
        }

    @property
    def _placement(self) -> dict[str, Any]:
        """The middle topic and its partitions, for an identity, whose own topic is the output; empty without one."""
        made = self.repartition
        return {"placement": {"topic": made.topic, "partitions": made.partitions}} if made else {}

    @cached_property
    def _digits(self) -> str:
        canonical = json.dumps(self.parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def _parts(key: KeyOptions) -> tuple[Part, ...]:
    """Return the parts of the key, each path in its one spelling; none of a key that is the record's key or value."""
    if key.parts:
        return tuple(
            Part("header", part.headers)
            if part.headers
            else Part("json", tuple(map(canonical, part.fields)))
            for part in key.parts
        )
    fields = (Part("json", (canonical(path),)) for path in key.paths)
    return (*fields, *(Part("header", (name,)) for name in key.headers))


def shown_check(check: int) -> str:
    """Return a check as the hex digits that the name begins with, after its prefix."""
    return f"{check:0{CHECK_DIGITS}x}"


def whose(assignor: str | None) -> str:
    """Return, for messages, who joins a group under this name; `assignor` is None if the broker has named none."""
    if assignor is None:
        return "not known yet, because the group rebalances"
    if assignor == NEW_PROTOCOL:
        return "another program, which joins groups by the protocol of KIP-848"
    if assignor == SHARE:
        return "a share group (KIP-932), which admits no worker, even if it is empty"
    if assignor.startswith(NAME_PREFIX):
        return "workers with another key, input, output, or with or without a filter"
    if assignor == STICKY:
        return "a worker of an older version or another aiokafka program"
    return "another program"
