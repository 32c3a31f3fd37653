"""The smallest configuration, and how these tests read one and list its leaves."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamdedup.errors import ConfigError
from streamdedup.settings import Settings, load, schema

ROOT = Path(__file__).parent.parent.parent

MINIMAL = """\
kafka:
  bootstrap_servers: localhost:9092
  group_id: dedup
source:
  topic: events
key:
  field: id
filter:
  capacity: 1000
sink:
  topic: events-unique
snapshot:
  directory: var/snapshots
"""


def read(path: Path, *overrides: str, **environ: str) -> Settings:
    """Load with a closed environment; `KAFKA__GROUP_ID="x"` stands for the variable."""
    return load(path, overrides, {f"STREAMDEDUP_{name}": text for name, text in environ.items()})


def refusal(path: Path, *overrides: str, **environ: str) -> str:
    """Return the message with which the configuration is refused."""
    with pytest.raises(ConfigError) as caught:
        read(path, *overrides, **environ)
    return str(caught.value)


def problems(path: Path, *overrides: str, **environ: str) -> list[str]:
    """Return the lines of a refusal, the file's directory removed."""
    head, *lines = refusal(path, *overrides, **environ).replace(f"{path.parent}/", "").split("\n")
    assert head == f"{len(lines)} problem{'s' * (len(lines) > 1)} in the configuration:"
    return [line.removeprefix("  ") for line in lines]


def definition(section: str) -> str:
    """Return the name of the schema's definition of a section."""
    found = schema()["properties"][section]
    reference: str = found.get("anyOf", [found])[0]["$ref"]  # `filter` may be null
    return reference.rpartition("/")[2]


def leaves() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield section, name and schema of every leaf."""
    made = schema()
    for section in made["properties"]:
        for name, leaf in made["$defs"][definition(section)]["properties"].items():
            yield section, name, leaf
