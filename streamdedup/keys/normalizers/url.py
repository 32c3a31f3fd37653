"""URLs of the web: all ways to write one that `canonicalize_url` of w3lib 2.5.0 treats as one become one key.

The rules are those of that version, frozen as `url/1` in code of our own, because an upgrade of a library must not
change a key. The tests hold them against w3lib. They are applied once: what they make is not always their own result
(`/%%34%31` becomes `/%41`, and that `/A`). A reason never holds a part of the URL.
"""

import re
import unicodedata
from encodings import idna
from ipaddress import AddressValueError, IPv6Address
from typing import NoReturn
from urllib.parse import quote, quote_plus, unquote_to_bytes

from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers import long_text
from streamdedup.keys.normalizers.base import DomainEntry, text_of, with_rest
from streamdedup.keys.normalizers.hosts import of_host_entry
from streamdedup.keys.normalizers.tracking import is_tracking, table_check
from streamdedup.keys.options import UrlRules
from streamdedup.keys.steps import Steps, drained

VERSION = "url/1"  # increased by every change that could change a key
# RFC 9110, 4.1: all should support 8,000. Web servers refuse more, and a bound makes a key's time a bound one.
URL_BYTES_MAX = 8_192
# A name has at most 253 (RFC 1035, 2.3.4). What other alphabets take grows with the square.
AUTHORITY_CHARACTERS_MAX = 253
LABEL_CHARACTERS_MAX = 63
PORT_MAX = 65_535
_PORTS = {"http:": ":80", "https:": ":443"}
NO_HOST, WRONG_HOST, HOST_TOO_LONG = (
    "it has no host",
    "its host is not valid",
    "its host is too long",
)
# A browser takes the backslash for the begin of the path; curl takes what is before the @ for a user.
TWO_HOSTS = "a backslash is before an @, so clients disagree about its host"
# A browser unescapes first, and orders marks last; w3lib makes Punycode of an escape, and orders marks first.
TWO_NAMES = (
    "its host has an escape, or a combining iota, and is not ASCII, so clients disagree about it"
)
TOO_LONG = f"the key is not a URL: it has more than {URL_BYTES_MAX:,} bytes"

CONTROLS_AND_SPACE = "".join(map(chr, range(0x21)))
# What stays as it is: in a path and a fragment; in a path that was unescaped; in the part before an @.
_SAFE = "!$%&'()*+,/:;=?@"
_PATH_SAFE = _SAFE + "[]|"
_USER_SAFE = "!$&'()*+,"
_KEPT_ESCAPES = re.compile("%(25|2[Ff]|3[BbFf])")  # of % / ; ?, which mean something in a path
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_DELIMITERS = re.compile(r"[/?#@:\\]")
_IP_OF_THE_FUTURE = re.compile(r"v[a-fA-F0-9]+\..+")
_DOTS = re.compile("[.\u3002\uff0e\uff61]")
_BLANKS = re.compile(r"[\t\n\r]")
_DISPUTED = re.compile("[%\u0345]")  # U+0345 is the only mark that becomes a letter


class UrlNormalizer:
    """Makes one key of all URLs that w3lib treats as one, and of those that `rules` do."""

    takes_long = True  # some 10 us, and up to some ms, for what no kernel can read

    def __init__(self, rules: UrlRules) -> None:
        self.rules = rules

    @property
    def id(self) -> str:
        """The version, the rules, the check of their table, and Python's version of Unicode, which hosts depend on."""
        return f"{self.rules_id}, Unicode {unicodedata.unidata_version}"

    @property
    def rules_id(self) -> str:
        """The version, the rules that are on, and the check of their table."""
        rules = f", {self.rules.names}" if self.rules.names else ""
        table = f", table {table_check():08x}" if self.rules.tracking else ""
        return f"{VERSION}{rules}{table}"

    def of_key(self, key: bytes) -> bytes:
        """Return the normalized URL. Raises MalformedError if the key is not a URL of the web."""
        return self._of_text(text_of(key).strip(CONTROLS_AND_SPACE))

    def _of_long_key(self, key: memoryview) -> Steps[bytes]:
        """Return the same of a key that is long by what is around it. All of it is read, and little of it kept."""
        text = ""
        for piece in long_text.stripped(long_text.texts_of(key), CONTROLS_AND_SPACE):
            text += piece if len(text) <= URL_BYTES_MAX else ""
            yield
        return self._of_text(text)

    def _of_text(self, text: str) -> bytes:
        if len(text) > URL_BYTES_MAX or len(text.encode()) > URL_BYTES_MAX:
            raise MalformedError(TOO_LONG)
        return canonical(text, self.rules).encode()

    def of_column(self, keys: Column) -> tuple[Column, dict[int, str]]:
        """Return the normalized URL of each row, and why a row has none, in ascending order.

        Nulls stay nulls.
        """
        return drained(self.steps(keys))

    def steps(self, keys: Column) -> Steps[tuple[Column, dict[int, str]]]:
        """Return the same, in steps."""
        from streamdedup.keys.normalizers.url_column import plain  # one key needs no kernels

        return with_rest(plain(keys, self.rules), keys, self.of_key, self._of_long_key)

    def of_domain_entry(self, entry: bytes) -> DomainEntry:
        """Return what a list holds for the entry `@example.com` or `.example.com`: hosts of URLs.

        Raises MalformedError if the entry is not a host.
        """
        return of_host_entry(entry, drops_www=self.rules.www)


def canonical(url: str, rules: UrlRules) -> str:
    """Return the normalized form of `url`, which has no white space at its ends.

    Raises MalformedError if it is not a URL of the web, or w3lib refuses it.
    """
    url = _BLANKS.sub("", url)
    scheme = _SCHEME.match(url)
    name = scheme[0].lower() if scheme else ""
    if not name:
        _refuse("it has no scheme: write http:// or https:// before it" if url else "it is empty")
    if name not in ("http:", "https:"):
        _refuse("its scheme is not http or https")
    authority, path, query, fragment = _split(url[len(name) :])
    path, _, parameters = _parameters_cut(path)
    path = _path(path)
    if rules.slash and not parameters:
        path = path.rstrip("/") or "/"
    return "".join(
        (
            "http://" if rules.scheme else f"{name}//",
            _authority(authority, name, rules),
            path,
            f";{quote(parameters, _SAFE)}" if parameters else "",
            f"?{query}" if query and (query := _query(query, rules)) else "",
            f"#{quote(fragment, _SAFE)}" if rules.fragments and fragment else "",
        )
    )


def _split(rest: str) -> tuple[str, str, str, str]:
    """Return the authority, the path, the query and the fragment of what follows a scheme."""
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    if "@" in rest[2:].partition("/")[0].partition("\\")[2]:
        _refuse(TWO_HOSTS)
    rest = rest.replace("\\", "/")
    if not rest.startswith("//"):
        _refuse(NO_HOST)
    authority, slash, path = rest[2:].partition("/")
    return authority, slash + path, query, fragment


def _authority(authority: str, scheme: str, rules: UrlRules) -> str:
    """Return the user with its password, the host and the port, each normalized; `scheme` has its colon."""
    if not authority.isascii():
        if len(authority) > AUTHORITY_CHARACTERS_MAX:
            _refuse(HOST_TOO_LONG)
        bare = re.sub("[@:#?]", "", authority)
        composed = unicodedata.normalize("NFKC", bare)
        if len(composed) > AUTHORITY_CHARACTERS_MAX:
            _refuse(HOST_TOO_LONG)
        if composed != bare and _DELIMITERS.search(composed):
            _refuse(WRONG_HOST)
    user, sign, place = authority.rpartition("@")
    host, port = _bracketed(authority, place) if re.search(r"[][]", authority) else _parted(place)
    if not host:
        _refuse(NO_HOST)
    if not host.isascii() and _DISPUTED.search(host):
        _refuse(TWO_NAMES)
    host, percent, zone = host.partition("%")
    host = _host(f"{host.lower()}{percent}{zone}").lower()
    if rules.dot:
        host = host.rstrip(".") or "."
    if rules.www and "." in host[4:].rstrip("."):
        host = host.removeprefix("www.")
    port = _port(port)
    if rules.port and port == _PORTS[scheme]:
        port = ""
    return f"{_user(user)}{sign}{host}{port}"


def _parted(place: str) -> tuple[str, str]:
    host, _, port = place.partition(":")
    return host, port


def _bracketed(authority: str, place: str) -> tuple[str, str]:
    """Return host and port if the authority has brackets: they must hold an IPv6 address, or one of the future."""
    before, opened, rest = place.partition("[")
    host, _, port = rest.partition("]") if opened else place.partition(":")
    well_placed = "[" in authority and "]" in authority and not (opened and before)
    if not well_placed or (opened and port and not port.startswith(":")):
        _refuse(WRONG_HOST)
    if host[:1] in ("v", "V"):
        if not _IP_OF_THE_FUTURE.fullmatch(host):
            _refuse(WRONG_HOST)
    else:
        _ip(host)
    return (host, port[1:]) if opened else ("", "")


def _host(host: str) -> str:
    if ":" in host:
        if not host.isascii():
            _refuse(WRONG_HOST)
        return f"[{host if host.startswith('v') else _shortest(_ip(host))}]"
    if host.isascii():
        return host
    try:
        return _in_ascii(unicodedata.normalize("NFKC", host))
    except UnicodeError:  # no name, which w3lib leaves as it is
        return host


def _in_ascii(host: str) -> str:
    """Return the host by IDNA 2003. Raises UnicodeError if it is no name.

    Python's codec does so, too, but encodes a label of any length, in a time that grows with the square, before it
    refuses one that is too long.
    """
    if not host.isascii():
        for label in _DOTS.split(host):
            if len(label) > LABEL_CHARACTERS_MAX < len(idna.nameprep(label)):
                raise UnicodeError("label too long")
    return host.encode("idna").decode()


def _ip(host: str) -> IPv6Address:
    try:
        return IPv6Address(host)
    except AddressValueError:
        _refuse(WRONG_HOST)


def _shortest(address: IPv6Address) -> str:
    """Return the address as `str` does up to Python 3.12; later ones write the end of a mapped one with dots."""
    if address.ipv4_mapped is None:
        return str(address)
    zone = f"%{address.scope_id}" if address.scope_id else ""
    low = int(address) & 0xFFFFFFFF
    return f"::ffff:{low >> 16:x}:{low & 0xFFFF:x}{zone}"


def _user(user: str) -> str:
    name, colon, password = user.partition(":")
    return f"{_quoted(name)}{colon}{_quoted(password)}"


def _quoted(part: str) -> str:
    return quote(unquote_to_bytes(part), _USER_SAFE)


def _port(port: str) -> str:
    if not port:
        return ""
    number = port.lstrip("0") or "0"
    if not re.fullmatch("[0-9]{1,5}", number) or int(number) > PORT_MAX:
        _refuse(f"its port is not a number from 0 to {PORT_MAX}")
    return f":{number}"


def _parameters_cut(path: str) -> tuple[str, str, str]:
    """Part the last segment at its first semicolon."""
    last = path.rfind("/") + 1
    segment, semicolon, parameters = path[last:].partition(";")
    return path[:last] + segment, semicolon, parameters


def _path(path: str) -> str:
    """Return the path with the escapes that it needs and no others, and without dot segments."""
    if "%" in path:
        path = _KEPT_ESCAPES.sub(lambda escape: "%25" + escape[1].upper(), path)
        path = quote(unquote_to_bytes(path), _PATH_SAFE)
    else:
        path = quote(path, _PATH_SAFE)
    return _without_dot_segments(path) if "/." in path else path or "/"


def _without_dot_segments(path: str) -> str:
    *segments, last = path[1:].split("/")
    kept: list[str] = []
    for segment in (*segments, *([last, ""] if last in (".", "..") else ())):
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if last not in (".", ".."):
        kept.append(last)
    return "/" + "/".join(kept)


def _query(query: str, rules: UrlRules) -> str:
    """Return the parameters, each with the escapes that it needs, in the order of their names, then values.

    With `rules.order` they keep theirs.
    """
    pairs = [
        (_plain(name), _plain(value))
        for name, _, value in (part.partition("=") for part in query.split("&") if part)
    ]
    if rules.tracking:
        pairs = [pair for pair in pairs if not is_tracking(pair[0])]
    if rules.ignore:
        pairs = [
            pair for pair in pairs if pair[0].lower().decode(errors="replace") not in rules.ignore
        ]
    in_order = pairs if rules.order else sorted(pairs)
    return "&".join(f"{_escaped(name)}={_escaped(value)}" for name, value in in_order)


def _plain(part: str) -> bytes:
    return unquote_to_bytes(part.replace("+", " ")) if "%" in part or "+" in part else part.encode()


def _escaped(part: bytes) -> str:
    return part.decode() if part.isalnum() else quote_plus(part)


def _refuse(why: str) -> NoReturn:
    raise MalformedError(f"the key is not a URL: {why}")
