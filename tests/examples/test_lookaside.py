"""The measurement of docs/lookaside.md, with few keys and a real Redis."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


SCRIPT = ROOT / "examples" / "lookaside.py"


def test_the_page_shows_its_table() -> None:
    """Its head and its ways are those that the script prints."""
    source, page = SCRIPT.read_text(), table((ROOT / "docs" / "lookaside.md").read_text())
    assert f'"\\n{page[0]}"' in source
    assert f'"{page[1]}"' in source
    assert len(page) == 2 + 8


def table(text: str) -> list[str]:
    """Return the lines of the table."""
    return [line for line in text.splitlines() if line.startswith("|")]
