"""What mailbox providers treat as one address, by domain: `data/email_providers.tsv` has each rule with its source.

Rules that are switched off are left out here, so callers need not know the switches.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple
from zlib import crc32

from streamdedup.keys.options import EmailRules

NO_TAGS, SUBDOMAINS = "none", "."  # the latter after the character of a tag


class Provider(NamedTuple):
    """The rules of one domain.

    `domain` is the domain of the mailbox; `tag` is the character that begins a tag, empty if there are no tags.
    `has_subdomains`: a mailbox also has all addresses of the domain with its name before this one, as tags.
    """

    domain: str
    tag: str
    ignores_dots: bool
    has_subdomains: bool = False

    def local_part(self, text: str) -> str:
        """Return `text` without its dots and its tag, as far as they do not count.

        A tag stays if nothing else of the local part would be left.
        """
        if self.ignores_dots:
            text = text.replace(".", "")
        name = text.partition(self.tag)[0] if self.tag else text
        return name if name and not name.endswith(".") else text


@cache
def providers(rules: EmailRules) -> Mapping[str, Provider]:
    """Return the providers by domain, in lowercase; only those for which `rules` leave a rule on."""
    found = {}
    for line in _table().splitlines():
        if line.startswith("#"):
            continue
        domain, mailbox, tag, dots, _source = line.split("\t")
        provider = Provider(
            mailbox if rules.aliases else domain,
            tag.removesuffix(SUBDOMAINS) if rules.tags and tag != NO_TAGS else "",
            rules.dots and dots == "ignored",
            rules.tags and tag.endswith(SUBDOMAINS),
        )
        if provider != Provider(domain, "", ignores_dots=False):
            found[domain] = provider
    return found


@cache
def table_check() -> int:
    """Return the CRC-32 of the table."""
    return crc32(_table().encode())


def _table() -> str:
    return files("streamdedup.data").joinpath("email_providers.tsv").read_text(encoding="utf-8")
