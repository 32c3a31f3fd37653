"""`lists inspect`: the whole header of a list's file, for a person, and whether the checksums hold.

The same for its exact store, if there is one.
"""

from pathlib import Path

from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.lists.exact_store import ExactStore, Owner, place_of, versions_in
from streamdedup.lists.facts import Facts, shown_rate
from streamdedup.snapshot import files
from streamdedup.snapshot.header import Header, field, number
from streamdedup.units import counted, escaped, sized

_WIDTH = 12


def inspected(path: Path) -> tuple[str, bool]:
    """Return the text, and whether the file and its store are whole. It needs no hash key.

    ConfigError or SnapshotError if there is no header to read.
    """
    with files.reading(path, mmap=True) as reader:
        header = reader.header
        if header.filter.get("kind") != files.LIST:
            raise ConfigError(
                f"cannot use {path}: it is a filter of kind {header.filter.get('kind')}, not a list"
            )
        rows, damage = _rows(header), ""
        try:
            reader.contents()
        except SnapshotError as error:
            damage = f"DO NOT HOLD: {error}"
    store, store_damage = _store(path, Owner.of_list(header.filter))
    facts = {**rows, "exact store": store, "checksums": damage or store_damage or "hold"}
    text = "".join(f"{name:{_WIDTH}} {escaped(value)}\n" for name, value in facts.items())
    return text, not (damage or store_damage)


def _store(path: Path, owner: Owner) -> tuple[str, str]:
    """Return what is known of the exact store, and what is wrong with it, both in words."""
    place, version = place_of(path), owner.version
    try:
        there = versions_in(place)
        if version not in there:
            return ("of another version of the list: it cannot be used" if there else "none"), ""
        store = ExactStore(place / version)
        store.refuse_other(owner)
    except ConfigError as error:
        return str(place / version), f"NOT OF THIS LIST: {error}"
    except SnapshotError as error:
        return str(place / version), f"DO NOT HOLD: {error}"
    return f"{counted(store.entries, 'key')}, {sized(store.size_bytes)}", ""


def _rows(header: Header) -> dict[str, str]:
    listed = header.filter
    facts, addresses = Facts.from_header(listed), field(listed, "addresses", dict)
    counts, kind = facts.counts, field(addresses, "kind", str)
    return {
        "name": facts.name,
        "version": facts.version,
        "built at": f"{facts.moment:%Y-%m-%d %H:%M:%S} UTC, by {header.writer}",
        "normalizer": facts.normalize,
        "hash": field(listed, "hash", str),
        "kind": f"{kind}, error rate {shown_rate(kind, field(addresses, 'error_rate', float))}",
        "addresses": f"{counts.addresses:,}",
        "domains": f"{counts.domains:,}",
        "left out": counts.left_out(kind),
        "size": _size(number(listed, "address_buffers", 0), header.buffer_sizes),
    }


def _size(of_addresses: int, sizes: tuple[int, ...]) -> str:
    addresses, domains = sum(sizes[:of_addresses]), sum(sizes[of_addresses:])
    beside = f", and {sized(domains)} of domains" if domains else ""
    return f"{sized(addresses)} of addresses{beside}"
