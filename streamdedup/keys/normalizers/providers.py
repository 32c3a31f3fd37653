"""What mailbox providers take for one address, by domain: `data/email_providers.tsv`, where each rule has its source.

A rule that is switched off is left out here, so whoever asks knows nothing of switches.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple
from zlib import crc32

from streamdedup.keys.options import EmailRules

NO_TAGS = "none"


class Provider(NamedTuple):
    """`domain` is that of the mailbox, `tag` the character that a tag begins with, empty where there are no tags."""

    domain: str
    tag: str
    ignores_dots: bool

    def local_part(self, text: str) -> str:
        """Without dots and tag, as far as they do not count; a tag stays where no address would be left."""
        if self.ignores_dots:
            text = text.replace(".", "")
        name = text.partition(self.tag)[0] if self.tag else text
        return name if name and not name.endswith(".") else text


@cache
def providers(rules: EmailRules) -> Mapping[str, Provider]:
    """By domain, in small letters; only those of which `rules` leaves something."""
    found = {}
    for line in _table().splitlines():
        if line.startswith("#"):
            continue
        domain, mailbox, tag, dots, _source = line.split("\t")
        provider = Provider(
            mailbox if rules.aliases else domain,
            tag if rules.tags and tag != NO_TAGS else "",
            rules.dots and dots == "ignored",
        )
        if provider != (domain, "", False):
            found[domain] = provider
    return found


@cache
def table_check() -> int:
    """The CRC-32 of the table."""
    return crc32(_table().encode())


def _table() -> str:
    return files("streamdedup.data").joinpath("email_providers.tsv").read_text(encoding="utf-8")
