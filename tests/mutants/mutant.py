"""What a mutant is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
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
