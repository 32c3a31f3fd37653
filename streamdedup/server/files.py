"""The files of the page, which are in the wheel: read once, as the worker starts."""

from collections.abc import Iterator
from http import HTTPStatus
from importlib.resources import files as packaged

from streamdedup.server.request import HTML, Page
from streamdedup.server.route import Route, at_once

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def files() -> Iterator[Route]:
    """Yield the routes of the page: `/`, and what it loads, each by its name."""
    folder = packaged("streamdedup.server") / "page"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        name, dot, suffix = file.name.rpartition(".")
        if file.name == "index.html":
            yield _route("/", file.read_text("utf-8"), HTML)
        elif name and f"{dot}{suffix}" in TYPES:
            yield _route(f"/{file.name}", file.read_text("utf-8"), TYPES[f"{dot}{suffix}"])


def _route(path: str, text: str, content_type: str) -> Route:
    page = Page(HTTPStatus.OK, text, content_type)
    return at_once(path, lambda: page, gated=True)
