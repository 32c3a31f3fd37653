"""A mutant in its old form, a change of quoted source; goes once all are patches of objects."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = (".git", ".venv", "var", "dist", "build", "__pycache__", ".*_cache")


@dataclass(frozen=True)
class TextMutant:
    """A change to `file` of the package: `before`, which stands there once, becomes `after`."""

    name: str
    promise: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied_to(self, source: str) -> str:
        """The changed source. ValueError where the product has moved on, and the mutant must follow."""
        if source.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: {self.file} holds {source.count(self.before)} times what is to be changed; adapt it"
            )
        return source.replace(self.before, self.after)


@contextmanager
def mutated_copy(mutant: TextMutant) -> Iterator[Path]:
    """Give a copy of the repository with the change."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = Path(directory) / "streamdedup"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        path = copy / "streamdedup" / mutant.file
        path.write_text(mutant.applied_to(path.read_text("utf-8")), "utf-8")
        yield copy
