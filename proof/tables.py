"""`python -m proof tables`: write what is made in docs/: tables of options, metrics, findings, rules; runbook; schema.

A test holds a rule if it carries `@pytest.mark.rule(NUMBER)`. The number and the words of a rule are the page's.
"""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from proof import runbook
from streamdedup import shape
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


def _with_tables(page: str, *tables: str) -> str:
    """Put tables, in their order, each between two comments of its page. ValueError unless it has as many places."""
    if (places := len(_MADE.findall(page))) != len(tables):
        raise ValueError(f"a page has {places} places for its tables; it needs {len(tables)}")
    left = iter(tables)
    return _MADE.sub(lambda _: next(left), page)


def _with_rules(page: str) -> str:
    """Put the tests of each rule into its row. KeyError if a rule has none."""
    rules = held()

    def row(match: re.Match[str]) -> str:
        tests = rules[int(match[1])]
        here, beyond = (", ".join(f"`{test}`" for test in tests[folder]) for folder in FOLDERS)
        return f"| {match[1]} | {match[2]} | {here}{f'; in `proof/`: {beyond}' if beyond else ''} |"

    return _RULE.sub(row, page)


def _findings() -> str:
    """Make the table of all findings, each with its section in the runbook."""
    rows = [
        f"| [`{kind.id}`](runbook.md#{kind.id}) | {kind.severity} | {kind.meaning} |"
        for kind in findings.KINDS.values()
    ]
    return "\n".join(["| Finding | Severity | Means |", "|---|---|---|", *rows]) + "\n"


def _alerts() -> str:
    """Make the table of all alerts, from the rules for Prometheus."""
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text("utf-8"))
    rows = [
        f"| `{rule['alert'].removeprefix('Streamdedup')}` | {rule['labels']['severity']} | `{rule['expr'].strip()}` |"
        f" {rule['for']} | {rule['annotations']['summary'].strip()} |"
        for group in rules["groups"]
        for rule in group["rules"]
    ]
    head = [
        "| `Streamdedup...` | Severity | Fires if | For | What it means |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


PAGES: Mapping[str, Callable[[str], str]] = {
    "configuration.md": lambda page: _with_tables(page, reference_markdown()),
    "metrics.md": lambda page: _with_tables(page, catalogue.reference_markdown(), _alerts()),
    "doctor.md": lambda page: _with_tables(page, examine.reference_markdown()),
    "delivery.md": _with_rules,
    "operate.md": lambda page: _with_tables(page, _findings()),
    "runbook.md": runbook.with_facts,
    "status.schema.json": lambda _: json.dumps(shape.SCHEMA, indent=1) + "\n",
}


def written(name: str) -> str:
    """Return a page with its tables as they are made now."""
    return PAGES[name]((DOCS / name).read_text("utf-8"))


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(written(name), "utf-8")
    runbook.SERVED.write_text(runbook.served(runbook.SOURCE.read_text("utf-8")), "utf-8")
