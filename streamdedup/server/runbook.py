"""The runbook, which a worker serves itself, since there may be no network: `/runbook/`, and sections at `/runbook/ID`.

runbook.html is made of docs/runbook.md by `make docs`. An ID is that of a finding, a line of the log, or a heading.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files

from streamdedup.server.request import HTML, Page, Refused, Request
from streamdedup.server.route import Route

WHOLE = "runbook"

_SECTION = re.compile(r'^<section id="([^"]+)">\n<h1>(.*?)</h1>\n(.*?)^</section>$', re.M | re.S)
_TAG = re.compile(r"<[^>]*>")
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · streamdedup</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page.css">
<link rel="stylesheet" href="/runbook.css">
</head>
<body>
<header>
<nav aria-label="Where this is"><a href="/">streamdedup</a> <a href="/runbook/">Runbook</a></nav>
</header>
<main class="runbook">
<h1>{heading}</h1>
{text}</main>
</body>
</html>
"""


def runbook() -> Route:
    """Return the route of all sections, and of their list."""
    sections = _sections((files("streamdedup.server") / "runbook.html").read_text("utf-8"))

    def answer(request: Request) -> Page:
        asked = request.rest or WHOLE
        # Lines of the log have the names of findings, with underscores.
        text = sections.get(asked) or sections.get(asked.replace("_", "-"))
        if text is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"the runbook has no {asked}; see /runbook/")
        return Page(HTTPStatus.OK, text, HTML)

    return Route("/runbook/", answer, gated=True, segment=True)


def _sections(html: str) -> Mapping[str, str]:
    return {
        anchor: _PAGE.format(title=_TAG.sub("", heading), heading=heading, text=text)
        for anchor, heading, text in _SECTION.findall(html)
    }
