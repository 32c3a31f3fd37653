"""The consumer of examples/, in docs/library.md; proof/broker/test_example_consumer.py runs it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_shows_it_as_it_is() -> None:
    """All of it but the opening comment, which the page has in more words; 30 lines or so."""
    code = (ROOT / "examples" / "consumer.py").read_text().partition('"""\n\n')[2]
    assert f"```python\n{code}```" in (ROOT / "docs" / "library.md").read_text()
    assert len(code.splitlines()) <= 32
