"""`python -m proof tables`: write the tables of docs/ that are made: options, metrics, findings, checks, rules.

A test holds a rule if it carries `@pytest.mark.rule(NUMBER)`. The number and the words of a rule are the page's.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from streamdedup.doctor import examine
from streamdedup.metrics import catalogue, findings
from streamdedup.settings import reference_markdown

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FOLDERS = ("tests", "proof")
_MADE = re.compile(r"(?<=<!-- made by: make docs -->\n\n).*?(?=\n<!-- until here -->\n)", re.DOTALL)
_RULE = re.compile(r"^\| (\d+) \| (.+?) \| (.*) \|$", re.MULTILINE)

Held = Mapping[int, Mapping[str, Sequence[str]]]
"""By rule and folder, the names of its tests."""


def held() -> Held:
    """Look for the marks in the sources: a test need not be imported."""
    found: defaultdict[int, dict[str, list[str]]] = defaultdict(lambda: {f: [] for f in FOLDERS})
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            source = path.read_text("utf-8")
            for rule, test in _marked(source) if "mark.rule(" in source else ():
                found[rule][folder].append(test)
    return found


def _marked(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in map(ast.unparse, node.decorator_list):
                if match := re.fullmatch(r"pytest\.mark\.rule\((\d+)\)", mark):
                    yield int(match[1]), node.name


def _with_table(page: str, table: str) -> str:
    """Put a table between two comments of its page. ValueError unless it has one place for it."""
    made, places = _MADE.subn(lambda _: table, page)
    if places != 1:
        raise ValueError(f"a page has {places} places for its tables; it needs one")
    return made


def _with_rules(page: str) -> str:
    """Put the tests of each rule into its row. KeyError if a rule has none."""
    rules = held()

    def row(match: re.Match[str]) -> str:
        tests = rules[int(match[1])]
        here, beyond = (", ".join(f"`{test}`" for test in tests[folder]) for folder in FOLDERS)
        return f"| {match[1]} | {match[2]} | {here}{f'; in `proof/`: {beyond}' if beyond else ''} |"

    return _RULE.sub(row, page)


def _findings() -> str:
    """Make the table of all findings, each with its section in the runbook. KeyError if one has none."""
    sections = runbook_sections()
    rows = [
        f"| [`{kind.id}`](runbook.md#{sections[kind.id]}) | {kind.severity} | {kind.meaning} |"
        for kind in findings.KINDS.values()
    ]
    return "\n".join(["| Finding | Severity | Means |", "|---|---|---|", *rows]) + "\n"


def runbook_sections() -> Mapping[str, str]:
    """Return, for each finding that the runbook names by "Finding `id`", the anchor of its section."""
    sections, anchor = dict[str, str](), ""
    for line in re.split(r"\n(?=#)", (DOCS / "runbook.md").read_text("utf-8")):
        heading, _, text = line.partition("\n")
        anchor = re.sub(r"[^\w -]", "", heading.lstrip("# ").lower()).replace(" ", "-")
        sections |= dict.fromkeys(re.findall(r"\b[Ff]inding\s+`([\w-]+)`", text), anchor)
    return sections


PAGES: Mapping[str, Callable[[str], str]] = {
    "configuration.md": lambda page: _with_table(page, reference_markdown()),
    "metrics.md": lambda page: _with_table(page, catalogue.reference_markdown()),
    "doctor.md": lambda page: _with_table(page, examine.reference_markdown()),
    "delivery.md": _with_rules,
    "operate.md": lambda page: _with_table(page, _findings()),
}


def written(name: str) -> str:
    """Return a page with its tables as they are made now."""
    return PAGES[name]((DOCS / name).read_text("utf-8"))


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(written(name), "utf-8")
