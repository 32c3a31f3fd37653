"""The host of a URL as lists match it: one spelling for all that clients take for one host.

It is what the host parser of the WHATWG's URL standard makes of a URL that `url` has normalized. It goes beyond that
where clients disagree, so that no way to write a host gets around a list:

- letters of which IDNA 2003, by which `url` makes hosts ASCII, has another opinion are as there, and none in Punycode;
- dots at the end are dropped, and so is the zone of an IPv6 address; one that maps an IPv4 address is that one;
- a host that the standard refuses stays as it is written, since other clients may look it up.
"""

import re
import unicodedata
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import unquote_to_bytes

import idna

from streamdedup import forks
from streamdedup.errors import MalformedError
from streamdedup.keys.normalizers.address_limits import LABELS_MAX
from streamdedup.keys.normalizers.base import BELOW, EXACT, DomainEntry, text_of

SIGN = b"/"  # begins the key of a host alone, as it stands in a URL
# RFC 1035, 2.3.4. What is longer is no name, and to decode Punycode takes a time that grows with the square.
NAME_CHARACTERS_MAX, LABEL_CHARACTERS_MAX = 253, 63
# `url` makes Punycode of letters that are not seen, too: at most 13 characters of 3 that a browser takes for one.
DECODED_CHARACTERS_MAX = 5 * NAME_CHARACTERS_MAX

_AUTHORITY = re.compile(rb"[^/?#\\]*")
# All letters that IDNA 2003 reads otherwise than UTS 46.
_OLDER_IDNA = str.maketrans({"ß": "ss", "\u03c2": "\u03c3"} | dict.fromkeys("\u1806\u200c\u200d"))
_NUMBER = re.compile("[0-9]+|0x[0-9a-f]*")
_NAME = re.compile(r"[a-z0-9_.\u0080-\U0010ffff-]+")
_WWW = "www."
# Held by the thread that reads a host. Several would take no less time, and together keep the GIL from the loop.
_TURN = forks.lock(forks.NORMALIZER)


def authority_of(url: bytes) -> bytes:
    """Return user, host and port of a normalized URL."""
    found = _AUTHORITY.match(url, url.find(b"//") + 2)
    return found[0] if found else b""


def cell_of(authority: bytes, *, drops_www: bool) -> bytes:
    """Return the host after a SIGN; `domains.candidates` makes the keys of it."""
    place = authority.rpartition(b"@")[2].decode(errors="replace")
    end = place.find("]") + 1 if place.startswith("[") else place.find(":")
    with _TURN:
        host = canonical(place[:end] if end > 0 else place)
    return SIGN + (without_www(host) if drops_www else host).encode()


def of_host_entry(entry: bytes, *, drops_www: bool) -> DomainEntry:
    """Return what a list holds for the entry `@example.com`, that host alone, or `.example.com`, also those below it.

    With `drops_www`, as in the keys, `www.example.com` is `example.com`; the domains below it are not below the other.
    Raises MalformedError if the entry is not a host.
    """
    text = text_of(entry).strip()
    mark, name = text[:1].encode(), text[1:]
    if mark not in (EXACT, BELOW) or not name:
        raise MalformedError("the entry is not a host: it must be @ or . followed by a host")
    if len(name) > NAME_CHARACTERS_MAX:
        raise MalformedError("the entry is not a host: it is too long for one")
    with _TURN:
        host = canonical(name)
    if not (is_ip(host) or _is_name(host)):
        raise MalformedError(
            "the entry is not a host: it must be a name or an IP address, without scheme, user, port or path"
        )
    alone = (without_www(host) if drops_www else host).encode()
    if mark == EXACT:
        return DomainEntry(EXACT + alone, [SIGN + alone])
    if is_ip(host):
        raise MalformedError("the entry is an IP address, and no host is below one; write @ADDRESS")
    if host.count(".") >= LABELS_MAX:
        raise MalformedError(f"the entry is a host of more than {LABELS_MAX} labels")
    tree = host.encode()
    return DomainEntry(BELOW + tree, [tree] if alone == tree else [tree, SIGN + alone])


def canonical(host: str) -> str:
    """Return the one spelling of `host`, as described above: an IPv6 address in brackets, any other host without."""
    if host.startswith("[") and host.endswith("]"):
        return _ip6(host.lower())
    name = _mapped(unquote_to_bytes(host).decode(errors="replace")).rstrip(".")
    if "xn--" in name and len(name) <= DECODED_CHARACTERS_MAX:
        # Twice: what is not seen may stand in an `xn--`, and `url` makes Punycode of that.
        name = ".".join(_letters(_letters(label)) for label in name.split(".")).rstrip(".")
    return _ip4(name) if _NUMBER.fullmatch(name.rpartition(".")[2]) else name


def without_www(host: str) -> str:
    """Return the host without each `www.` that another name with a dot follows."""
    at = 0
    while host.startswith(_WWW, at) and host.find(".", at + len(_WWW)) > 0:
        at += len(_WWW)
    return host[at:]


def is_ip(host: str) -> bool:
    """Return whether `host`, which is canonical, is an IP address."""
    try:
        if host.startswith("[") and host.endswith("]"):
            IPv6Address(host[1:-1])
        else:
            IPv4Address(host)
    except AddressValueError:
        return False
    return True


def _is_name(host: str) -> bool:
    """Return whether all clients take a host, which is canonical, for a name."""
    labels = host.split(".")
    return (
        all(labels)
        and not _NUMBER.fullmatch(labels[-1])
        and not any(label.startswith("xn--") for label in labels)
        and _NAME.fullmatch(host) is not None
        and all(char.isascii() or _is_valid(char) for char in host)
    )


def _ip6(host: str) -> str:
    try:
        address = IPv6Address(host[1:-1].partition("%")[0])
    except AddressValueError:
        return host
    inner = address.ipv4_mapped
    return f"[{address}]" if inner is None else str(inner)


def _ip4(name: str) -> str:
    """Return the address in four numbers; the name as it is if it is none.

    It is written in one to four numbers, of which the last fills up what the others leave; 0x is before hexadecimal
    digits, and 0 before octal ones.
    """
    parts = name.split(".")
    try:
        *first, last = map(_number, parts)
        if len(first) > 3 or any(number > 255 for number in first):
            raise ValueError
        address = sum(number << 8 * (3 - at) for at, number in enumerate(first))
        if last >= 1 << 8 * (4 - len(first)):
            raise ValueError
        return str(IPv4Address(address + last))
    except ValueError:
        return name


def _number(part: str) -> int:
    if not _NUMBER.fullmatch(part):
        raise ValueError
    base = 16 if part.startswith("0x") else 8 if part.startswith("0") else 10
    digits = part.removeprefix("0x").lstrip("0") or "0"
    return int(digits[:16], base)  # 16 of them are too much for an address, by any base


def _letters(label: str) -> str:
    """Return a label that is in Punycode as letters. One that stands for none stays as it is."""
    if not label.startswith("xn--") or len(label) > LABEL_CHARACTERS_MAX:
        return label
    try:
        decoded = label[4:].encode("ascii").decode("punycode")
        decoded.encode()
    except UnicodeError:
        return label
    found = _mapped(decoded)
    return label if decoded.isascii() or "." in found else found


def _mapped(text: str) -> str:
    """Return `text` with the one form of each letter (UTS 46), and without what is not seen; others stay."""
    if text.isascii():
        return text.lower()
    try:
        found = idna.uts46_remap(text, std3_rules=False)
    except idna.IDNAError:
        found = "".join(map(_mapped_character, text))
    return unicodedata.normalize("NFC", found.translate(_OLDER_IDNA))


@lru_cache(maxsize=4096)
def _mapped_character(char: str) -> str:
    try:
        return idna.uts46_remap(char, std3_rules=False)
    except idna.IDNAError:
        return char


@lru_cache(maxsize=4096)
def _is_valid(char: str) -> bool:
    try:
        return idna.uts46_remap(char, std3_rules=True) == char
    except idna.IDNAError:
        return False
