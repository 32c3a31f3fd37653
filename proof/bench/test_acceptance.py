"""`python -m bench acceptance`: quick sections hold, a figure out of bounds ends it, pages are what it writes."""

import math
import re
from pathlib import Path

import pytest

from bench import hashes
from bench.acceptance import __main__ as acceptance
from bench.acceptance import fluid
from bench.acceptance.bits import exact_error
from bench.acceptance.report import Figure, Section, share

RESULTS = Path(__file__).parents[2] / "results"
PAGE = (RESULTS / "acceptance.md").read_text("utf-8")
QUICK = ("sizes", "counting")  # in 3 s each; `python -m bench acceptance` measures all


def expectations(text: str) -> list[tuple[str, ...]]:
    """All of each row of figures but what was measured."""
    rows = re.findall(r"^\| (.+?) \| (.*?) ?\| (.*?) ?\| .*? \| (.+?) \|$", text, re.MULTILINE)
    return [row for row in rows if row[0] != "Figure" and not row[0].startswith(("`", "Kind"))]


@pytest.mark.parametrize("name", QUICK)
def test_quick_sections_hold_and_stand_on_the_page(name: str) -> None:
    """Each figure is within its bounds, and the page has it, with the same paper, theory and bounds."""
    section = acceptance.SECTIONS[name]()
    assert [figure.row() for figure in section.figures if not figure.holds] == []
    (part,) = [part for part in PAGE.split("\n## ") if part.startswith(f"{section.title}\n")]
    assert expectations(part) == expectations(section.markdown())
    assert len(expectations(part)) == len(section.figures)
    assert section.more in part


def test_the_page_has_every_section_and_no_figure_out_of_bounds() -> None:
    """What is committed is a whole run that succeeded."""
    assert PAGE.count("\n## ") == len(acceptance.SECTIONS)
    assert f"- {len(expectations(PAGE))} figures, of which all are within" in PAGE
    assert "**out" not in PAGE


# --- the gate ---


def of_one(figure: Figure) -> Section:
    """A section of one figure."""
    return Section("One", "Of a test.", [figure])


@pytest.mark.parametrize(("measured", "status"), [(0.9, 0), (1.1, 0), (0.89, 1), (math.nan, 1)])
def test_a_figure_out_of_bounds_ends_the_command_with_1(
    measured: float, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is named, and stands out on the page, which is written all the same."""
    figure = Figure("error", measured, 0.9, 1.1, 1.0)
    monkeypatch.setattr(acceptance, "SECTIONS", {"one": lambda: of_one(figure)})
    monkeypatch.setattr(acceptance, "DOCUMENT", tmp_path / "page.md")
    assert acceptance.main([]) == status
    page = (tmp_path / "page.md").read_text()
    assert ("**out:**" in page, "**1 are out of bounds**" in page) == (status == 1, status == 1)
    assert figure.row() in page


def test_a_share_is_allowed_five_standard_deviations() -> None:
    """Of the count, and of what the expectation itself has."""
    figure = share("error", 100, 10_000, 0.01)
    assert figure.high - 0.01 == pytest.approx(5 * math.sqrt(0.01 * 0.99 / 10_000))
    assert figure.low == pytest.approx(0.02 - figure.high)
    wider = share("error", 100, 10_000, 0.01, spread=0.1)
    deviation = math.hypot(math.sqrt(0.01 * 0.99 / 10_000), 0.001)
    assert wider.high - 0.01 == pytest.approx(5 * deviation)


# --- theory ---


def test_the_differential_equations_give_the_published_loads() -> None:
    """.9971 .8747 .1283 1.3e-10 2.6e-138 after additions; under churn, with 49,116 fingerprints, the simulation's."""
    added = fluid.added(6)
    assert added[5:8].tolist() == pytest.approx([0.9971, 0.8747, 0.1283], abs=5e-5)
    assert added[8:10].tolist() == pytest.approx([1.3e-10, 2.6e-138], rel=0.1)
    assert added[1:].sum() == pytest.approx(6, rel=1e-6)
    churned = fluid.churned(49_116 / 8192)
    assert churned[5:9].tolist() == pytest.approx([0.9501, 0.7653, 0.2868, 0.0022], abs=2e-4)


@pytest.mark.parametrize(
    ("sizes", "exact", "formula"),
    [
        ((32, 4, 5), 0.051702, 0.048818),
        ((128, 7, 13), 0.0094462, 0.0089970),
        ((1024, 10, 71), 0.00099524, 0.00098195),
    ],
)
def test_the_chain_gives_the_published_exact_errors(
    sizes: tuple[int, int, int], exact: float, formula: float
) -> None:
    """Which are above those of the formula (1 - (1 - 1/m)^(kn))^k, by 1 to 6 %."""
    mean, deviation = exact_error(*sizes)
    assert mean == pytest.approx(exact, rel=2e-5)
    bits, hashes_, keys = sizes
    assert (1 - (1 - 1 / bits) ** (hashes_ * keys)) ** hashes_ == pytest.approx(formula, rel=2e-5)
    assert deviation > 0.15 * mean


# --- the page of hashes ---


@pytest.mark.parametrize("name", ["dek", "murmur3"])
def test_the_table_of_hashes_is_what_is_measured(name: str) -> None:
    """A weak one and a sound one, measured again, are the page's, to the last digit."""
    (row,) = hashes.table({name: hashes.ratios(hashes.contenders()[name])})[2:]
    assert row in (RESULTS / "hashes.md").read_text("utf-8")


def test_the_page_of_hashes_warns_of_what_is_so() -> None:
    """It fails where a sound hash is not ideal, and where no weak one errs."""
    ideal = dict.fromkeys(hashes.contenders(), [1.0] * 6)
    assert hashes.faults(ideal) == ["no string hash errs twice as often as it should"]
    weak = {**ideal, "djb": [1.0, 2.5, 1.0, 1.0, 1.0, 1.0]}
    assert hashes.faults(weak) == []
    (fault,) = hashes.faults({**weak, "siphash": [1.0, 1.0, 1.3, 1.0, 1.0, 1.0]})
    assert fault.startswith("siphash errs 1.30 times")
