"""Claims about the runbook that a worker serves: it is docs/runbook.md, whole, and needs nothing from elsewhere."""

import re
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from proof import runbook as made
from streamdedup.metrics.findings import KINDS
from streamdedup.server.files import files
from streamdedup.server.listener import Listener
from streamdedup.server.request import Page, Refused, Request
from streamdedup.server.route import Routes
from streamdedup.server.runbook import runbook
from tests.server.test_server import HOST, ask

PAGE = made.SOURCE.read_text("utf-8")
IDS = [*made.sections(PAGE)]
BYTES_MAX = 150_000


def section(id_: str) -> str:
    """The page of a section, or the list of all."""
    page = runbook().answer(Request("GET", f"/runbook/{id_}", rest=id_))
    assert isinstance(page, Page)
    return page.text


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A server of the runbook."""
    listener = Listener(HOST, 0, Routes([runbook(), *files()]))
    yield listener
    listener.close()


def test_it_is_made_of_the_document_as_it_is() -> None:
    """`make docs` writes it; it is small enough to keep in memory."""
    assert made.SERVED.read_text("utf-8") == made.served(PAGE), "make docs"
    assert made.SERVED.stat().st_size < BYTES_MAX


@pytest.mark.parametrize("id_", KINDS)
def test_each_finding_has_its_page(listener: Listener, id_: str) -> None:
    """At the id, with all its parts; the page links there."""
    status, text, headers = ask(listener.port, f"/runbook/{id_}")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert f"<title>{id_} · streamdedup</title>" in text
    assert re.findall(r"<strong>([\w ]+):</strong>", text) == list(made.PARTS)


def test_the_list_has_each_section(listener: Listener) -> None:
    """At `/runbook/`, each finding with what it means."""
    _, text, _ = ask(listener.port, "/runbook/")
    for id_ in IDS[1:]:
        assert f'<a href="/runbook/{id_}">' in text
    assert "</a> Another producer wrote between our events of the output.</li>" in text


@pytest.mark.parametrize("id_", ["", *IDS])
def test_all_that_a_page_needs_is_served_here(id_: str) -> None:
    """Links lead to sections that there are; it holds no script, style or comment, and nothing comes from elsewhere."""
    text = section(id_)
    places = re.findall(r' (?:href|src)="([^"]*)"', text)
    assert {"/", "/runbook/"} < set(places)
    of_page = {"/", "/icon.svg", "/page.css", "/runbook.css"}
    assert {place.removeprefix("/runbook/") for place in places if place not in of_page} <= {
        "",
        *IDS,
    }
    assert not re.search(r"<script|<style|<img|<!--| style=| on\w+=", text)
    assert "](" not in re.sub(r"<code.*?</code>", "", text, flags=re.DOTALL)


def test_another_document_is_named() -> None:
    """It may be out of reach, so there is no link to it."""
    assert "older brokers (results/compatibility.md)" in " ".join(section("output-trimmed").split())


def test_a_line_of_the_log_leads_to_its_finding() -> None:
    """Its name has underscores."""
    assert section("list_refused") == section("list-refused")
    assert "<h1><code>snapshot_failed</code></h1>" in section("snapshot_failed")


@pytest.mark.parametrize("id_", ["no-such", "..", "runbook.html"])
def test_what_is_not_there_leads_to_the_list(id_: str) -> None:
    """With status 404."""
    with pytest.raises(Refused) as refused:
        section(id_)
    assert refused.value.page.status == HTTPStatus.NOT_FOUND
    assert "see /runbook/" in refused.value.page.text


def test_another_site_does_not_reach_it() -> None:
    """As it does not reach the page."""
    assert runbook().gated
