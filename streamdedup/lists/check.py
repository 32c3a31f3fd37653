"""`lists check`: whether each key is blocked, and by which rule, in the order of a worker's rules."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamdedup.errors import ConfigError
from streamdedup.events import Column
from streamdedup.keys.hashing import MURMUR3
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.lists.build.blocks import LINE_BYTES_MAX, blocks
from streamdedup.lists.build.entries import TOO_LONG
from streamdedup.lists.exact_store import ExactStore
from streamdedup.lists.key_list import KeyList, load
from streamdedup.lists.verified_list import VerifiedList
from streamdedup.rules.lists import Answer, Answers, Match, Matches
from streamdedup.snapshot.files import OtherHashError
from streamdedup.units import escaped

_PLAIN = re.compile(rb"[ -~]*")
# Bytes that are no UTF-8, nor control characters anywhere.
_NO_TEXT = "".join(map(chr, range(0xDCA0, 0xDD00)))
_BLOCKED = {Match.ADDRESS: b"blocked\taddress", Match.DOMAIN: b"blocked\tdomain"}


class Verdicts:
    """Keys that `block` matches are blocked, unless its exact `store` does not hold them or `allow` exempts them.

    ConfigError if the two lists normalize keys differently.
    """

    def __init__(self, block: KeyList, allow: KeyList | None, store: ExactStore | None) -> None:
        self._block, self._allow = block, allow
        self._verified = None if store is None else VerifiedList(block, store)
        self._normalizer: Normalizer | None = block.normalizer()
        if allow is not None:
            allow.refuse_unless(self._normalizer)

    def of_lines(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the answers of `of_keys` for every line of `chunks`, empty ones included."""
        for block in blocks(chunks):
            yield self._verdict_lines(block.lines)

    def of_keys(self, keys: list[bytes]) -> bytes:
        """Return a line for each key: verdict, rule or reason, and the key, separated by tabs.

        The key is as it was given, but for control characters, which are escaped.
        """
        return self._verdict_lines(Column.of(keys)) if keys else b""

    def _verdict_lines(self, given: Column) -> bytes:
        long = (given.sizes > LINE_BYTES_MAX).nonzero()[0]  # these are cut
        keys, malformed = given.nulled(long), dict[int, str]()
        if self._normalizer is not None:
            keys, malformed = self._normalizer.of_column(keys)
        malformed |= dict.fromkeys(long.tolist(), TOO_LONG)
        rows = (keys.sizes >= 0).nonzero()[0]
        asked = keys.take(rows)
        verdicts = {
            int(row): _verdict(Match(blocked), Answer(answer), Match(allowed))
            for row, blocked, answer, allowed in zip(
                rows, *self._asked(asked), self._exempt(asked), strict=True
            )
        }
        verdicts |= {
            row: b"malformed\t" + escaped(reason).encode() for row, reason in malformed.items()
        }
        return b"".join(
            verdicts[row] + b"\t" + _shown((key or b"")[:LINE_BYTES_MAX]) + b"\n"
            for row, key in enumerate(given)
        )

    def _asked(self, keys: Column) -> tuple[Matches, Answers | list[int]]:
        if self._verified is None:
            return _matches(self._block, keys), [Answer.UNASKED] * len(keys)
        digests = self._block.hash.of_column(keys)
        return self._verified.verify(keys, digests)

    def _exempt(self, keys: Column) -> Matches | list[int]:
        return [0] * len(keys) if self._allow is None else _matches(self._allow, keys)


def _matches(listed: KeyList, keys: Column) -> Matches:
    return listed.match(keys, listed.hash.of_column(keys))


def _shown(key: bytes) -> bytes:
    """Return the key for a line: as it was given, but for what would end the line or steer a terminal."""
    if _PLAIN.fullmatch(key):
        return key
    text = key.decode("utf-8", "surrogateescape")
    return escaped(text, keep=_NO_TEXT).encode("utf-8", "surrogateescape")


def _verdict(blocked: Match, answer: Answer, allowed: Match) -> bytes:
    if allowed:
        return b"pass\tallowlist"
    if blocked:
        return _BLOCKED[blocked]
    return b"pass\tfalse-positive" if answer == Answer.FALSE_POSITIVE else b"pass\t-"


def loaded(path: Path, hash_key: bytes) -> KeyList:
    """Return the list at `path`, by `load`. Its errors name the option of the command line instead of `hash_key`."""
    try:
        return load(path, hash_key=hash_key)
    except OtherHashError as error:
        how = f"cannot use {path}: its hash is {error.name}"
        if hash_key and error.name == MURMUR3.name:
            raise ConfigError(f"{how}, which has no secret: leave out --hash-key-file") from None
        secret = "another secret than that of --hash-key-file" if hash_key else "a secret"
        raise ConfigError(
            f"{how} under {secret}: give the worker's configuration (-c my.yaml), or the file of the secret"
            " (--hash-key-file)"
        ) from None
    except ConfigError as error:
        raise ConfigError(re.sub(r"\bhash_key\b", "--hash-key-file", str(error))) from None
