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


def leaves() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield section, name and schema of every leaf, and of every group of options before its own leaves."""
    made = schema()
    for section, part in made["properties"].items():
        options = made["$defs"][reference(part)]
        for name, leaf in options["properties"].items():
            yield section, name, leaf
            if group := reference(leaf):
                for inner, of in made["$defs"][group]["properties"].items():
                    yield section, f"{name}.{inner}", of


def reference(part: Mapping[str, Any]) -> str:
    """Return the name of the definition to which a part of the schema leads, which may be null besides; else empty."""
    found: str = part.get("anyOf", [part])[0].get("$ref", "")
    return found.rpartition("/")[2]
