"""Versions of Kafka that the tests can start, and the one that they do: the newest, or that of STREAMDEDUP_TEST_KAFKA.

A version has a lock file in `locks/`. `4.4.0/transaction.version=1` is a version with a feature that is set when its
data are formatted, instead of what that version takes by itself.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NEWEST = "4.4.0"
WANTED = "STREAMDEDUP_TEST_KAFKA"
LOCKS = Path(__file__).with_name("locks")
FEATURE = "transaction.version"
_NAME = re.compile(rf"(\d+\.\d+\.\d+)(?:/{re.escape(FEATURE)}=(\d))?")


@dataclass(frozen=True, order=True)
class Release:
    """What can be compared of a version: 2.8 is before 2.8.2, and 4.0 after both."""

    numbers: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> "Release":
        """Read numbers with dots between them."""
        return cls(tuple(map(int, text.split("."))))

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers))


@dataclass(frozen=True)
class Kafka:
    """A version of Kafka, and the level of its transactions where that is not the version's own."""

    version: str
    transaction_version: int | None = None

    def __str__(self) -> str:
        if self.transaction_version is None:
            return self.version
        return f"{self.version}/{FEATURE}={self.transaction_version}"

    @property
    def lock(self) -> Path:
        """The file that names the jars of a broker."""
        return LOCKS / f"kafka-{self.version}.lock"

    @property
    def has_controllers(self) -> bool:
        """Whether it runs without ZooKeeper, as far as the tests start it."""
        return self.is_from("3.3")

    def is_from(self, release: str) -> bool:
        """Whether it is that release or a later one."""
        return Release.of(self.version) >= Release.of(release)


# Of which images are made: there are no tools of 4.4.0 in Maven's central repository, which deploy/compose.yaml needs.
IMAGED = Kafka("4.1.0")
REGISTRY_LOCK = LOCKS / "apicurio-registry-3.0.9.lock"  # the newest that runs on Java 17
TOOLS_LOCK = LOCKS / f"kafka-tools-{IMAGED}.lock"


def known() -> list[Kafka]:
    """Every version with a lock file, the oldest first."""
    names = (path.stem.removeprefix("kafka-") for path in LOCKS.glob("kafka-[0-9]*.lock"))
    return sorted(map(Kafka, names), key=lambda kafka: Release.of(kafka.version))


def named(name: str) -> Kafka:
    """The version of that name; ValueError with what there is."""
    found = _NAME.fullmatch(name)
    kafka = found and Kafka(found[1], int(found[2]) if found[2] else None)
    if not kafka or not kafka.lock.exists():
        raise ValueError(f"{name}: no such version; there are {', '.join(map(str, known()))}")
    if kafka.transaction_version is not None and not kafka.is_from("4.0"):
        raise ValueError(f"{name}: {FEATURE} can be set from 4.0 on")
    return kafka


def wanted(variables: Mapping[str, str] = os.environ) -> Kafka:
    """The version that the tests are to start; ConnectionError if the variable names none, as for a rung."""
    name = variables.get(WANTED) or NEWEST
    try:
        return named(name)
    except ValueError as error:
        raise ConnectionError(f"{WANTED}={error}") from None
