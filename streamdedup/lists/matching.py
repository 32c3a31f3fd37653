"""Which entries of a list match a key: the key itself, and those that stand for its domain or a domain above it."""

from typing import Literal, NamedTuple

from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers.base import BELOW, EXACT, DomainNormalizer, Normalizer
from streamdedup.lists.control import control_entry
from streamdedup.lists.normalization import Normalizing

Kind = Literal["address", "domain"]
# What has an entry: the file of a list, or a change that has added it; or a change has removed it; or nothing has it.
Source = Literal["file", "change", "removed", "-"]

_SIGNS = b"@/"  # before the domain alone, of an address and of a URL


class Entry(NamedTuple):
    """An entry as it is written once normalized, which is also the record key of its single changes.

    A list holds it by `key`. The `kind` is that of `Match`: a whole key is an `address`, whatever it is.
    """

    text: bytes
    key: bytes
    kind: Kind


def kind_of(entry: bytes, normal: Normalizer | None) -> Kind:
    """Return the kind of a normalized entry of a list that has this normalizer."""
    has_mark = entry[:1] in (EXACT, BELOW)
    return "domain" if has_mark and isinstance(normal, DomainNormalizer) else "address"


def entry_of(text: bytes, normal: Normalizer | None) -> Entry:
    """Return the entry that somebody wrote as `text`. MalformedError if it is none."""
    written, key = control_entry(text, normal)
    return Entry(written, key, kind_of(written, normal))


def entries_of(key: bytes, normalizing: Normalizing) -> list[Entry]:
    """Return the entries that match a normalized key: first the key, then its domains, the longest first."""
    found, normal = [Entry(key, key, "address")], normalizing.normalizer()
    if not normalizing.knows_domains:
        return found
    _, domains = normalizing.candidates(Column.of([key]))
    for domain in map(bytes, filter(None, domains)):
        alone = domain[:1] in (_SIGNS[:1], _SIGNS[1:])
        text = EXACT + domain[1:] if alone else BELOW + domain
        try:
            entry = entry_of(text, normal)
        except MalformedError:  # no list can have it: such as .com, for addresses
            continue
        if entry.key == domain:
            found.append(entry)
    return found


def asked_for(text: bytes, normalizing: Normalizing) -> list[Entry]:
    """Return the entries about which a person asks by `text`: that entry, or those that match that key.

    MalformedError if it is neither.
    """
    normal = normalizing.normalizer()
    if kind_of(text.lstrip(), normal) == "domain":
        return [entry_of(text, normal)]
    try:
        key = normal.of_key(text) if normal else text
    except MalformedError:
        key = entry_of(text, normal).key  # which says what to write instead
    return entries_of(key, normalizing)
