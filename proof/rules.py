"""`python -m proof rules`: write which tests hold which rule into the tables of docs/delivery.md.

A test holds a rule if it carries `@pytest.mark.rule(NUMBER)`. The number and the words of a rule are the page's.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "delivery.md"
FOLDERS = ("tests", "proof")
_ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.*) \|$", re.MULTILINE)

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


def written(page: str, rules: Held) -> str:
    """Return the page with the tests of each rule in its row. KeyError if a rule has none."""

    def row(match: re.Match[str]) -> str:
        tests = rules[int(match[1])]
        here, beyond = (", ".join(f"`{test}`" for test in tests[folder]) for folder in FOLDERS)
        return f"| {match[1]} | {match[2]} | {here}{f'; in `proof/`: {beyond}' if beyond else ''} |"

    return _ROW.sub(row, page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8"), held()), "utf-8")
