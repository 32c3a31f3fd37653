"""E-mail addresses: all ways to write one are one key, by rules that are data (`providers`).

What an address is, and its domain in ASCII, says email-validator, without DNS. It is asked where the kernel does not
know: of what is not plain ASCII, or no address. A reason never holds a part of the address.
"""

import re
import unicodedata
from functools import cache, cached_property

import email_validator
import idna

from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.cells import completed
from streamdedup.keys.normalizers.base import characters_check, text_of, unknown
from streamdedup.keys.normalizers.labels import LABELS_MAX
from streamdedup.keys.normalizers.providers import providers, table_check
from streamdedup.keys.options import EmailRules

VERSION = 1  # of what is done here; another one where any key could become another
ADDRESS_BYTES_MAX = 1016  # no address has more than 254 characters
TOO_LONG = "the key is no e-mail address: it is too long for one"
EXACT, BELOW = (
    b"@",
    b".",
)  # what an entry for a domain begins with: that domain alone, or all below it, too
_QUOTING = re.compile(r": | \(|, ")  # what follows it in a message may be a piece of the address


class EmailNormalizer:
    """Addresses as their providers tell them apart, as far as `rules` asks for it; `strict` where that is nothing."""

    takes_long = True  # some 100 us for an international domain

    def __init__(self, rules: EmailRules) -> None:
        self.rules = rules
        self._providers = providers(rules)

    @cached_property
    def id(self) -> str:
        """As `Normalizer.id`: the rules, their table, and the letters that Python and idna know."""
        table = f", table {table_check():08x}" if self._providers else ""
        letters = f"{characters_check(lowers=True):08x}, IDNA {idna.idnadata.__version__}"
        return f"email {VERSION}, {self.rules.names}{table}, CRC-32 {letters}"

    def of_key(self, key: bytes) -> bytes:
        """As `Normalizer.of_key`."""
        address = _validated(text_of(key).strip())
        local = unicodedata.normalize("NFC", address.local_part.lower())
        return self._as_provider(local, address.ascii_domain).encode()

    def of_column(self, keys: Column) -> tuple[Column, dict[int, str]]:
        """As `Normalizer.of_column`."""
        from streamdedup.keys.normalizers.email_column import plain  # which brings numba

        found = plain(keys, self.rules)
        return completed(found, unknown(found, keys), cache(self.of_key), keys)

    def of_domain_entry(self, entry: bytes) -> list[bytes]:
        """The keys, of those in `domains.candidates`, by which `@example.com` or `.example.com` is held in a list.

        The first stands for that domain alone, the second for it and all below it. Two where the domain is an alias:
        its addresses are those of the other domain then, and what is below it is not below that. Raises
        MalformedError.
        """
        text = text_of(entry).strip()
        name = text[1:]
        if text[:1] not in ("@", ".") or not name:
            raise MalformedError("the entry is no domain: it is not @ or . and a name")
        domain = _validated(f"a@{name}").ascii_domain.encode()
        if text[0] == ".":
            if domain.count(b".") >= LABELS_MAX:
                raise MalformedError(f"the entry is a domain of more than {LABELS_MAX} labels")
            mailbox = self._domain(domain.decode()).encode()
            return [domain] if mailbox == domain else [domain, EXACT + mailbox]
        return [EXACT + self._domain(domain.decode()).encode()]

    def _as_provider(self, local: str, domain: str) -> str:
        provider = self._providers.get(domain)
        if provider is None:
            return f"{local}@{domain}"
        return f"{provider.local_part(local)}@{provider.domain}"

    def _domain(self, domain: str) -> str:
        provider = self._providers.get(domain)
        return domain if provider is None else provider.domain


def _validated(text: str) -> email_validator.ValidatedEmail:
    if len(text) > ADDRESS_BYTES_MAX:
        raise MalformedError(TOO_LONG)
    try:
        return email_validator.validate_email(text, check_deliverability=False)
    except email_validator.EmailNotValidError as error:
        reason = _QUOTING.split(str(error), maxsplit=1)[0].rstrip(".")
        raise MalformedError(f"the key is no e-mail address: {reason}") from None
