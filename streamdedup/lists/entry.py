"""What an entry of a list is: the key or the domains that it stands for, and what is written otherwise here.

An entry that no key could match must not stand on a list in silence. So a wildcard is refused, although an address or
a URL may have such characters, and a reason says how an entry is written. No reason quotes the entry.
"""

import re
from ipaddress import ip_address
from typing import Literal
from urllib.parse import unquote

from streamdedup.errors import MalformedError
from streamdedup.keys.normalizers.base import BELOW, EXACT, DomainNormalizer
from streamdedup.keys.normalizers.url import UrlNormalizer

# What the entries of an input are: keys; addresses with a name or `mailto:`; domains; lines of a hosts file or filter.
EntriesAs = Literal["addresses", "mailboxes", "domains", "hosts"]
MARKS = EXACT.decode(), BELOW.decode()
WILD, WILD_IN_URLS = b"*%?", b"*%"  # of these bytes, every entry with a wildcard has one
HINTED_CHARACTERS_MAX = 1_000  # what is longer is no entry that somebody wrote

_WRITE = "write @bad.example for all {of} of one {domain}, or .bad.example for those of it and of {domain}s below it"
_ADDRESSES = _WRITE.format(of="addresses", domain="domain")
_URLS = _WRITE.format(of="URLs", domain="host")
_BARE = re.compile(r"[^\W_](?:[\w-]*[^\W_])?(?:\.[^\W_](?:[\w-]*[^\W_])?)+\.?")
_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
# The name before the address may be quoted, and hold anything then.
_NAMED = re.compile(r'(?:[^<>"]|"(?:[^"\\]|\\.)*")*<([^<>]*)>\s*')
_MAILTO = "mailto:"

_COMMENT = re.compile(r"(?:^|\s)#.*")
_FILTER_COMMENT = re.compile(r"!.*|\[adblock[^\]]*\]", re.IGNORECASE)
_FILTER = re.compile(r"\|\|([^\^/*$|\s]+)\^(?:\$(?:important|all))?")
_NOWHERE = frozenset(("0.0.0.0", "127.0.0.1", "::", "::1", "0"))  # noqa: S104 - no address that is bound
# The names that every hosts file begins with: those of the machine itself, at addresses of several kinds.
_OWN_NAMES = frozenset(
    (
        *("localhost", "localhost.localdomain", "local", "broadcasthost", "0.0.0.0"),  # noqa: S104
        *("ip6-localhost", "ip6-loopback", "ip6-localnet", "ip6-mcastprefix"),
        *("ip6-allnodes", "ip6-allrouters", "ip6-allhosts"),
    )
)


def wildcard(entry: str, normal: DomainNormalizer) -> str:
    """Return why `entry`, an address or a URL, is malformed if it is written as a pattern; else an empty text."""
    is_url = isinstance(normal, UrlNormalizer)
    if not (_is_wild_url(entry) if is_url else _is_wild_address(entry)):
        return ""
    how = _URLS if is_url else _ADDRESSES
    return f"the entry has a wildcard, which would match nothing: {how}"


def hinted(reason: str, entry: str, normal: DomainNormalizer, *, in_build: bool = True) -> str:
    """Return `reason`, for which `entry` is malformed, or a better one if it is plain what the entry stands for.

    `in_build`: the reason may name options of `lists build`.
    """
    text, is_url = entry.strip(), isinstance(normal, UrlNormalizer)
    how = _URLS if is_url else _ADDRESSES
    if not 0 < len(text) <= HINTED_CHARACTERS_MAX:
        return reason
    if wild := wildcard(text, normal):
        return wild
    if _BARE.fullmatch(text) and (is_url or not text[-1].isdecimal()):
        return f"the entry is a {'host' if is_url else 'domain'} without a mark: {how}"
    if text.startswith("||") or text.split(maxsplit=1)[0] in _NOWHERE:
        remedy = "build with --entries hosts" if in_build else how
        return f"the entry is a line of a hosts file or a filter list: {remedy}"
    if not is_url and (text[: len(_MAILTO)].lower() == _MAILTO or _NAMED.fullmatch(text)):
        alone = "write the address alone, as in b@example.com"
        remedy = "build with --entries mailboxes" if in_build else alone
        return f"the entry has a name or mailto: beside the address: {remedy}"
    return reason


def bare_address(entry: str) -> str:
    """Return the address of `Anna <a@b.example>` or `mailto:a@b.example`; any other entry as it is.

    Raises MalformedError if there is none, as in `a@b.example <>` and `mailto:?to=a@b.example`.
    """
    text = entry.strip()
    if len(text) > HINTED_CHARACTERS_MAX:
        return entry
    if named := _NAMED.fullmatch(text):
        text = named[1].strip()
    if text[: len(_MAILTO)].lower() == _MAILTO:
        address = unquote(text[len(_MAILTO) :].removeprefix("//").partition("?")[0])
    elif named:
        address = text
    else:
        return entry
    if not address.strip():
        raise MalformedError("the entry has no address between < and >, or after mailto:")
    return address


def marked(entry: str, entries: EntriesAs) -> list[str]:
    """Return the marked domains that an entry of `domains` or `hosts` stands for; none if it is a comment.

    Raises MalformedError if it is no such entry; whether the domains are domains is not looked into.
    """
    text = entry.strip()
    if entries == "hosts":
        return _of_hosts(text)
    if text.startswith(MARKS):
        return [text]
    _refuse_address(text, "domain")
    return [EXACT.decode() + text.removesuffix(".")]


def _refuse_address(text: str, each: str) -> None:
    if "@" in text and "://" not in text:
        raise MalformedError(
            f"the entry is an address, and with --entries {each}s each is a {each}: build with --entries addresses, and"
            " write the domains as @bad.example"
        )


def _of_hosts(text: str) -> list[str]:
    text = _COMMENT.sub("", text).strip()
    if not text or _FILTER_COMMENT.fullmatch(text):
        return []
    if text.startswith("@@"):
        raise MalformedError("the entry is an exception of a filter list: put it on an allowlist")
    if text.startswith("|"):
        if (found := _FILTER.fullmatch(text)) is None:
            raise MalformedError(
                "the entry is a filter of more than a host: of filter lists only ||bad.example^ is read"
            )
        return [BELOW.decode() + found[1]]
    first, *names = text.split()
    if not names:
        if not first.startswith(MARKS):
            _refuse_address(first, "host")
        return [first if first.startswith(MARKS) else EXACT.decode() + first.removesuffix(".")]
    if first not in _NOWHERE and not _is_ip(first):
        raise MalformedError(
            "the entry is no line of a hosts file: its first word is not an IP address"
        )
    names = [name for name in names if name.lower() not in _OWN_NAMES]
    if names and first not in _NOWHERE:
        raise MalformedError(
            "the entry leads a host to an address that is not 0.0.0.0, 127.0.0.1, :: or ::1, so it does not block it"
        )
    return [EXACT.decode() + name for name in names]


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_wild_address(text: str) -> bool:
    local, _, domain = text.strip().rpartition("@")
    return (
        "*" in text or "?" in local or "%" in domain or local.startswith("%") or local.endswith("%")
    )


def _is_wild_url(text: str) -> bool:
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        scheme, rest = "", text.strip()
    place, *tail = re.split(r"[/?#&=\\]", rest)
    return (
        "*" in scheme + place
        or _NO_ESCAPE.search(place) is not None
        or any(part.startswith("*") or part.endswith(("*", "%")) for part in tail)
    )
