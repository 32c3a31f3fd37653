"""Claims about the tables of providers and of tracking parameters: each is consistent, and each row has a source."""

import re
from importlib.resources import files
from urllib.parse import urlsplit

from streamdedup.keys.normalizers.providers import providers
from streamdedup.keys.normalizers.tracking import is_tracking, tracking_names
from tests.keys.test_email import PROVIDER, STRICT


def test_the_table_of_providers_is_consistent() -> None:
    """A domain once, in small letters; an alias leads to a mailbox and no further; a source for each."""
    text = files("streamdedup.data").joinpath("email_providers.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    by_domain = {row[0]: row for row in rows}
    assert len(by_domain) == len(rows)
    for domain, mailbox, tag, dots, source in rows:
        assert domain == domain.lower()
        assert by_domain[mailbox][1] == mailbox
        assert (tag, dots) == (by_domain[mailbox][2], by_domain[mailbox][3])
        assert tag in {"+", "+.", "-", "none"}
        assert dots in {"count", "ignored"}
        assert urlsplit(source).scheme == "https"
    assert set(providers(PROVIDER)) == set(by_domain)
    assert not providers(STRICT)


def test_the_table_of_tracking_parameters_is_consistent() -> None:
    """A name once, of plain characters, with its source."""
    text = files("streamdedup.data").joinpath("tracking_parameters.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    assert len({name for name, _ in rows}) == len(rows)
    for name, source in rows:
        assert re.fullmatch(r"\w{2,}\*?", name, re.ASCII)
        assert urlsplit(source).scheme == "https"
    names, beginnings = tracking_names()
    assert len(names) + len(beginnings) == len(rows)
    assert is_tracking(b"utm_x")
    assert not is_tracking(b"utm")
