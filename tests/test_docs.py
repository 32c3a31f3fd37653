"""What is claimed of the documents: code runs, links lead somewhere, lists are whole.

A block that cannot run here says why in a comment right above it, `<!-- not run: REASON -->`, and
is counted.
"""

import ast
import dataclasses
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from textwrap import dedent
from typing import Any, get_args

import pytest
import yaml

from bench.worker.results import STREAMS, ratios
from proof import tables
from streamdedup.commands.audit import PartitionCounts, Report
from streamdedup.commands.audit.limits import FINDINGS
from streamdedup.events import EventBatch
from streamdedup.explain.event_report import Kind as Outcomes
from streamdedup.filters import strain
from streamdedup.kafka import groups
from streamdedup.kafka.records.records import Record, batch_of
from streamdedup.keys import foreign_paths
from streamdedup.keys.extract import Extractor
from streamdedup.keys.formats import schemas
from streamdedup.keys.formats.json_kinds import FAULTS, Kind
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import URL_SWITCHES, KeyOptions, Origin, UrlRules
from streamdedup.settings import load
from streamdedup.worker import list_changes

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "streamdedup"
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "results").glob("*.md")]
)
CONFIGURATIONS = sorted((ROOT / "config").glob("*.yaml"))
NOT_RUN = {
    "CONTRIBUTING.md": 2,
    "README.md": 2,
    "docs/audit.md": 1,
    "docs/blacklist.md": 5,
    "docs/crawler.md": 4,
    "docs/deploy.md": 5,
    "docs/doctor.md": 1,
    "docs/explain.md": 4,
    "docs/keys.md": 1,
    "docs/lookaside.md": 1,
    "docs/metrics.md": 1,
    "docs/operate.md": 4,
    "docs/remove.md": 2,
    "docs/runbook.md": 1,
    "docs/security.md": 3,
    "docs/see.md": 1,
    "docs/start.md": 4,
    "docs/testing.md": 1,
    "results/filters.md": 1,
}
WHOLE = """\
kafka: {bootstrap_servers: localhost:9092, group_id: dedup}
source: {topic: events}
key: {from: json, field: id}
filter: {capacity: 1000}
sink: {topic: events-unique}
snapshot: {directory: var/snapshots}
"""


@dataclass(frozen=True)
class Block:
    """A fenced block. `output` is the text block right below it, `not_run` the reason above it."""

    document: str
    line: int
    language: str
    text: str
    output: str | None = None
    not_run: str | None = None

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


_FENCED = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>.+?) -->\n\s*)?"
    r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```\n",
    re.MULTILINE | re.DOTALL,
)


def blocks() -> Iterator[Block]:
    """Give the fenced blocks of all documents; a text block right below another is its output."""
    for path in DOCUMENTS:
        document, source = str(path.relative_to(ROOT)), path.read_text()
        last: Block | None = None
        end = 0
        for match in _FENCED.finditer(source):
            line = source.count("\n", 0, match.start("text"))
            text = dedent(match["text"])
            adjacent = not source[end : match.start()].strip()
            if last and adjacent and match["language"] == "text" and last.language != "text":
                last = replace(last, output=text)
            else:
                if last:
                    yield last
                last = Block(
                    document, line, match["language"], text, not_run=match["reason"] or None
                )
            end = match.end()
        if last:
            yield last


BLOCKS = list(blocks())
YAML = [b for b in BLOCKS if b.language == "yaml"]


def test_the_fences_are_all_seen() -> None:
    """No fence is unmatched, and each block names a language that this test knows."""
    for path in DOCUMENTS:
        document = str(path.relative_to(ROOT))
        fences = len(re.findall(r"^ *```", path.read_text(), re.MULTILINE))
        seen = sum(1 + (b.output is not None) for b in BLOCKS if b.document == document)
        assert fences == 2 * seen, document
    assert {b.language for b in BLOCKS} <= {"sh", "python", "yaml", "text"}


def test_blocks_that_are_not_run_are_counted() -> None:
    """Only shell blocks may be left out, each with a reason; one more is a deliberate act."""
    left_out = [b for b in BLOCKS if b.not_run is not None]
    assert Counter(b.document for b in left_out) == NOT_RUN
    assert {b.language for b in left_out} == {"sh"}
    assert all(len((b.not_run or "").split()) >= 3 for b in left_out)
    comments = sum(path.read_text().count("<!-- not run:") for path in DOCUMENTS)
    assert comments == len(left_out), "a comment stands above no block"


@pytest.mark.parametrize("block", YAML, ids=str)
def test_configurations_load(block: Block, tmp_path: Path) -> None:
    """A yaml block is a configuration; where it is a part, it fits into a small whole."""
    given, path = yaml.safe_load(block.text), tmp_path / "block.yaml"
    if "kafka" in given:
        path.write_text(block.text)
    else:
        path.write_text(yaml.safe_dump(yaml.safe_load(WHOLE) | given))
    assert load(path, environ={}).source.shown


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_examples_are_named_in_the_readme(path: Path) -> None:
    """Each file of config/ is linked from the README."""
    assert f"](config/{path.name})" in (ROOT / "README.md").read_text()


def _results(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((ROOT / "results" / name).read_text())
    return results


class TestReadme:
    """The README is short, and its figures are those of results/; proof/bench/test_worker.py holds its rates."""

    TEXT = (ROOT / "README.md").read_text()
    FILTERS = _results("filters.json")
    WORKER = _results("worker-full.json")["cells"]
    ONE_KEY = (ROOT / "results" / "one-key.md").read_text().split("\n## ")[1]

    def test_it_is_read_in_three_minutes(self) -> None:
        """It has at most 180 lines."""
        assert len(self.TEXT.splitlines()) <= 180

    def test_the_kinds_are_as_measured(self) -> None:
        """Each kind has its row: bits a key for two error rates, times to add and to find one, in batches and alone."""
        section = self.TEXT.split("## Kinds of filter")[1].split("\n## ")[0]
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if "`" in line[:3]]
        assert {row[0].split("`")[1] for row in rows} == set(self.FILTERS["errors"])
        for kind, *figures, _ in ((row[0].split("`")[1], *row[1:]) for row in rows):
            bits = {found["asked"]: found["bits_a_key"] for found in self.FILTERS["errors"][kind]}
            ns = self.FILTERS["sizes"]["100000000"][kind]["ns"]["digests"]
            measured = [f"{bits[0.01]:.1f}", f"{bits[0.001]:.1f}", f"{ns['add']:.0f}"]
            alone = re.search(
                rf"^\| {kind} +\| *(\d*) *\|.*?\| *(\d+) *\| *\d+ *\|$", self.ONE_KEY, re.M
            )
            assert alone, kind
            measured += [f"{ns['hit']:.0f}", f"{alone[1] or '-'} / {alone[2]}"]
            assert figures == measured, kind

    def test_the_worker_is_as_measured(self) -> None:
        """Peers, restart and latency are medians of `python -m bench full`."""
        name = min(STREAMS, key=lambda one: median(ratios(self._rounds(one), one)))
        restarts = self.WORKER["restart/100000000"]
        latency = self.WORKER["latency/100000/100"]["percentiles_ms"]
        p50, p99 = latency["50"], latency["99"]
        assert f"| {median(ratios(self._rounds(name), name)):.1f} times |" in self.TEXT
        assert f"from a snapshot | {restarts['loaded_median_s']:.1f} s |" in self.TEXT
        assert f"from the output alone | {restarts['folded_median_s']:.1f} s |" in self.TEXT
        assert f"99th percentile | {p50:.0f} ms, {p99:.0f} ms |" in self.TEXT

    def _rounds(self, peer: str) -> Sequence[Mapping[str, Any]]:
        rounds: Sequence[Mapping[str, Any]] = self.WORKER[f"peers/{peer}"]["rounds"]
        return rounds


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """A relative link names a file of the repository, and a heading in it where it has a `#`."""
    prose = _FENCED.sub("", path.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), target
        assert not anchor or anchor in _anchors(file), target


def test_the_site_has_every_document() -> None:
    """The navigation of mkdocs.yml names each document once, and each page of it is there."""
    text = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    pages = re.findall(r"(\S+\.md)$", text, re.MULTILINE)
    assert sorted(pages) == sorted(str(path.relative_to(ROOT)) for path in DOCUMENTS)


def test_documents_fetch_nothing() -> None:
    """No document shows a picture of another host, which would tell it who reads."""
    for path in DOCUMENTS:
        fetched = r'!\[[^]]*\]\(\w+:|\b(?:src|srcset)="(?:\w+:|//)|<script|<iframe'
        assert not re.search(fetched, path.read_text()), path.name


def _anchors(path: Path) -> set[str]:
    """Give the anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_old_brokers_lack_is_on_the_first_screen() -> None:
    """The README names the oldest broker, and leads to what one below 2.8 lacks, of which snapshots depend on one."""
    section = (ROOT / "results" / "compatibility.md").read_text().split("## Older brokers\n")[1]
    rows = section.split("\n#")[0]
    assert "results/compatibility.md#older-brokers" in (ROOT / "README.md").read_text()
    assert "no topic ids" in rows
    assert "`sink.on_gap: accept`" in rows


class TestStopMessages:
    """docs/runbook.md has every message that stops a partition or the worker, and no other.

    Those about how to connect begin with the option at fault, and stand in docs/security.md.
    """

    ROOMS = ("delivery", "kafka", "registry", "repartition", "server", "worker")
    STOP_NOTHING = (groups, list_changes)  # `reset` reports the former's, the log the latter's

    def test_every_message_is_explained(self) -> None:
        """What the code says is in the document, with words in capitals for names and numbers."""
        documented = self._documented()
        for message in self._said():
            assert any(re.fullmatch(message, text) for text in documented), message

    def test_no_message_is_invented(self) -> None:
        """What the document quotes is said by the code."""
        said = self._said()
        for text in self._documented():
            assert any(re.fullmatch(message, text) for message in said), text

    def _documented(self) -> list[str]:
        text = (ROOT / "docs" / "runbook.md").read_text()
        return re.findall(r"^> `(.+)`$", text, re.MULTILINE)

    def _said(self) -> list[str]:
        paths = [path for room in self.ROOMS for path in (PACKAGE / room).rglob("*.py")]
        paths += [Path(str(each.__file__)) for each in (strain, schemas)]
        apart = {Path(str(module.__file__)) for module in self.STOP_NOTHING}
        messages = {m for path in paths if path not in apart for m in _messages(path)}
        assert len(messages) > 10
        connecting = (r"kafka\.", r"no\ broker\ answered")  # docs/security.md
        return sorted(m for m in messages if not m.startswith(connecting))


_VALUE = ".{0,120}"  # a command, too


def _messages(path: Path) -> Iterator[str]:
    """Give what a module raises or collects as DeliveryError or ConfigError, as patterns."""
    module = ast.parse(path.read_text())
    constants = _texts(module.body)
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        texts = constants | _texts(ast.walk(function))
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and _tells(node.func) and node.args:
                sentence = _pattern(node.args[-1], texts)
                remedies = [each.value for each in node.keywords if each.arg == "remedy"]
                if sentence.replace(_VALUE, ""):
                    yield "; ".join([sentence, *(_pattern(each, texts) for each in remedies)])


def _texts(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """Give the texts that are assigned to a name."""
    return {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.JoinedStr | ast.Constant)
    }


def _tells(function: ast.expr) -> bool:
    return ast.unparse(function) in (
        "DeliveryError",
        "ConfigError",
        "ChosenKeysError",
        "PartitionStoppedError",
        "StrangerError",
        "problems.append",
    )


def _pattern(node: ast.expr, texts: Mapping[str, ast.expr]) -> str:
    if isinstance(node, ast.Constant):
        return re.escape(str(node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(_pattern(part, texts) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _pattern(node.value, texts)
    known = isinstance(node, ast.Name) and texts.get(node.id)
    return _pattern(known, texts) if known else _VALUE


class TestKeys:
    """docs/keys.md says what the extractor does."""

    TEXT = (ROOT / "docs" / "keys.md").read_text()

    def test_the_keys_of_the_examples(self) -> None:
        """Each JSON value of the tables has the key beside it."""
        rows = re.findall(r"^\| `(\{.*\})` \| (?:`(.*?)` )?\|", self.TEXT, re.MULTILINE)
        assert len(rows) == 10
        for value, key in rows:
            keys = Extractor("json", ("id",)).extract(_one_event(value.encode()))
            assert list(keys.keys) == [key.encode()], value

    def test_the_reasons(self) -> None:
        """The reasons of the table are those that malformed events get, and no others."""
        table = self.TEXT[self.TEXT.index("| Reason | When |") :].partition("\n\n")[0]
        documented = set(re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE))
        values = ('{"F": null}', '{"F": true}', '{"F": 7.0}', '{"F": []}', '{"F": {}}', "{}")
        found = {_reason("json", "F", value.encode()) for value in values}
        wrong = _reason("json", "F", b"[tru]").partition(": ")[0]
        found.add(f"{wrong}: WHAT, at byte N")
        found.add(re.sub(r"[0-9]+$", "N", _reason("json", "F", b"[" * 1025)))
        found |= {_reason("json", "F", None), _reason("key", None, b"")}
        found |= {_reason("json", "F", b"\0\0\0\0\7").replace("id 7", "id N")}
        found |= {_reason("header", "H", b""), _reason("header", "H", b"", null_header=True)}
        found |= {_reason("value", None, text, normalizer("trim")) for text in (b"\xff", b"a\0")}
        registered = _reason("value", None, b"\0\0\0\0\7\xff", normalizer("trim"))
        found |= {registered.replace("id 7", "id N")}
        wrong = _reason("value", None, b"Q9Z", normalizer("email"))
        found.add(wrong.partition(": ")[0] + ": WHY")
        wrong = _reason("value", None, b"Q9Z", normalizer("url"))
        found.add(wrong.partition(": ")[0] + ": WHY")
        assert found == documented

    def test_what_is_not_valid_json(self) -> None:
        """The second table has all constructs, each as a reason names it, and no others."""
        table = self.TEXT[self.TEXT.index("| WHAT | When |") :].partition("\n\n")[0]
        faults = [each.partition(": ")[2] for kind, each in FAULTS.items() if kind != Kind.DEEP]
        assert re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE) == faults

    def test_paths_of_other_tools(self) -> None:
        """Each path of the table has the translation beside it."""
        table = self.TEXT[self.TEXT.index("| Other tools | Here |") :].partition("\n\n")[0]
        for theirs, ours in re.findall(r"^\| (`.*) \| `(.*)` \|$", table, re.MULTILINE):
            for path in re.findall(r"`(.*?)`", theirs):
                (warning,) = foreign_paths.warnings(KeyOptions(field=path))
                assert f"here, {ours} is the same" in warning

    def test_the_parts_of_a_url(self) -> None:
        """The example of the first table has the key that its last column is in parts."""
        table = self.TEXT[self.TEXT.index("| Of a URL |") :].partition("\n\n")[0]
        (url,) = re.findall(r"`([^`]*)` \|$", table.splitlines()[0])
        parts = re.findall(r"`([^`]*)` \|$", table.partition("|\n")[2], re.MULTILINE)
        found = Extractor("value", normalizer=normalizer("url")).extract(_one_event(url.encode()))
        assert list(found.keys) == ["".join(parts).encode()]

    def test_the_rules_of_urls(self) -> None:
        """The URL of the second table has the key beside each rule; no rule is left out."""
        table = self.TEXT[self.TEXT.index("| Option | `--url-rule` |") :].partition("\n\n")[0]
        (url,) = re.findall(r"`(http[^`]*)` \|$", table.splitlines()[0])
        rows = re.findall(r"^\| `url_(\w+): true` \| `(\w+)` \| `(.*?)`", table, re.MULTILINE)
        assert [name for name, _, _ in rows] == list(URL_SWITCHES)
        ignored = re.findall(
            r"^\| `url_ignore: \[(\w+)\]` \| \(`(.*?)`\) \| `(.*?)`", table, re.MULTILINE
        )
        for name, argument, key in (*rows, *ignored):
            is_switch = (name, argument, key) in rows
            rules = UrlRules.of(**{name: True}) if is_switch else UrlRules.of([name])
            extractor = Extractor("value", normalizer=normalizer("url", rules))
            assert argument == (name if is_switch else f"--url-ignore {name}")
            assert list(extractor.extract(_one_event(url.encode())).keys) == [key.encode()]


def _one_event(value: bytes | None, headers: tuple[tuple[str, None], ...] = ()) -> EventBatch:
    return batch_of("t", 0, [0], [Record.of(0, None, value, headers)], next_offset=1)


def _reason(
    origin: Origin,
    field: str | None,
    value: bytes | None,
    normal: Normalizer | None = None,
    *,
    null_header: bool = False,
) -> str:
    extractor = Extractor(origin, (field,) if field else (), "judge", normal)
    batch = _one_event(value, (("H", None),) if null_header else ())
    return extractor.extract(batch).malformed[0]


class TestDependencies:
    """docs/dependencies.md has every dependency with its reason, and no other."""

    TEXT = (ROOT / "docs" / "dependencies.md").read_text()
    PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def test_each_has_its_reason(self) -> None:
        """The tables name what pyproject.toml requires, always and for each extra, each with a reason."""
        required = {"": self.PROJECT["dependencies"], **self.PROJECT["optional-dependencies"]}
        named: dict[str, list[str]] = {}
        for extra, distributions, reason in self._rows():
            named.setdefault(extra, []).extend(distributions)
            assert len(reason.split()) > 1, distributions
        assert {extra: sorted(names) for extra, names in named.items()} == {
            extra: sorted(re.split(r"[<>=]", name)[0] for name in names)
            for extra, names in required.items()
        }

    def _rows(self) -> Iterator[tuple[str, list[str], str]]:
        for line in self.TEXT.splitlines():
            if line.startswith("| `"):
                *extra, distributions, reason = line.strip("| ").split(" | ")
                yield "".join(extra).strip("`"), re.findall(r"`(.+?)`", distributions), reason


class TestArchitecture:
    """docs/architecture.md draws the house as it stands."""

    TEXT = (ROOT / "docs" / "architecture.md").read_text()
    HOW_TO_ADD = (
        "filters/kinds.py",
        "keys/normalizers/__init__.py",
        "keys/options.py",
        "metrics/catalogue.py",
        "settings/tree.py",
    )
    CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]

    def test_the_rooms_are_those_of_the_contract(self) -> None:
        """Each room has its row, on its floor, in the order of import-linter's layers."""
        layers = self.CONTRACTS["contracts"][0]["layers"]
        floors = [
            (str(len(layers) - depth), room)
            for depth, layer in enumerate(layers)
            for room in layer.split(" | ")
        ]
        rows = re.findall(r"^\| (\d+) \| `(\w+)` \| .+ \|$", self.TEXT, re.MULTILINE)
        assert rows == floors

    def test_the_files_it_names_are_there(self) -> None:
        """A path in it, or in a list of how to add something, is below streamdedup/ or in another folder."""
        texts = [self.TEXT, *(self._list_in(path) for path in self.HOW_TO_ADD)]
        paths = set(re.findall(r"`((?:[\w-]+/)*[\w-]+\.py|(?:[\w-]+/)+)`", "".join(texts)))
        assert len(paths) > 30
        tests = {
            path.name for name in ("tests", "proof") for path in (ROOT / name).rglob("test_*.py")
        }
        below = {f"{family.name}/" for family in (PACKAGE / "kafka").iterdir()}  # of its room's row
        for path in paths - {"base.py", "streamdedup/"} - below:
            assert (PACKAGE / path).exists() or (ROOT / path).exists() or path in tests, path

    def _list_in(self, path: str) -> str:
        """Return the list of how to add something in the opening comment of a module, which the page names."""
        assert f"`{path}`" in self.TEXT.split("## How to add\n")[1]
        opening = (PACKAGE / path).read_text().split("\nimport ")[0].split("\nfrom ")[0]
        assert "# How to add a" in opening, path
        return opening


def test_all_that_an_audit_tells_is_described() -> None:
    """docs/audit.md has every field of its JSON, and every limit by its name, and invents no limit."""
    text = (ROOT / "docs" / "audit.md").read_text()
    cells = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    found = set(FINDINGS)
    for described in (dataclasses.fields(PartitionCounts), dataclasses.fields(Report)):
        for field in described:
            assert field.name in found or f"`{field.name}`" in cells, field.name
    sources = [
        (PACKAGE / "commands" / "audit" / name).read_text() for name in ("limits.py", "report.py")
    ]
    names = {name for source in sources for name in re.findall(r'Limit\(\s*"(\w+)"', source)}
    section = text.split("## What cannot be known")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row.partition(":")[0])} == names


def test_all_that_explain_tells_is_described() -> None:
    """docs/explain.md has every outcome, and every field of the JSON that is on record, and invents no outcome."""
    text = (ROOT / "docs" / "explain.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(get_args(Outcomes))
    outputs = json.loads((ROOT / "proof/golden/records/json-outputs.json").read_text())
    told = {name: made for name, made in outputs.items() if name.startswith("explain")}
    assert told
    known = {name for made in told.values() for each in made.get("known_in", []) for name in each}
    fields = known.union(*told.values())
    assert {name for name in fields if f"`{name}`" not in text} == set()


def test_each_rule_is_held_by_a_test_of_this_folder() -> None:
    """docs/delivery.md has a row for each number that a test is marked with, and no other."""
    page, held = (ROOT / "docs" / "delivery.md").read_text("utf-8"), tables.held()
    numbers = set(map(int, re.findall(r"^\| (\d+) \|", page, re.MULTILINE)))
    assert numbers == held.keys()
    assert [number for number in numbers if not held[number]["tests"]] == []


def test_the_tables_are_those_of_the_code() -> None:
    """Of options, of metrics, and of the tests that hold rules, word for word."""
    for name in tables.PAGES:
        assert tables.written(name) == (ROOT / "docs" / name).read_text("utf-8"), "make docs"


def test_the_tests_that_are_named_exist() -> None:
    """Those of docs/testing.md, in either folder."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "testing.md").read_text()))
    there = {
        name
        for folder in tables.FOLDERS
        for path in (ROOT / folder).rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert named
    assert named <= there
