"""What must not change and is no file of ours: recorded once, as JSON in `records/`, and compared ever after.

`python -m proof golden` records what is missing. An intended change is made by deleting its record first.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proof.golden import configuration, deployment, lists, names, wire

DIRECTORY = Path(__file__).parent / "records"

RECORDS: Mapping[str, Callable[[], Any]] = {
    "configuration-schema": configuration.schema,
    "deliveries": deployment.deliveries,
    "metrics": names.metrics,
    "metrics-served": deployment.metrics,
    "snapshots": deployment.snapshots,
    "snapshots-taken-up": deployment.taken_up,
    "lists": lists.verdicts,
    "commit-notes": wire.notes,
    "meanings": wire.meanings,
    "control-topic": wire.control,
    "log-events": names.log_events,
    "log-bound-fields": names.bound_fields,
    "commands": names.commands,
    "exit-statuses": names.exit_statuses,
    "pages": names.pages,
    "json-outputs": names.json_outputs,
    "public-api": names.public_api,
}


def text_of(value: object) -> str:
    """As it stands in its file: one value a line, so that a difference is seen by its lines."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def path_of(name: str, directory: Path = DIRECTORY) -> Path:
    """Where a record stands."""
    return directory / f"{name}.json"


def make(directory: Path, records: Mapping[str, Callable[[], Any]]) -> list[str]:
    """Record what is missing in `directory`; report the names."""
    missing = [name for name in records if not path_of(name, directory).exists()]
    for name in missing:
        text = text_of(records[name]())
        with path_of(name, directory).open("x", encoding="utf-8") as file:
            file.write(text)
    return missing
