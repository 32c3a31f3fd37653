"""The runbook: what of docs/runbook.md is made, and the pages that a worker serves of it.

Of a finding's section, its meaning is the catalogue's, and its tests are those that carry its mark.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from textwrap import fill

from markdown_it import MarkdownIt
from markdown_it.token import Token

from streamdedup.metrics.findings import KINDS, Kind

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docs" / "runbook.md"
SERVED = ROOT / "streamdedup" / "server" / "runbook.html"

PARTS = ("Means", "Impact", "Look at", "Do", "In a test")
"""The parts of a finding's section, in their order."""

_WIDTH = 120
_HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
_MEANS = re.compile(r"^\*\*Means:\*\*.*?\n(?=\n)", re.MULTILINE | re.DOTALL)
_TESTS = re.compile(r"^(- \*\*In a test:\*\* .+?:)\n  [`.].*?\n(?=\n|\Z)", re.MULTILINE | re.DOTALL)


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as the site and GitHub make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def sections(page: str) -> Mapping[str, str]:
    """Return the text of each section, with the sections in it left out, by its anchor."""
    parts = _HEADING.split(page)
    return {
        anchor_of(heading): text for heading, text in zip(parts[2::3], parts[3::3], strict=True)
    }


@cache
def causes() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return, by the id of a finding, the tests that are marked to cause it: file and name."""
    found = defaultdict[str, list[tuple[str, str]]](list)
    for folder in ("tests", "proof"):
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            if "mark.finding(" in (source := path.read_text("utf-8")):
                for id_, test in _marked(source):
                    if (at := (str(path.relative_to(ROOT)), test)) not in found[id_]:
                        found[id_].append(at)
    return found


def _marked(source: str) -> Iterator[tuple[str, str]]:
    for test in ast.walk(ast.parse(source)):
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in (node for mark in test.decorator_list for node in ast.walk(mark)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.finding":
                    for argument in node.args:
                        yield ast.literal_eval(argument), test.name


def with_facts(page: str) -> str:
    """Put meaning and tests into the section of each finding. ValueError if one has no place for them."""
    tests = causes()
    for kind in KINDS.values():
        heading = f"\n### `{kind.id}`\n"
        before, found, rest = page.partition(heading)
        text, more, after = rest.partition("\n#")
        text, meanings = _MEANS.subn(lambda _, kind=kind: _means(kind), text)  # type: ignore[misc]
        named = ",\n".join(f"  `{name}` of `{path}`" for path, name in tests[kind.id])
        text, places = _TESTS.subn(rf"\1\n{named}.\n", text)
        if (bool(found), meanings, places) != (True, 1, 1):
            raise ValueError(f"docs/runbook.md has no place for meaning and tests of {kind.id}")
        page = f"{before}{heading}{text}{more}{after}"
    return page


def _means(kind: Kind) -> str:
    return fill(f"**Means:** {kind.meaning} A {kind.severity}.", _WIDTH) + "\n"


@dataclass
class _Section:
    """A heading of `level` 1 to 3, as tokens, with what is below it up to the next one."""

    level: int
    title: Token
    body: list[Token]

    @property
    def anchor(self) -> str:
        return anchor_of(self.title.content)


def served(page: str) -> str:
    """Make the pages that a worker serves: HTML, a `<section>` for each heading, by its anchor.

    Links within the runbook lead to such pages. Of links to other documents the names of these are left.
    """
    markdown = MarkdownIt("commonmark").enable("table")
    found = list(_split(markdown.parse(page)))

    def html(tokens: Sequence[Token]) -> str:
        return str(markdown.renderer.render(tokens, markdown.options, {}))

    def link(section: _Section) -> str:
        kind = KINDS.get(section.anchor)
        means = f" {html(markdown.parseInline(kind.meaning))}" if kind else ""
        return f'<a href="/runbook/{section.anchor}">{html([section.title])}</a>{means}'

    def listed(at: int) -> str:
        """List what is in a section, with what is in that."""
        level, items = found[at].level, ""
        for below in range(at + 1, len(found)):
            if found[below].level <= level:
                break
            if found[below].level == level + 1:
                items += f"<li>{link(found[below])}{listed(below)}</li>\n"
        return f"\n<ul>\n{items}</ul>\n" if items else ""

    made = [
        f'<section id="{escape(section.anchor)}">\n<h1>{html([section.title])}</h1>\n'
        f"{html(section.body)}{listed(at)}</section>\n"
        for at, section in enumerate(found)
    ]
    return "".join(made)


def _split(tokens: Sequence[Token]) -> Iterator[_Section]:
    """Yield the sections. Comments are left out."""
    starts = [at for at, token in enumerate(tokens) if token.type == "heading_open"]
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        body = [token for token in tokens[start + 3 : end] if token.type != "html_block"]
        for token in (tokens[start + 1], *body):
            token.children = list(_within(token.children or ()))
        yield _Section(int(tokens[start].tag[1:]), tokens[start + 1], body)


def _within(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens of a line, its links as the served pages have them."""
    elsewhere = ""
    for token in tokens:
        if token.type == "link_open":
            document, _, anchor = str(token.attrGet("href")).partition("#")
            token.attrSet("href", f"/runbook/{anchor}")
            elsewhere = document and str((SOURCE.parent / document).resolve().relative_to(ROOT))
        if not (elsewhere and token.type.startswith("link_")):
            yield token
        elif token.type == "link_close":
            yield Token("text", "", 0, content=f" ({elsewhere})")
