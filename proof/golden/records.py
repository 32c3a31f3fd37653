"""What must not change: files of ours, and what others rely on, as JSON in `records/`; compared ever after.

`python -m proof golden` makes what is missing. An intended change is made by deleting its golden first.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proof.golden import deployment, filters, lists, names, wire

DIRECTORY = Path(__file__).parent / "records"

RECORDS: Mapping[str, Callable[[], Any]] = {
    "configuration-schema": names.configuration_schema,
    "deliveries": deployment.deliveries,
    "metrics": names.metrics,
    "metrics-served": deployment.metrics,
    "filters": filters.answers,
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


def text_of(name: str) -> str:
    """A record as it would be made now: one value a line, so that a difference is seen by its lines."""
    return json.dumps(RECORDS[name](), indent=1, ensure_ascii=False) + "\n"


def path_of(name: str) -> Path:
    """Where a record stands."""
    return DIRECTORY / f"{name}.json"


def make(contents: Mapping[Path, Callable[[], bytes]]) -> list[str]:
    """Write the files that are missing; report their names. One that is there is never written again."""
    missing = [path for path in contents if not path.exists()]
    for path in missing:
        content = contents[path]()
        with path.open("xb") as file:
            file.write(content)
    return [path.name for path in missing]


def _record(name: str) -> Callable[[], bytes]:
    return lambda: text_of(name).encode()


if __name__ == "__main__":
    made = [
        *make({golden.path: golden.content for golden in filters.GOLDEN}),
        *make({kind.path: kind.snapshot for kind in deployment.KINDS}),
        *lists.make(lists.RECIPES),
        *make({path_of(name): _record(name) for name in RECORDS}),
    ]
    for name in made:
        print(f"made {name}")
