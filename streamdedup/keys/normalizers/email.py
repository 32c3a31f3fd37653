"""E-mail addresses: all ways to write one address become one key, by rules that are data (`providers`).

email-validator decides what an address is, and what its domain is in ASCII; it asks no DNS. It reads the
addresses that the kernel cannot: those that are not plain ASCII, or not addresses. A domain that IDNA 2008 refuses,
such as an emoji, is as it is on the wire, since mail is sent from it all the same. A reason never holds a part of the
address.
"""

import re
import unicodedata
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import email_validator
import idna

from streamdedup import forks
from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers import long_text
from streamdedup.keys.normalizers.address_limits import (
    ADDRESS_BYTES_MAX,
    LABELS_MAX,
    LOCAL_BYTES_MAX,
)
from streamdedup.keys.normalizers.base import (
    BELOW,
    EXACT,
    DomainEntry,
    characters_check,
    text_of,
    with_rest,
)
from streamdedup.keys.normalizers.providers import providers, table_check
from streamdedup.keys.options import EmailRules
from streamdedup.keys.steps import Steps, drained

VERSION = 1  # increased by every change of this module that could change a key
TOO_LONG = "the key is not an e-mail address: it is too long for one"
LONG_LOCAL = f"the key is not an e-mail address: the part before the @-sign has more than {LOCAL_BYTES_MAX} bytes"
# Held by the thread that reads an address. Several would take no less time, and together keep the GIL from the loop.
_TURN = forks.lock(forks.NORMALIZER)
_LABEL = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123, 2.1; after `xn--`, too
_PUNYCODE, _JOINERS = "xn--", "\u200c\u200d"
# What follows one of these in a message may be a piece of the address.
_QUOTING = re.compile(r": | \(|, ")


class EmailNormalizer:
    """Makes one key of all addresses that `rules` treat as one mailbox.

    Without any rule (`strict`) it only lowercases the address and makes its domain ASCII.
    """

    takes_long = True  # about 100 us for an international domain, and up to 1.6 ms

    def __init__(self, rules: EmailRules) -> None:
        self.rules = rules
        self._providers = providers(rules)

    @cached_property
    def id(self) -> str:
        """The version, the rules, the check of their table, and of the letters that Python and idna know."""
        letters = f"{characters_check(lowers=True):08x}, IDNA {idna.idnadata.__version__}"
        return f"{self.rules_id}, CRC-32 {letters}"

    @property
    def rules_id(self) -> str:
        """The version, the rules, and the check of their table."""
        table = f", table {table_check():08x}" if self._providers else ""
        return f"email {VERSION}, {self.rules.names}{table}"

    def of_key(self, key: bytes) -> bytes:
        """Return the normalized address. Raises MalformedError if the key is not an address."""
        return self._of_text(text_of(key).strip())

    def _of_long_key(self, key: memoryview) -> Steps[bytes]:
        """Return the same of a key that is long by its white space. All of it is read, and little of it kept."""
        text = ""
        for piece in long_text.stripped(long_text.texts_of(key)):
            text += piece if len(text) <= ADDRESS_BYTES_MAX else ""
            yield
        return self._of_text(text)

    def _of_text(self, text: str) -> bytes:
        local, domain = _validated(text)
        local = unicodedata.normalize("NFC", local.lower())
        if len(local.encode()) > LOCAL_BYTES_MAX:
            raise MalformedError(LONG_LOCAL)
        return self._as_provider(local, domain).encode()

    def of_column(self, keys: Column) -> tuple[Column, dict[int, str]]:
        """Return the normalized address of each row, and why a row has none, in ascending order.

        Nulls stay nulls.
        """
        return drained(self.steps(keys))

    def steps(self, keys: Column) -> Steps[tuple[Column, dict[int, str]]]:
        """Return the same, in steps."""
        from streamdedup.keys.normalizers.email_column import plain  # one key needs no kernels

        found = plain(keys, self.rules)
        return with_rest(found, keys, self.of_key, self._of_long_key)

    def of_domain_entry(self, entry: bytes) -> DomainEntry:
        """Return what a list holds for the entry `@example.com` or `.example.com`.

        If the domain is an alias, the second entry has two keys: addresses at the alias are normalized to the mailbox
        domain, but addresses at its subdomains are not. Raises MalformedError if the entry is not a domain.
        """
        text = text_of(entry).strip()
        name = text[1:]
        if text[:1] not in ("@", ".") or not name:
            raise MalformedError("the entry is not a domain: it must be @ or . followed by a name")
        try:
            domain = _validated(f"a@{name}").domain.encode()
        except MalformedError as error:
            if str(error) == TOO_LONG:
                raise
            raise MalformedError(
                "the entry is not a domain: it must be a name with a period, without scheme, port or path"
            ) from None
        if self._by_subdomain(domain.decode()):
            raise MalformedError(
                "the entry is the domain of one mailbox, whose name is its first label: write NAME@ and the rest"
            )
        if text[0] == ".":
            if domain.count(b".") >= LABELS_MAX:
                raise MalformedError(f"the entry is a domain of more than {LABELS_MAX} labels")
            mailbox = self._domain(domain.decode()).encode()
            keys = [domain] if mailbox == domain else [domain, EXACT + mailbox]
            return DomainEntry(BELOW + domain, keys)
        alone = EXACT + self._domain(domain.decode()).encode()
        return DomainEntry(alone, [alone])

    def _as_provider(self, local: str, domain: str) -> str:
        if by_subdomain := self._by_subdomain(domain):
            return by_subdomain
        provider = self._providers.get(domain)
        if provider is None:
            return f"{local}@{domain}"
        return f"{provider.local_part(local)}@{provider.domain}"

    def _by_subdomain(self, domain: str) -> str:
        """Return the mailbox of `any@user.fastmail.com`; empty if the domain is none of a provider's mailboxes."""
        name, _, parent = domain.partition(".")
        provider = self._providers.get(parent)
        return f"{name}@{provider.domain}" if provider and provider.has_subdomains else ""

    def _domain(self, domain: str) -> str:
        provider = self._providers.get(domain)
        return domain if provider is None else provider.domain


class _Address(NamedTuple):
    local: str
    domain: str  # in ASCII


def _validated(text: str) -> _Address:
    # A character has a byte or more, so most of what is long need not be encoded.
    if len(text) > ADDRESS_BYTES_MAX or len(text.encode()) > ADDRESS_BYTES_MAX:
        raise MalformedError(TOO_LONG)
    with _TURN:
        try:
            found = email_validator.validate_email(text, check_deliverability=False)
        except email_validator.EmailNotValidError as error:
            reason = _QUOTING.split(str(error), maxsplit=1)[0].rstrip(".")
        else:
            return _Address(found.local_part, found.ascii_domain)
        # Once more, with labels in the place of those that only IDNA 2008 refuses.
        local, _, domain = text.rpartition("@")
        if labels := _on_the_wire(domain):
            plain = ".".join("x" * len(label) if refused else label for label, refused in labels)
            with suppress(email_validator.EmailNotValidError):
                found = email_validator.validate_email(
                    f"{local}@{plain}", check_deliverability=False
                )
                return _Address(found.local_part, ".".join(label for label, _ in labels))
    raise MalformedError(f"the key is not an e-mail address: {reason}")


def _on_the_wire(domain: str) -> list[tuple[str, bool]]:
    """Return the labels of a domain in ASCII, and whether IDNA 2008 refuses each; none if it refuses none, or rightly.

    It refuses symbols, which UTS 46 knows and registries give away, and Punycode of anything that it would not write.
    """
    try:
        mapped = idna.uts46_remap(domain, std3_rules=True).split(".")
    except idna.IDNAError:
        return []
    labels = list(map(_label_on_the_wire, mapped))
    is_whole = all(_LABEL.fullmatch(label) for label, _ in labels)
    return labels if is_whole and any(refused for _, refused in labels) else []


def _label_on_the_wire(label: str) -> tuple[str, bool]:
    if label.isascii() and not label.startswith(_PUNYCODE):
        return label, False
    try:
        return idna.alabel(label).decode(), False
    except (idna.IDNAError, UnicodeError):
        pass
    if label.isascii():
        return label, True
    if unicodedata.category(label[0]).startswith("M") or any(char in _JOINERS for char in label):
        return "", True
    return _PUNYCODE + label.encode("punycode").decode(), True
