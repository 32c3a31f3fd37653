"""`python -m proof tables`: write the tables of docs/ that the code has, each between two comments of its page."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from streamdedup.metrics import catalogue
from streamdedup.settings import reference_markdown

DOCS = Path(__file__).parents[1] / "docs"
TABLES: Mapping[str, Callable[[], str]] = {
    "configuration.md": reference_markdown,
    "metrics.md": catalogue.reference_markdown,
}
_MADE = re.compile(r"(?<=<!-- made by: make docs -->\n\n).*?(?=\n<!-- until here -->\n)", re.DOTALL)


def written(name: str) -> str:
    """Return a page with its tables as the code has them. ValueError unless it has one place for them."""
    page, places = _MADE.subn(lambda _: TABLES[name](), (DOCS / name).read_text("utf-8"))
    if places != 1:
        raise ValueError(f"docs/{name} has {places} places for its tables; it needs one")
    return page


if __name__ == "__main__":
    for name in TABLES:
        (DOCS / name).write_text(written(name), "utf-8")
