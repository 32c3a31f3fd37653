"""How the secrets of filters are broken."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.commands.audit.read import Reading
from streamdedup.keys.hashing import MURMUR3, Hash
from streamdedup.rules.lists import Lists
from streamdedup.snapshot.header import Header, header_json

MUTANTS = (
    Mutant(
        "one-secret-for-all",
        "each filter draws a secret of its own",
        lambda: patch.object(Hash, "draw", classmethod(_constant)),
        ("test_empty_shards_draw_different_secrets",),
    ),
    Mutant(
        "secret-not-saved",
        "a restart keeps the secret of its snapshot",
        lambda: replaced(header_json, _without_secret),
        ("test_a_restart_keeps_the_secret_of_its_snapshot",),
    ),
    Mutant(
        "audit-by-murmur3",
        "an audit draws a secret of its own",
        lambda: replaced(Reading.__init__, _by_murmur3),
        ("test_an_audit_sees_what_collisions_cost",),
    ),
    Mutant(
        "lists-by-the-filters-hash",
        "lists are looked up by the hash that partitions share",
        lambda: replaced(Lists.ask, _as_given),
        ("test_a_list_of_murmur3_stands_over_filters_with_secrets",),
    ),
)

_init: Callable[..., None] = Reading.__init__
_ask = Lists.ask


def _constant(cls: type[Hash], *_: object) -> Hash:
    return cls("siphash", bytes(16), drawn=True)


def _without_secret(header: Header) -> bytes:
    return header_json(replace(header, secret=b""))


def _by_murmur3(self: Reading, cluster: Any, _: Hash, *rest: Any) -> None:
    _init(self, cluster, MURMUR3, *rest)


def _as_given(self: Lists, rows: Any, keys: Any, digests: Any, _: Hash) -> Any:
    return _ask(self, rows, keys, digests, self.hash)
